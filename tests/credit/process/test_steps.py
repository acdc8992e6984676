import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.credit import Call, CallStatus, Recorder, StopReason
from accredit.credit.errors import CreditError
from accredit.credit.process import cut_steps, mean_tokens_per_step, step_count, step_ends, steps_of


def written(*turns, calls=()):
    """A trajectory whose token i is the i-th piece of the given turns, with one feedback token after each turn."""
    pieces = [b"<task>"]
    recorder = Recorder()
    recorder.prompt([0])
    for turn in turns:
        recorder.decision(range(len(pieces), len(pieces) + len(turn)), [-1.0] * len(turn))
        pieces += turn
        recorder.feedback([len(pieces)])
        pieces.append(b"ok. fine.\n")
    for turn, start, end in calls:
        recorder.call(Call(turn, start, end, f"c{start}", "f", {}, CallStatus.OK, ""))
    trajectory = recorder.finish(1.0, StopReason.DONE)
    return trajectory, lambda ids: [pieces[i] for i in ids]


def test_a_turn_is_one_step_and_feedback_is_in_none():
    trajectory, _ = written([b"a", b"b"], [b"c"])
    assert cut_steps(trajectory, "turn").tolist() == [-1, 0, 0, -1, 1, -1]


def test_calls_are_steps_and_the_words_around_them_are_not():
    trajectory, _ = written([b"a", b"b", b"c", b"d"], [b"e"], calls=[(0, 2, 3), (0, 4, 5), (1, 6, 7)])
    assert cut_steps(trajectory, "call").tolist() == [-1, -1, 0, -1, 1, -1, 2, -1]


def test_a_token_shared_by_two_calls_belongs_to_the_first():
    trajectory, _ = written([b"a", b"b", b"c"], calls=[(0, 1, 3), (0, 2, 4)])
    assert cut_steps(trajectory, "call").tolist() == [-1, 0, 0, 1, -1]


def test_a_turn_in_which_nothing_was_sampled_takes_no_number():
    trajectory, _ = written([b"a"], [], [b"b"])
    assert cut_steps(trajectory, "turn").tolist() == [-1, 0, -1, -1, 1, -1]


def test_a_line_ends_with_its_newline_and_blank_lines_are_dropped_before_numbering():
    trajectory, texts = written([b"one", b" line\n", b"\n", b"  \n", b"two"])
    assert cut_steps(trajectory, "line", texts).tolist() == [-1, 0, 0, -1, -1, 1, -1]


def test_a_token_in_which_a_sentence_ends_belongs_to_that_sentence():
    trajectory, texts = written([b"It is 3", b".5. Then", b" stop", b"\xe3\x80", b"\x82", b" x"])
    steps = cut_steps(trajectory, "sentence", texts)
    assert steps.tolist() == [-1, 0, 0, 1, 1, 1, 2, -1]  # the ideographic full stop lies in two tokens


def test_a_sentence_never_crosses_a_span_border():
    trajectory, texts = written([b"no end"], [b"here", b" is one."])
    assert cut_steps(trajectory, "sentence", texts).tolist() == [-1, 0, -1, 1, 1, -1]


def test_a_short_step_joins_the_next_and_the_last_one_the_one_before():
    trajectory, texts = written([b"a\n", b"b\n", b"c\n", b"d\n", b"e\n"], [b"f\n"])
    steps = cut_steps(trajectory, "line", texts, least_tokens=2)
    assert steps.tolist() == [-1, 0, 0, 1, 1, 1, -1, 2, -1]


def test_splitting_into_short_lines_makes_no_more_steps():
    whole, whole_texts = written([b"a", b"b", b"c", b"d\n"])
    split, split_texts = written([b"a\n", b"b\n", b"c\n", b"d\n"])
    assert step_count(cut_steps(split, "line", split_texts)) == 4
    for trajectory, texts in ((whole, whole_texts), (split, split_texts)):
        assert step_count(cut_steps(trajectory, "line", texts, least_tokens=4)) == 1


@given(
    st.lists(st.lists(st.sampled_from([b"a", b".", b"\n", b" ", b"b. c", b"\n\n"]), max_size=8), max_size=4),
    st.sampled_from(["turn", "line", "sentence"]),
    st.integers(1, 4),
)
def test_steps_are_numbered_in_order_inside_decisions_and_keep_the_minimum(turns, grain, least):
    trajectory, texts = written(*turns)
    steps = cut_steps(trajectory, grain, texts, least)
    assert not (steps[~trajectory.credit_mask] >= 0).any()
    inside = steps[steps >= 0]
    assert (np.diff(inside) >= 0).all()
    assert set(inside.tolist()) == set(range(step_count(steps)))
    assert step_ends(steps).tolist() == [tokens[-1] for tokens in steps_of(steps)]
    for span in trajectory.decisions:
        within = steps[span.start : span.end]
        found = {step: int((steps == step).sum()) for step in set(within[within >= 0].tolist())}
        assert all(set(np.flatnonzero(steps == step)) <= set(range(span.start, span.end)) for step in found)
        assert len(found) <= 1 or min(found.values()) >= least


def test_mean_tokens_per_step_counts_tokens_in_steps_alone():
    one, _ = written([b"a", b"b", b"c"], [b"d"])
    assert mean_tokens_per_step([cut_steps(one, "turn")]) == 2.0
    assert mean_tokens_per_step([cut_steps(one, "call")]) is None


def test_what_cannot_be_cut_is_explained():
    trajectory, texts = written([b"a"])
    with pytest.raises(CreditError, match=r"steps='word': expected one of turn, call, line, sentence"):
        cut_steps(trajectory, "word")  # type: ignore[arg-type]
    with pytest.raises(CreditError, match="needs the text of tokens: pass token_bytes"):
        cut_steps(trajectory, "line")
    with pytest.raises(CreditError, match="least_tokens=0: expected a number of tokens of at least 1"):
        cut_steps(trajectory, "line", texts, 0)
