"""The sizes that the page is made for, in a real browser: an episode of 100,000 tokens, and a group of 16 x 64,000."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from opened_page import Opened, inked


@pytest.fixture(scope="module")
def bench() -> Any:
    """The benchmark of the page, which makes such episodes."""
    path = Path(__file__).parents[2] / "benchmarks" / "replay_open.py"
    spec = importlib.util.spec_from_file_location("replay_open", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_episode_of_100_000_tokens_is_shown_with_few_elements(opened: Opened, bench: Any, tmp_path: Path) -> None:
    file = tmp_path / "long.html"
    file.write_text(bench.page_of([bench.long_episode(100_000)]), encoding="utf-8")
    page = opened.goto(file)
    opened.wait("episode")
    assert page.evaluate("document.querySelectorAll('*').length") < 8000
    opened.press("G", ",")
    assert opened.token() > 99_000


def test_a_group_of_16_rollouts_of_64_000_tokens_has_its_strips(opened: Opened, bench: Any, tmp_path: Path) -> None:
    file = tmp_path / "group.html"
    members = [bench.long_episode(64_000, member, "g") for member in range(16)]
    file.write_text(bench.page_of(members), encoding="utf-8")
    page = opened.goto(file)
    page.get_by_text("Group", exact=True).first.click()
    opened.wait("group")
    assert page.locator(".rollouts tbody tr").count() == 16
    assert all(pixels > 500 for pixels in inked(page, ".rollouts canvas"))
    assert "16 rollouts" in page.locator(".view-head").inner_text()
