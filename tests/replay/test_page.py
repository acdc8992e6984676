"""The exported page in a real browser. Skips with its reason without Chromium, unless REQUIRE_CHROMIUM=1."""

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_episodes import shop_group, write_shop_run

from accredit.credit import Call, CallStatus, Credit, Ledger, Recorder, StopReason
from accredit.credit.traces import StoredEpisode
from accredit.replay import export
from accredit.replay.bundle import join_modules
from accredit.replay.html_file import page_of

ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
WIDE = {"width": 1280, "height": 860}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    executable = shutil.which("chromium")
    reason = ""
    if executable is None:
        reason = "there is no chromium on the PATH (Debian: apt-get install chromium)"
    elif importlib.util.find_spec("playwright") is None:
        reason = "the Python package playwright is not installed"
    if reason and os.environ.get("REQUIRE_CHROMIUM") == "1":
        pytest.fail(f"REQUIRE_CHROMIUM=1 but {reason}")
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:  # each launch has a fresh user-data folder
        launched = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield launched
        launched.close()


class Opened:
    """A page with everything that it logged, asked for, or threw."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.troubles: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.troubles.append(message.text))
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        page.on("request", lambda request: self.requests.append(request.url))

    def goto(self, file: Path, tail: str = "") -> Any:
        self.page.goto(file.as_uri() + tail)
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)
        return self.page

    def text(self) -> str:
        return self.page.evaluate("[...document.querySelectorAll('.chunk')].map((c) => c.textContent).join('')")


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    context = browser.new_context(viewport=WIDE)
    found = Opened(context.new_page())
    yield found
    context.close()
    assert found.troubles == []
    assert all(url.startswith("file:") for url in found.requests) and len(set(found.requests)) <= 2


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return export(write_shop_run(folder / "shop"), folder / "shop.html")


@pytest.fixture(scope="module")
def first() -> StoredEpisode:
    words, group, credits = shop_group()
    trajectory = group.trajectories[0]
    return StoredEpisode(trajectory, credits[0], words.token_bytes(trajectory.token_ids.tolist()), 12, "train")


def decoded(episode: StoredEpisode) -> str:
    spans = episode.trajectory.spans
    return "".join(b"".join(episode.token_bytes[s.start : s.end]).decode("utf-8", "replace") for s in spans)


def ledger(page: Any, quantity: str) -> dict[str, float]:
    rows = page.eval_on_selector_all(
        f'.sum[data-quantity="{quantity}"] tr',
        "(rows) => rows.map((r) => [r.cells[0].textContent, r.cells[1].textContent])",
    )
    return {name: float(value.replace("−", "-")) for name, value in rows}


@pytest.mark.parametrize("tail", ["", "?spans"])
def test_the_text_shown_is_the_decoded_text(opened: Opened, shop: Path, first: StoredEpisode, tail: str) -> None:
    opened.goto(shop, tail)
    assert opened.text() == decoded(first)
    assert "größer geht nicht 🙂" in opened.text()


def test_a_charge_shows_its_reason_its_amount_and_what_the_tool_answered(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop)
    card = page.locator(".call.failed").first
    assert card.locator(".charge").is_visible()
    text = card.inner_text()
    assert "−0.10 charged for invalid_arguments" in text and "on 4 tokens" in text
    assert 'unknown item "pine tree"' in text
    assert "2 charges −0.20" in page.locator("#heading").inner_text()


def test_the_ledger_of_a_token_adds_up_to_its_credit_and_advantage(
    opened: Opened, shop: Path, first: StoredEpisode
) -> None:
    charge = first.trajectory.charges[0]
    assert first.credit is not None
    for token in (0, charge.start - 1, charge.start, charge.end - 1, len(first.trajectory) - 1):
        opened.page.goto("about:blank")
        page = opened.goto(shop, f"#episode=ep-0&step=12&token={token}")
        for quantity, expected in (("credit", first.credit.credit), ("advantage", first.credit.advantage)):
            shown = ledger(page, quantity)
            total = shown.pop(quantity)
            assert total == pytest.approx(expected.total[token], abs=1e-4)
            assert sum(shown.values()) == pytest.approx(total, abs=2e-4)  # each is rounded to 4 digits
            assert list(shown) == list(expected.terms)
        facts = page.locator("#ledger dl").inner_text()
        assert str(first.trajectory.token_ids[token]) in facts
        assert ("trained" if first.trajectory.credit_mask[token] else "masked") in facts


def test_pointing_at_a_token_shows_it_and_a_click_keeps_it(opened: Opened, shop: Path, first: StoredEpisode) -> None:
    page = opened.goto(shop)
    span = first.trajectory.decisions[0]
    spot = page.evaluate(
        """() => { const node = document.querySelector('.decision .chunk').firstChild;
        const range = document.createRange(); range.setStart(node, 3); range.setEnd(node, 4);
        const box = range.getBoundingClientRect(); return [box.right - 1.5, box.top + box.height / 2]; }"""
    )
    page.mouse.move(*spot)
    page.wait_for_selector("#ledger.open")
    assert page.locator(".token").inner_text() == first.token_bytes[span.start + 1].decode() == " need"
    page.mouse.click(*spot)
    assert "kept" in page.locator("#ledger h2").inner_text()
    assert f"token={span.start + 1}" in page.url
    page.keyboard.press("Escape")
    assert page.locator("#ledger.open").count() == 0 and "token=" not in page.url


def test_keys_move_between_messages_spans_failed_calls_and_episodes(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop)
    focused = "document.activeElement.closest('.message')?.getAttribute('aria-label') ?? document.activeElement.tagName"
    page.keyboard.press("j")
    assert page.evaluate(focused) != "BODY"
    page.keyboard.press("j")
    assert page.evaluate(focused) == "decision, turn 0"
    page.keyboard.press("j")
    assert page.evaluate(focused) == "feedback, turn 0"
    page.keyboard.press("k")
    assert page.evaluate(focused) == "decision, turn 0"

    def token() -> int:
        return int(page.evaluate("new URLSearchParams(location.hash.slice(1)).get('token')"))

    page.keyboard.press("n")
    start = token()
    page.keyboard.press("n")
    assert token() > start
    page.keyboard.press("p")
    assert token() == start
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.textContent").startswith("✗priceinvalid_arguments")
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.textContent").startswith("✗orderinvalid_arguments")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("J")
    page.wait_for_selector('html[data-ready="1"]')
    assert "episode=ep-1" in page.url and page.locator('[aria-current="true"] .name').inner_text() == "ep-1"
    page.keyboard.press("K")
    page.wait_for_selector('html[data-ready="0"]')


def test_the_overlay_follows_the_choice_and_the_legend_says_its_scale(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop)
    drawn = "[...CSS.highlights].filter(([name, h]) => h.size).map(([name]) => name).sort()"
    assert {"pos-1", "zero", "special"} <= set(page.evaluate(drawn))
    page.select_option("#overlay", "advantage:charge:invalid_arguments")
    assert page.evaluate(drawn) == ["neg-4", "special", "zero"]
    assert "−0.1" in page.locator("#legend").inner_text()
    page.select_option("#overlay", "logprob")
    assert any(name.startswith("low-") for name in page.evaluate(drawn))
    assert "nats" in page.locator("#legend").inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("m")
    assert page.evaluate(drawn) == ["special", "trained"]
    page.keyboard.press("m")
    assert page.locator("#overlay").input_value() == "logprob"


def test_an_unscored_episode_says_so(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop, "#episode=ep-5&step=12")
    assert "unscored" in page.locator("#heading").inner_text()
    assert "infrastructure" in page.locator("#heading").inner_text()


@pytest.mark.parametrize("size", [(390, 844), (760, 900), (1100, 800)])
def test_the_page_never_scrolls_sideways(opened: Opened, shop: Path, size: tuple[int, int]) -> None:
    opened.page.set_viewport_size({"width": size[0], "height": size[1]})
    page = opened.goto(shop, "#episode=ep-0&step=12&token=204")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.locator("#ledger").is_visible()


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


@pytest.mark.parametrize("tail", ["", "?spans"])
def test_hostile_text_is_shown_as_text_and_nothing_runs(opened: Opened, tmp_path: Path, tail: str) -> None:
    episode = hostile()
    file = tmp_path / "hostile.html"
    file.write_text(page_of([episode, episode], title=HOSTILE[0]), encoding="utf-8")
    page = opened.goto(file, tail)
    assert opened.text() == decoded(episode)
    page.keyboard.press("e")
    for _ in range(4):
        page.keyboard.press("n")
    page.keyboard.press(".")
    page.keyboard.press("G")
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, iframe, object, embed, link").count() == 0
    assert page.locator("style").count() == 1 and page.locator("script").count() == 5
    assert "shown: the first 20,000 of 1,000,1" in page.locator(".call.failed .answer").inner_text()
    assert HOSTILE[0] in page.locator(".call.failed .charge").inner_text()
    assert page.locator(".warning").count() >= 2
    assert page.locator("h1").inner_text().startswith("</script>")


def test_a_bytes_worth_of_any_split_decodes_as_python_does(opened: Opened) -> None:
    rng = np.random.default_rng(0)
    alphabet = "aé€🙂\n\ufeff".encode() + bytes([0xFF, 0xC0, 0xED, 0xA0, 0xF4, 0x90, 0x80, 0xE0])
    cases: list[list[list[int]]] = []
    for _ in range(300):
        raw = bytes(rng.choice(list(alphabet), rng.integers(1, 24)).tolist())
        raw = raw if rng.random() < 0.5 else bytes("é🙂€a".encode()[: rng.integers(1, 10)]) + raw
        cuts = sorted(rng.integers(0, len(raw) + 1, rng.integers(0, 8)).tolist())
        cases.append([list(raw[a:b]) for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)])
    answers = opened.page.evaluate(
        "(cases) => {"
        + join_modules("utf8.js")
        + """ const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
        return cases.map((tokens) => { const bytes = new Uint8Array(tokens.flat());
        const found = decodeTokens(bytes, 0, tokens.map((t) => t.length), 0, tokens.length);
        return [found.text, [...found.ends], [...found.joined], decoder.decode(bytes)]; }); }""",
        cases,
    )
    for tokens, (text, ends, joined, browsers) in zip(cases, answers, strict=True):
        assert text == browsers == bytes(b for token in tokens for b in token).decode("utf-8", "replace")
        assert ends == sorted(ends) and ends[-1] == len(text.encode("utf-16-le")) // 2
        assert not joined[0]
        for i in range(1, len(tokens)):
            if joined[i]:
                assert ends[i] == ends[i - 1]


def test_ids_inside_one_character_are_joined_and_keep_their_ids(opened: Opened, tmp_path: Path) -> None:
    recorder = Recorder(episode_id="joined")
    raw = "a🙂b".encode()
    recorder.decision(list(raw), [-0.25] * len(raw))
    episode = StoredEpisode(recorder.finish(1.0, StopReason.DONE), None, [bytes([b]) for b in raw], 0, "train")
    file = tmp_path / "joined.html"
    file.write_text(page_of([episode]), encoding="utf-8")
    page = opened.goto(file, "#episode=joined&token=3")
    assert page.locator(".token").inner_text() == "🙂"
    facts = page.locator("#ledger dl").inner_text()
    assert "240 159 153 130" in facts and "99" in facts
    page.keyboard.press(".")
    assert page.locator(".token").inner_text() == "b"
    page.keyboard.press(",")
    page.keyboard.press(",")
    assert page.locator(".token").inner_text() == "a"


def test_a_hundred_thousand_tokens_open(opened: Opened, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    recorder = Recorder("accredit/Long-v0", "long", "long")
    for _ in range(200):
        line = rng.choice(list(b"abcdefgh      \n"), 400)
        recorder.decision(line, -rng.random(400))
        recorder.feedback(rng.choice(list(b"abcdefgh \n"), 100))
    trajectory = recorder.finish(1.0, StopReason.TURN_LIMIT)
    assert len(trajectory) == 100_000
    terms = {"outcome": rng.normal(size=100_000) * trajectory.credit_mask}
    credit = Credit(Ledger(100_000, terms), Ledger(100_000, terms))
    tokens = [bytes([i]) for i in trajectory.token_ids.tolist()]
    file = tmp_path / "long.html"
    file.write_text(page_of([StoredEpisode(trajectory, credit, tokens, 0, "train")]), encoding="utf-8")
    page = opened.goto(file, "#token=98765")
    assert opened.text() == b"".join(tokens).decode()
    assert page.evaluate("document.querySelectorAll('*').length") < 10_000
    assert "98,765 of 100,000" in page.locator("#ledger dl").inner_text()
    seen = page.evaluate("""() => { const box = [...CSS.highlights.get('caret')][0].startContainer.parentElement
        .getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; }""")
    assert seen


def test_the_run_block_is_plain_json(shop: Path) -> None:
    text = shop.read_text(encoding="utf-8")
    block = text.split('id="run">')[1].split("</script>")[0]
    assert set(json.loads(block)) == {"title", "notice", "live", "metrics", "functions"}
