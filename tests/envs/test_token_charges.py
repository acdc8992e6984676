import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accredit.credit import CallStatus, StopReason
from accredit.envs.core import ToolEnv
from accredit.envs.errors import ToolError
from accredit.envs.recorder import Decision, RecordCredit
from accredit.envs.task import Task
from accredit.envs.tools import tool

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")
VALUES = st.text(alphabet=LETTERS | st.sampled_from('"\\/{}🙂é日\n\t '), max_size=15) | st.sampled_from(
    ["<|im_end|>", "</tool_call>", "<tool_call>", "<|im_start|>tool", "\\u0041", "🙂" * 5]
)
PROSE = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="<\u2581"), max_size=10)
SEPARATORS = st.sampled_from(["", "\n", " ", "🙂", "é", ">"])
CUTS = st.lists(st.integers(0, 400), max_size=4)
SOME = settings(max_examples=40)


class Desk(ToolEnv):
    max_turns = 3

    def tasks(self, rng):
        return [Task("Note it.", id="note")]

    @tool
    def note(self, text: str, qty: int = 1) -> str:
        """Note a text."""
        if qty == 13:
            raise ToolError("unlucky", argument="qty")
        if qty == 14:
            raise ToolError("no such name", argument="text", source_range=(1, 3))
        return "ok"

    def reward(self):
        return 0.0


def call(text, qty=None, ascii_only=False):
    arguments = {"text": text} if qty is None else {"text": text, "qty": qty}
    return f"<tool_call>{json.dumps({'name': 'note', 'arguments': arguments}, ensure_ascii=ascii_only)}</tool_call>"


def sampled(renderer, text, cuts):
    """Return ids that say the text in a way of cutting that the tokenizer itself would not choose."""
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [renderer.encode(text[a:b])[:-1] for a, b in pairwise(borders)]
    return [token for part in parts for token in part] + renderer.encode("")


def played(renderer, ids):
    record = RecordCredit(Desk(), renderer)
    record.reset(seed=1)
    record.step(Decision(ids, np.full(len(ids), -0.25)))
    trajectory = record.finish(StopReason.CANCELLED)
    [decision] = trajectory.decisions
    assert trajectory.token_ids[decision.start : decision.end].tolist() == list(ids)
    return trajectory, decision.start


def owners(renderer, ids, chars):
    """Return the tokens with any byte of the characters, by counting bytes."""
    text = renderer.text(ids)
    low = len(text[: chars[0]].encode())
    high = low + len(text[slice(*chars)].encode())
    ends = np.cumsum([len(part) for part in renderer.token_bytes(ids[:-1])])
    starts = np.concatenate(([0], ends[:-1]))
    return np.flatnonzero((starts < high) & (ends > low) & (ends > starts)).tolist()


def charged(trajectory, start):
    return [[*range(charge.start - start, charge.end - start)] for charge in trajectory.charges]


@SOME
@given(before=PROSE, value=VALUES, between=SEPARATORS, ascii_only=st.booleans(), cuts=CUTS)
def test_a_broken_call_between_good_ones_is_charged_to_its_own_tokens(
    renderer, before, value, between, ascii_only, cuts
):
    good, bad = call(value, ascii_only=ascii_only), "<tool_call>{note: 3}</tool_call>"
    text = before + good + between + bad + between + good
    ids = sampled(renderer, text, cuts)
    assume(renderer.text(ids) == text)
    trajectory, start = played(renderer, ids)
    at = len(before + good + between)
    assert [c.status for c in trajectory.calls] == [CallStatus.OK, CallStatus.INVALID_JSON, CallStatus.OK]
    assert charged(trajectory, start) == [owners(renderer, ids, (at, at + len(bad)))]
    assert trajectory.charges[0].call == 1


