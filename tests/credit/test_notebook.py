"""What a notebook shows of a trajectory: the mask, calls and charges, small, escaped, without script."""

import html.parser
import subprocess
import sys

import numpy as np

from accredit.credit import Call, CallStatus, Credit, Ledger, Recorder, StopReason, Trajectory
from accredit.credit.notebook import html_of

HOSTILE = '</div><script>alert(1)</script><img src=x onerror="alert(2)">\x1b[2J\u202e\u0000\ud800'


class Seen(html.parser.HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def lived(prompt: int = 3, result: str = "fine") -> Trajectory:
    recorder = Recorder("Shop-v0", HOSTILE, "ep-0", "g")
    recorder.prompt(list(range(1000, 1000 + prompt)))
    start, end = recorder.decision([7, 8, 9], np.full(3, -0.5))
    call = recorder.call(Call(0, start, end, "c0", "price", {}, CallStatus.INVALID_ARGUMENTS, result))
    recorder.charge(start, end, 0.1, "invalid_arguments", call)
    return recorder.finish(1.0, StopReason.DONE, error=HOSTILE)


def test_ids_calls_and_charges_are_there_with_the_mask() -> None:
    seen = Seen(lived()._repr_html_())
    for text in ("7 8 9", "reward 1.000", "3 of 6 tokens trained", "prompt (3 tokens, masked)", "decision, turn 0",
                 "1 calls", "price", "invalid_arguments", "-0.1", "[3, 6)"):  # fmt: skip
        assert text in seen.text, text
    assert not seen.open


def test_hostile_text_is_text_and_cannot_turn_the_line() -> None:
    t = lived(result=HOSTILE)
    seen = Seen(html_of(t, [HOSTILE.encode("utf-8", "replace")] * len(t)))
    assert seen.tags <= {"div", "b", "br", "span", "i", "details", "summary", "table", "caption", "tr", "th", "td"}
    assert seen.attributes <= {"style", "title", "dir"}
    assert "<script>alert(1)</script>" in seen.text and not seen.open
    assert not any(c in seen.text for c in "\x1b\u202e\u0000\ud800") and "\\u202e" in seen.text


def test_credit_is_colour_and_underline_of_decisions_only() -> None:
    t = lived()
    ledger = Ledger(6, {"outcome": np.array([0, 0, 0, 0.2, -0.4, 0.0])})
    text = html_of(t, [b"x"] * 6, Credit(ledger, ledger))
    assert text.count("underline solid") == text.count("underline wavy") == text.count("underline dotted") == 1
    assert "rgba(33,102,172,0.32)" in text and "rgba(179,88,6,0.52)" in text and "credit -0.4000" in text


def test_a_long_episode_stays_small_and_says_what_it_left_out() -> None:
    text = lived(prompt=200_000, result="x" * 100_000)._repr_html_()
    assert len(text) < 8_000
    assert "… 199840 tokens …" in text and "99840 more characters" in text


def test_it_needs_numpy_only() -> None:
    code = (
        "import sys, numpy as np; from accredit.credit import Recorder, StopReason; r = Recorder(); "
        "r.decision([1], [-0.1]); r.finish(1.0, StopReason.DONE)._repr_html_(); "
        "sys.exit(any(name in sys.modules for name in ('pyarrow', 'rich', 'torch', 'pandas')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
