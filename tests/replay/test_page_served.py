"""The page of a run that is being written, as `accredit replay view` serves it, in a real browser."""

import json
from pathlib import Path
from typing import Any

from opened_page import VIEWS, WIDE, Opened
from sample_episodes import shop_group, write_two_steps
from test_serve import served

from accredit.credit.traces import TraceWriter


def test_the_served_page_shows_every_view_and_grows_with_the_run(browser: Any, tmp_path: Path) -> None:
    run = write_two_steps(tmp_path / "shop")
    with served(run, "--credit", "rloo") as server:
        context = browser.new_context(viewport=WIDE)
        opened = Opened(context.new_page())
        page = opened.page
        page.goto(f"http://127.0.0.1:{server.port}/#view=run&step=12")
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        for digit, view in enumerate(VIEWS, 1):
            opened.press(str(digit))
            opened.wait(view)
        opened.press("5")
        opened.wait("compare")
        page.click("#two-functions")
        page.wait_for_selector(".column-head:nth-child(2) b:text('rloo')")  # priced by the server when it was asked for
        opened.press("1")
        opened.wait("run")
        words, group, credits = shop_group(seed=13)
        TraceWriter(run / "traces").write(13, [group], [credits], words.token_bytes)
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": 13, "rollout/reward": 0.9}) + "\n")
        opened.until("document.getElementById('found').textContent.startsWith('18 of 18')")
        opened.until("document.querySelector('.chart').getAttribute('aria-label').includes('to 0.9')")
        opened.press("l")
        opened.until("document.body.textContent.includes('Groups of step 13')")
        assert opened.troubles == []
        assert {url.split("/")[2] for url in opened.requests} == {f"127.0.0.1:{server.port}"}
        assert server.end() == 130
        opened.until("document.getElementById('notice').textContent.includes('the server does not answer')")
        context.close()
