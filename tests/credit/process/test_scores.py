import numpy as np
import pytest

from accredit.credit import Call, CallStatus, Recorder, Span, SpanKind, StopReason
from accredit.credit.errors import CreditError
from accredit.credit.process import RULES, Verifier, back_to_steps, cut_steps, smooth, standardise, token_rewards

NAN = np.nan


def called(*statuses, charged=()):
    """One turn a list of call statuses, one token a call."""
    recorder = Recorder()
    recorder.prompt([0])
    for turn, each in enumerate(statuses):
        start, _ = recorder.decision([1] * max(1, len(each)), [-1.0] * max(1, len(each)))
        for offset, status in enumerate(each):
            recorder.call(Call(turn, start + offset, start + offset + 1, "", "f", None, CallStatus(status), ""))
        recorder.feedback([2])
    for call in charged:
        recorder.charge(0, 0, 0.1, "bad", call)
    return recorder.finish(0.0, StopReason.DONE)


def test_a_score_stands_at_the_end_of_its_step_or_on_each_of_its_tokens():
    steps = np.array([-1, 0, 0, -1, 1, 2, 2])
    scores = np.array([0.5, NAN, -1.0])
    assert token_rewards(steps, scores, "end").tolist() == [0, 0, 0.5, 0, 0, 0, -1]
    assert token_rewards(steps, scores, "broadcast").tolist() == [0, 0.5, 0.5, 0, 0, -1, -1]
    with pytest.raises(CreditError, match="scores have shape \\(2,\\) but there are 3 steps"):
        token_rewards(steps, scores[:2])


def test_noisy_token_scores_go_back_to_the_mean_of_their_step():
    steps = np.array([-1, 0, 0, 1, 1, 2])
    found = back_to_steps(steps, np.array([9.0, 1.0, 2.0, NAN, 4.0, NAN]))
    np.testing.assert_array_equal(found, [1.5, 4.0, NAN])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("format", [0, -1, 0, 0, NAN, NAN]),
        ("validity", [0, NAN, -1, 0, NAN, NAN]),
        ("execution", [0, NAN, NAN, -1, NAN, NAN]),
    ],
)
def test_a_rule_judges_the_calls_it_can_judge_and_takes_for_its_own_faults(rule, expected):
    trajectory = called(["ok"], ["invalid_json"], ["invalid_arguments"], ["nonzero_exit"], ["infrastructure"], [])
    scores = RULES[rule](False)(trajectory, cut_steps(trajectory))
    np.testing.assert_array_equal(scores, expected)


def test_a_step_of_several_calls_pays_the_share_that_failed():
    trajectory = called(["ok", "timeout", "nonzero_exit", "ok", "infrastructure"])
    assert RULES["execution"](False)(trajectory, cut_steps(trajectory)).tolist() == [-0.5]


def test_a_charged_call_is_left_to_its_charge_unless_asked():
    trajectory = called(["nonzero_exit"], ["nonzero_exit"], charged=[0])
    steps = cut_steps(trajectory)
    np.testing.assert_array_equal(RULES["execution"](False)(trajectory, steps), [NAN, -1])
    np.testing.assert_array_equal(RULES["execution"](True)(trajectory, steps), [-1, -1])


def test_a_verifier_scores_turns_at_the_last_step_of_each():
    trajectory = called(["ok", "ok"], ["ok"], ["ok"])
    judge = Verifier(lambda _, turn: None if turn == 1 else turn + 0.5)
    np.testing.assert_array_equal(judge(trajectory, cut_steps(trajectory, "turn")), [0.5, NAN, 2.5])
    np.testing.assert_array_equal(judge(trajectory, cut_steps(trajectory, "call")), [NAN, 0.5, NAN, 2.5])


def test_what_has_no_score_enters_no_mean():
    scores = [np.array([1.0, 5.0]), np.array([3.0, NAN, 2.0]), np.array([])]
    by_position = standardise(scores, "position")
    np.testing.assert_allclose(by_position[0], [-1, 0])  # alone at position 1: equal to itself
    np.testing.assert_allclose(by_position[1], [1, NAN, 0])
    by_group = np.concatenate(standardise(scores, "group"))
    assert np.nanmean(by_group) == pytest.approx(0) and np.nanstd(by_group) == pytest.approx(1)
    assert [len(each) for each in standardise(scores, "none")] == [2, 3, 0]


@pytest.mark.parametrize("how", ["group", "position"])
def test_equal_scores_become_exactly_zero(how):
    assert not np.concatenate(standardise([np.full(3, 0.7) for _ in range(8)], how)).any()


def test_smoothing_stays_inside_a_span_and_cuts_the_window_before_it_averages():
    spans = [Span(0, 2, SpanKind.PROMPT, -1), Span(2, 6, SpanKind.DECISION, 0), Span(6, 8, SpanKind.FEEDBACK, 0)]
    values = np.array([9.0, 9, 3, 0, 0, 6, 9, 9])
    assert smooth(values, spans, 3).tolist() == [0, 0, 1.5, 1, 2, 3, 0, 0]
    assert smooth(np.arange(8.0), [Span(0, 3, SpanKind.DECISION, 0)], 9).tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    with pytest.raises(CreditError, match="window=4: expected an odd number"):
        smooth(values, spans, 4)


def test_scores_that_differ_by_rounding_are_equal():
    for how in ("group", "position"):
        assert [each.tolist() for each in standardise([np.array([0.1 + 0.2]), np.array([0.3])], how)] == [[0.0], [0.0]]
