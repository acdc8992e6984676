"""The page of a run that is being written, as `accredit replay view` serves it, in a real browser."""

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from opened_page import VIEWS, WIDE, Opened
from sample_episodes import shop_group, write_two_steps
from test_serve import served

from accredit.credit.traces import TraceWriter
from accredit.credit.traces.cutting import cut_after
from accredit.trainer.metrics import cut_after as cut_metrics_after


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


class Wire:
    """Carries connections to a port of this machine, until they are cut."""

    def __init__(self, port: int) -> None:
        self.to, self.open, self.dropping = port, list[socket.socket](), False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            if self.dropping:
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self.to))
            self.open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(source, target), daemon=True).start()

    @staticmethod
    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Drop all connections, and every new one until `dropping` is unset."""
        self.dropping = True
        for end in self.open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.open = []


def append_metric(run: Path, step: int) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "rollout/reward": step / 100}) + "\n")


def test_a_page_misses_no_metrics_and_drops_what_a_resume_cut_away(browser: Any, tmp_path: Path) -> None:
    run = write_two_steps(tmp_path / "shop")
    with served(run) as server:
        wire = Wire(server.port)
        context = browser.new_context(viewport=WIDE)
        opened = Opened(context.new_page())
        page = opened.page
        page.route("**/api/events*", lambda route: (append_metric(run, 13), route.continue_()), times=1)
        page.goto(f"http://127.0.0.1:{wire.port}/#view=run&episode=ep-3&step=12")
        drawn = "(document.querySelector('.chart')?.getAttribute('aria-label') ?? '')"
        opened.until(f"{drawn}.includes('to 0.13')")  # between the first answer and the stream
        wire.cut()
        opened.until("document.getElementById('notice').textContent.includes('the server does not answer')")
        append_metric(run, 14)
        append_metric(run, 15)
        wire.dropping = False
        opened.until(f"{drawn}.includes('to 0.15')")
        assert not page.locator("#notice").is_visible()

        opened.press("3")
        opened.wait("episode")
        cut_after(run / "traces", 4)
        cut_metrics_after(run / "metrics.jsonl", 4)
        opened.until("document.getElementById('found').textContent.startsWith('6 of 6')")
        opened.wait("episode", 0)
        assert "ep-3 of step 12 is not in the run any more" in page.locator("#notice").inner_text()
        assert page.locator("#episodes").inner_text().count("step ") == 1 and "step=4" in page.url
        opened.press("1")
        opened.until(f"{drawn} && !{drawn}.includes('to 0.15')")
        words, group, credits = shop_group(seed=3)
        TraceWriter(run / "traces").write(12, [group], [credits], words.token_bytes)
        opened.until("document.getElementById('found').textContent.startsWith('12 of 12')")

        cut_after(run / "traces", 1)
        opened.until("document.getElementById('messages').textContent === 'Nothing to show.'")
        opened.press("2", "j", "n")
        TraceWriter(run / "traces").write(2, [group], [credits], words.token_bytes)
        opened.until("document.getElementById('found').textContent.startsWith('6 of 6')")
        opened.until("document.getElementById('heading').textContent.includes('step 2')")
        assert [text for text in opened.troubles if "ERR_" not in text] == []
        wire.listener.close()
        wire.cut()
        context.close()


def test_a_page_of_chosen_episodes_says_so_and_not_as_lived(browser: Any, tmp_path: Path) -> None:
    run = write_two_steps(tmp_path / "shop")
    with served(run, "--where", "reward<0.7 error:invalid") as server:
        context = browser.new_context(viewport=WIDE)
        opened = Opened(context.new_page())
        opened.page.goto(f"http://127.0.0.1:{server.port}/#view=replay&lived=1&episode=ep-3&step=12")
        opened.wait("replay", 1)
        assert opened.page.locator("#episodes .name").all_inner_texts() == ["ep-3", "ep-3"]
        assert not opened.page.locator("#notice").is_visible()
        opened.press("v")
        opened.until("document.getElementById('notice').checkVisibility()")
        assert opened.page.locator("#notice").inner_text() == "only episodes that fit reward<0.7 error:invalid"
        words, group, credits = shop_group(seed=13)
        TraceWriter(run / "traces").write(13, [group], [credits], words.token_bytes)
        opened.until("document.getElementById('found').textContent === '3 of 3 episodes'")
        opened.press("v")
        opened.until("!document.getElementById('notice').checkVisibility()")
        cut_after(run / "traces", 4)
        opened.until("document.getElementById('notice').textContent.includes('not in the run any more')")
        assert "reward" not in opened.page.locator("#notice").inner_text()
        assert opened.troubles == []
        context.close()