@SOME
@given(before=PROSE, value=VALUES, wrong=VALUES, between=SEPARATORS, ascii_only=st.booleans(), cuts=CUTS)
def test_a_bad_argument_is_charged_to_exactly_its_values_tokens(
    renderer, before, value, wrong, between, ascii_only, cuts
):
    good, bad = call(value, ascii_only=ascii_only), call(value, wrong + "x", ascii_only)
    text = before + good + between + bad + between + good
    ids = sampled(renderer, text, cuts)
    assume(renderer.text(ids) == text)
    trajectory, start = played(renderer, ids)
    shown = json.dumps(wrong + "x", ensure_ascii=ascii_only)
    at = len(before + good + between + bad) - len("}}</tool_call>") - len(shown)
    assert text[at:].startswith(shown)
    assert [c.status for c in trajectory.calls] == [CallStatus.OK, CallStatus.INVALID_ARGUMENTS, CallStatus.OK]
    assert charged(trajectory, start) == [owners(renderer, ids, (at, at + len(shown)))]
    middle = trajectory.calls[1]
    assert middle.argument_ranges["$.qty"] == (trajectory.charges[0].start, trajectory.charges[0].end)


@SOME
@given(value=st.text(alphabet=LETTERS, min_size=3, max_size=12), ascii_only=st.booleans(), cuts=CUTS)
def test_an_error_inside_a_strings_value_is_charged_to_its_raw_characters(renderer, value, ascii_only, cuts):
    text = call(value, 14, ascii_only)
    ids = sampled(renderer, text, cuts)
    assume(renderer.text(ids) == text)
    trajectory, start = played(renderer, ids)
    head = (
        text.index(json.dumps(value, ensure_ascii=ascii_only)) + len(json.dumps(value[:1], ensure_ascii=ascii_only)) - 1
    )
    length = len(json.dumps(value[1:3], ensure_ascii=ascii_only)) - 2
    assert charged(trajectory, start) == [owners(renderer, ids, (head, head + length))]


@SOME
@given(text=st.lists(PROSE | VALUES | st.just(call("x", 13)), max_size=6).map("".join), cuts=CUTS)
def test_whatever_was_said_charges_and_calls_stay_on_the_decisions_tokens(renderer, text, cuts):
    ids = sampled(renderer, text, cuts)
    trajectory, start = played(renderer, ids)
    mask = trajectory.credit_mask
    assert mask.sum() == len(ids)
    for charge in trajectory.charges:
        assert mask[charge.start : charge.end].all()
        assert charge.call is not None
        cause = trajectory.calls[charge.call]
        assert cause.start <= charge.start < charge.end <= cause.end
    for made in trajectory.calls:
        ranges = [(made.start, made.end), *made.argument_ranges.values()]
        assert all(start <= first <= last <= start + len(ids) for first, last in ranges)


@SOME
@given(ids=st.lists(st.integers(0, 400), max_size=40))
def test_any_ids_at_all_are_recorded_as_they_are(renderer, ids):
    trajectory, start = played(renderer, [*ids, 300]) if ids else (None, 0)
    if trajectory is not None:
        assert trajectory.token_ids[start : start + len(ids)].tolist() == ids


@SOME
@given(texts=st.lists(PROSE | VALUES.map(call), min_size=1, max_size=3), cuts=CUTS)
def test_each_turn_extends_exactly_what_the_turn_before_saw(renderer, texts, cuts):
    record = RecordCredit(Desk(), renderer)
    record.reset(seed=1)
    before = record.context.tolist()
    for text in texts:
        ids = sampled(renderer, text, cuts)
        observation, _, terminated, truncated, _ = record.step(ids)
        if terminated or truncated:
            break
        now = record.context.tolist()
        assert now == [*before, *ids, *observation.tolist()]
        before = now


def test_a_token_shared_by_two_calls_straddles_and_belongs_to_both(renderer):
    ids = renderer.encode(call("a") + call("b", 13))
    trajectory, start = played(renderer, ids)
    spans = renderer.token_spans(ids)
    border = len(call("a"))
    shared = [start + at for at, (first, last) in enumerate(spans) if first < border < last]
    assert list(trajectory.straddles) == shared
    first, second = trajectory.calls
    assert first.end - second.start == len(shared)


@pytest.mark.parametrize("qty", ["13", "[1]", "null", '"three"', "1.5"])
def test_a_wrong_value_is_charged_without_the_rest_of_its_call(renderer, qty):
    text = call("x", 77).replace("77", qty)
    ids = renderer.encode(text)
    trajectory, start = played(renderer, ids)
    at = text.index(qty, text.index("qty"))
    assert charged(trajectory, start) == [owners(renderer, ids, (at, at + len(qty)))]
