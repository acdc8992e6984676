"""A stranger opens the quickstart's page: which token was charged, how much, why, and what had the tool answered?"""

from pathlib import Path

import pytest
from opened_page import Opened
from sample_episodes import shop_group, write_shop_run

from accredit.commands.quickstart import _page


@pytest.mark.parametrize("way", ["key", "click"])
def test_three_keys_or_clicks_answer_who_was_charged_and_why(opened: Opened, tmp_path: Path, way: str) -> None:
    page = opened.goto(_page(write_shop_run(tmp_path / "quickstart"), last_step=12))
    actions = 0
    if way == "key":
        opened.press("e")
        actions = 1
    else:
        page.locator(".call.failed .charge").first.click()
        actions = 1
    page.wait_for_selector("#ledger .why")
    assert actions <= 3
    trajectory = shop_group()[1].trajectories[0]
    charge, call = trajectory.charges[0], trajectory.calls[trajectory.charges[0].call or 0]
    assert opened.token() == charge.start  # which token
    assert f"{charge.start} of {len(trajectory)}" in page.locator("#ledger > dl").inner_text()
    why = page.locator("#ledger .why").inner_text()
    assert "−0.10 invalid_arguments" in why and "on 4 tokens" in why  # how much, why
    assert call.result in why and '"pine tree"' in why  # what the tool had answered, and to what
    assert page.locator("#ledger .why").is_visible() and page.locator(".call.failed .answer").first.is_visible()
