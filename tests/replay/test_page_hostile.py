"""Text of a run is hostile: it is shown as text, no script of it runs, and no request is sent, in any view."""

from pathlib import Path

import numpy as np
import pytest
from opened_page import VIEWS, Opened

from accredit.credit import Call, CallStatus, Credit, Ledger, Recorder, StopReason
from accredit.credit.traces import StoredEpisode
from accredit.replay.html_file import page_of

HOSTILE = [
    "</script><script>window.pwned = 1; alert(1)</script>",
    '<img src="https://example.invalid/x.png" onerror="window.pwned = 2">',
    "<style>body{display:none}</style><!-- ",
    "\u202eevil\u202c \u2066x\u2069 \u0000\u0007 ",
    "<|im_end|>&lt;b&gt;",
]


def hostile() -> StoredEpisode:
    attack = "".join(HOSTILE)
    recorder = Recorder(attack, attack, attack, attack)
    pieces: list[bytes] = []

    def add(kind: str, parts: list[bytes]) -> None:
        ids = [part[0] if len(part) == 1 else 300 + len(pieces) + i for i, part in enumerate(parts)]
        if kind == "decision":
            recorder.decision(ids, [-0.5] * len(ids))
        else:
            getattr(recorder, kind)(ids)
        pieces.extend(parts)

    add("prompt", [attack.encode()])
    for text in HOSTILE:
        add("decision", [text.encode()])
        broken = [b"\xf0\x9f", b"\x99\x82", b"\xff\xc3", b"\xe2\x82", b"<b>", b"\xed\xa0\x80", b"\xf0"]
        add("feedback", [bytes([b]) for b in text.encode()] + broken)
    add("feedback", [b"xxxx"] * 250_000)
    start, end = len(recorder), len(recorder) + 1
    add("decision", [b"y"])
    status, long_answer = CallStatus.TOOL_ERROR, attack + "z" * 1_000_000
    call = Call(recorder.turn, start, end, attack, attack, {attack: 1}, status, long_answer, detail={attack: attack})
    recorder.charge(start, end, 0.5, attack, recorder.call(call))
    trajectory = recorder.finish(0.0, StopReason.ENVIRONMENT_ERROR, error=attack)
    terms = {attack: np.where(trajectory.credit_mask, -0.5, 0.0)}
    ledger_of = Ledger(len(trajectory), terms)
    return StoredEpisode(trajectory, Credit(ledger_of, ledger_of), pieces, 0, attack)


def decoded(episode: StoredEpisode) -> str:
    spans = episode.trajectory.spans
    return "".join(b"".join(episode.token_bytes[s.start : s.end]).decode("utf-8", "replace") for s in spans)


@pytest.fixture(scope="module")
def episode() -> StoredEpisode:
    return hostile()


@pytest.fixture(scope="module")
def file(episode: StoredEpisode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "hostile.html"
    path.write_text(page_of([episode, episode], title=HOSTILE[0], functions=["rloo"]), encoding="utf-8")
    return path


def assert_inert(opened: Opened) -> None:
    page = opened.page
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, iframe, object, embed, link, form, base").count() == 0
    assert page.locator("style").count() == 1 and page.locator("script").count() == 5


@pytest.mark.parametrize("tail", ["", "?spans"])
def test_hostile_text_is_shown_as_text_and_nothing_runs(
    opened: Opened, file: Path, episode: StoredEpisode, tail: str
) -> None:
    page = opened.goto(file, tail)
    assert opened.text() == decoded(episode)
    opened.press("e", "n", "n", ".", "G")
    assert_inert(opened)
    assert "shown: the first 20,000 of 1,000,1" in page.locator(".call.failed .answer").inner_text()
    assert HOSTILE[0] in page.locator(".call.failed .charge").inner_text()
    assert page.locator(".warning").count() >= 2
    assert page.locator("h1").inner_text().startswith("</script>")
    page.locator(".call .detail summary").first.click()
    assert HOSTILE[1] in page.locator(".facts").first.inner_text()


def test_no_view_runs_it_and_the_only_request_is_the_file(opened: Opened, file: Path) -> None:
    page = opened.goto(file, "#view=run")
    for digit, view in enumerate(VIEWS, 1):
        opened.press(str(digit))
        opened.wait(view)
        assert HOSTILE[1] in page.locator("body").inner_text() or view == "replay"
        assert_inert(opened)
    opened.press("4", ">", "e")
    opened.wait("replay")
    assert HOSTILE[0] in page.locator("#tool").inner_text()
    page.locator("#query").fill("onerror")
    page.wait_for_selector("#hits .hit")
    assert "onerror" in page.locator("#hits mark").first.inner_text()
    page.locator("#hits .hit").first.click()
    assert_inert(opened)
    assert {url.split("#")[0] for url in opened.requests} <= {file.as_uri(), "about:blank"}


def test_the_policy_stops_a_script_that_came_in_all_the_same(opened: Opened, file: Path) -> None:
    page = opened.goto(file)
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(f"{request.failure} {request.url}"))
    page.evaluate(
        """() => { const script = document.createElement('script'); script.textContent = 'window.pwned = 3';
        document.body.append(script); const image = new Image(); image.src = 'https://example.invalid/y.png';
        image.setAttribute('onerror', 'window.pwned = 4'); document.body.append(image); }"""
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.pwned") is None
    assert failed == ["csp https://example.invalid/y.png"]  # stopped before it left
    assert all("Content Security Policy" in trouble for trouble in opened.troubles) and opened.troubles
    opened.troubles.clear()  # these are the policy's own words
    opened.requests.clear()
