"""A page in a real browser, with everything that it logged, asked for, or threw."""

import time
from pathlib import Path
from typing import Any

ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
WIDE = {"width": 1280, "height": 860}
VIEWS = ("run", "group", "episode", "replay", "compare", "checks")


class Opened:
    """A page, its troubles and its requests."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.troubles: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.troubles.append(message.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))

    def goto(self, file: Path, tail: str = "") -> Any:
        self.page.goto("about:blank")  # a change of the address alone would not load the page again
        self.page.goto(file.as_uri() + tail)
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)
        return self.page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def wait(self, view: str, row: int | None = None) -> None:
        """Wait until a view (of a row of the listing) is shown."""
        at = "" if row is None else f'[data-ready="{row}"]'
        self.page.wait_for_selector(f'html[data-view="{view}"]{at}')

    def until(self, expression: str, timeout_s: float = 20.0) -> None:
        """Wait until an expression holds. The page's policy forbids `wait_for_function`, which evaluates inside it."""
        deadline = time.monotonic() + timeout_s
        while not self.page.evaluate(expression):
            assert time.monotonic() < deadline, f"{expression} did not come to hold in {timeout_s:g} s"
            time.sleep(0.03)

    def text(self) -> str:
        return self.page.evaluate("[...document.querySelectorAll('.chunk')].map((c) => c.textContent).join('')")

    def token(self) -> int:
        """Return the token that is kept, or where the replay stands; -1 where there is none."""
        found = self.page.evaluate("document.documentElement.dataset.token")
        return int(found) if found else -1

    def drawn(self) -> list[str]:
        """Return the highlights that are drawn somewhere."""
        return self.page.evaluate("[...CSS.highlights].filter(([name, h]) => h.size).map(([name]) => name).sort()")


def inked(page: Any, selector: str) -> list[int]:
    """Return for each canvas the number of pixels that are not blank."""
    return page.eval_on_selector_all(
        selector,
        """(all) => all.map((c) => c.getContext("2d").getImageData(0, 0, c.width, c.height).data
        .reduce((sum, value, at) => sum + (at % 4 === 3 && value > 0 ? 1 : 0), 0))""",
    )
