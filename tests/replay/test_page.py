"""The episode, its ledger and its keys in a real browser."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from opened_page import Opened
from sample_episodes import shop_group

from accredit.credit import Group, Recorder, StopReason
from accredit.credit.traces import StoredEpisode, TraceWriter
from accredit.replay import export
from accredit.replay.bundle import join_modules
from accredit.replay.html_file import page_of


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
        page = opened.goto(shop, f"#episode=ep-0&step=12&token={token}")
        for quantity, expected in (("credit", first.credit.credit), ("advantage", first.credit.advantage)):
            shown = ledger(page, quantity)
            total = shown.pop(quantity)
            assert total == pytest.approx(expected.total[token], abs=1e-4)
            assert sum(shown.values()) == pytest.approx(total, abs=2e-4)  # each is rounded to 4 digits
            assert list(shown) == list(expected.terms)
        facts = page.locator("#ledger > dl").inner_text()
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
    assert opened.token() == span.start + 1
    opened.until(f"location.hash.includes('token={span.start + 1}')")
    page.keyboard.press("Escape")
    assert page.locator("#ledger.open").count() == 0 and opened.token() == -1
    opened.until("!location.hash.includes('token=')")


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

    opened.press("n")
    start = opened.token()
    opened.press("n")
    assert opened.token() > start
    opened.press("p")
    assert opened.token() == start
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.textContent").startswith("✗priceinvalid_arguments")
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.textContent").startswith("✗orderinvalid_arguments")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    page.keyboard.press("J")
    opened.wait("episode", 1)
    assert page.locator('#episodes [aria-current="true"] .name').inner_text() == "ep-1"
    page.keyboard.press("K")
    opened.wait("episode", 0)


def test_the_overlay_follows_the_choice_and_the_legend_says_its_scale(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop)
    assert {"pos-1", "zero", "special"} <= set(opened.drawn())
    page.select_option("#overlay", "advantage:charge:invalid_arguments")
    assert opened.drawn() == ["neg-4", "special", "zero"]
    assert "−0.1" in page.locator("#legend").inner_text()
    page.select_option("#overlay", "logprob")
    assert any(name.startswith("low-") for name in opened.drawn())
    assert "nats" in page.locator("#legend").inner_text()
    page.keyboard.press("Tab")
    page.keyboard.press("m")
    assert opened.drawn() == ["special", "trained"]
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
    facts = page.locator("#ledger > dl").inner_text()
    assert "240 159 153 130" in facts and "99" in facts
    page.keyboard.press(".")
    assert page.locator(".token").inner_text() == "b"
    page.keyboard.press(",")
    page.keyboard.press(",")
    assert page.locator(".token").inner_text() == "a"


def test_what_the_update_computed_is_laid_over_the_text_and_in_the_ledger(
    opened: Opened, first: StoredEpisode, tmp_path: Path
) -> None:
    t = first.trajectory
    decision = t.decisions[0]
    at, left_out, masked = decision.start, decision.end - 1, int(np.flatnonzero(~t.credit_mask)[-1])
    trainer = t.logprobs + np.where(np.arange(len(t)) % 2, 0.2, -0.1).astype("f4")
    entropy = np.where(t.credit_mask, 0.7, np.nan).astype("f4")
    trainer[left_out] = entropy[left_out] = np.nan
    credits = None if first.credit is None else [[first.credit]]
    signals = {"trainer_logprob": trainer, "entropy": entropy}
    words_of = dict(zip(t.token_ids.tolist(), first.token_bytes, strict=True))
    TraceWriter(tmp_path / "traces").write(
        12, [Group((t,))], credits, lambda ids: [words_of[i] for i in ids], signals=[signals]
    )
    file = export(tmp_path, tmp_path / "scored.html")  # no option: what training stored is shown
    page = opened.goto(file, f"#token={at}&overlay=gap")
    gap = trainer[at] - t.logprobs[at]
    facts = page.locator("#ledger > dl").inner_text()
    assert f"{np.exp(gap):.4f}" in facts and "0.7000 nats" in facts
    labels = page.locator("#overlay option").all_inner_texts()
    assert "trainer–sampler gap" in labels and "entropy" in labels
    legend = page.locator("#legend").inner_text()
    assert "trainer–sampler gap" in legend and "nats" in legend and "left out of the update" in legend
    assert {"absent"} < set(opened.drawn()) and any(name.startswith("neg-") for name in opened.drawn())
    page.select_option("#overlay", "entropy")
    opened.until("[...CSS.highlights].some(([name, h]) => h.size && name.startsWith('low-'))")
    for token in (left_out, masked):
        page = opened.goto(file, f"#token={token}&overlay=entropy")
        facts = page.locator("#ledger > dl").inner_text().split("\n")
        assert [facts[facts.index(name) + 1] for name in ("trainer", "ratio", "entropy")] == ["—", "—", "—"]


def test_without_an_update_the_page_has_neither_its_overlays_nor_its_rows(opened: Opened, shop: Path) -> None:
    page = opened.goto(shop, "#episode=ep-0&step=12&token=204")
    assert "log-probability" in page.locator("#overlay option").all_inner_texts()
    assert page.locator("#overlay option:is([value=gap], [value=entropy])").count() == 0
    assert not {"ratio", "trainer", "entropy"} & set(page.locator("#ledger > dl").inner_text().split("\n"))


def test_the_run_block_is_plain_json(shop: Path) -> None:
    text = shop.read_text(encoding="utf-8")
    block = text.split('id="run">')[1].split("</script>")[0]
    assert set(json.loads(block)) == {"title", "notice", "live", "metrics", "functions"}
