import dataclasses

import numpy as np
import pytest

from accredit.credit import Call, CallStatus, Recorder, SpanError, StopReason


def call(start, end):
    return Call(0, start, end, "c1", "price", {}, CallStatus.INVALID_ARGUMENTS, "no such item")


def begun():
    recorder = Recorder()
    recorder.prompt([1, 2])
    recorder.decision([3, 4, 5], [-0.1, -0.2, -0.3])
    recorder.feedback([6, 7])
    return recorder


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.prompt([1]),
        lambda r: r.decision([1], [-1.0]),
        lambda r: r.feedback([1]),
        lambda r: r.scaffold([1]),
        lambda r: r.call(call(2, 4)),
        lambda r: r.charge(2, 3, 0.1, "x"),
        lambda r: r.reward(1.0),
        lambda r: r.state_key("s"),
        lambda r: r.segment("x"),
        lambda r: r.finish(1.0, StopReason.DONE),
    ],
)
def test_a_finished_recorder_refuses_every_change(change):
    recorder = begun()
    recorder.finish(1.0, StopReason.DONE)
    with pytest.raises(SpanError, match="finished"):
        change(recorder)


def test_a_trajectory_cannot_be_written_to():
    trajectory = begun().finish(1.0, StopReason.DONE)
    for column in (trajectory.token_ids, trajectory.logprobs, trajectory.turn_rewards):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        trajectory.__setattr__("outcome", 2.0)


def test_sampled_ids_come_back_as_given():
    trajectory = begun().finish(1.0, StopReason.DONE)
    assert trajectory.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert np.isnan(trajectory.logprobs).tolist() == [True, True, False, False, False, True, True]


def test_a_charge_on_feedback_lands_on_the_call_that_caused_it():
    recorder = begun()
    index = recorder.call(call(3, 5))
    recorder.charge(5, 7, 0.1, "invalid_arguments", index)
    (charge,) = recorder.finish(1.0, StopReason.DONE).charges
    assert (charge.start, charge.end, charge.call) == (3, 5, 0)


def test_a_charge_that_reaches_past_the_decision_is_cut_to_it():
    recorder = begun()
    recorder.charge(4, 7, 0.1, "invalid_json")
    (charge,) = recorder.finish(1.0, StopReason.DONE).charges
    assert (charge.start, charge.end) == (4, 5)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: r.charge(5, 7, 0.1, "x"), "touches no decision token"),
        (lambda r: r.charge(2, 3, 0.0, "x"), "above 0"),
        (lambda r: r.charge(2, 3, 0.1, "x", 3), "names call 3, but 0 calls"),
        (lambda r: r.decision([1, 2], [-1.0]), "2 sampled ids but 1 log-probabilities in turn 1"),
        (lambda r: r.decision([1], [float("nan")]), "not a finite number"),
        (lambda r: r.decision([1.5], [-1.0]), "must be integers"),
        (lambda r: r.feedback([-1]), r"must lie in \[0, 2\^31\)"),
        (lambda r: r.feedback([2**31]), r"must lie in \[0, 2\^31\)"),
        (lambda r: r.reward(float("nan")), "reward of turn 0 is nan"),
        (lambda r: r.finish(float("nan"), StopReason.DONE), "None for an unscored"),
    ],
)
def test_what_breaks_an_invariant_is_refused_and_leaves_the_recording_as_it_was(spoil, message):
    recorder = begun()
    with pytest.raises(SpanError, match=message):
        spoil(recorder)
    trajectory = recorder.finish(1.0, StopReason.DONE)
    assert (len(trajectory), trajectory.turns, trajectory.charges, trajectory.reward) == (7, 1, (), 1.0)


def test_a_reward_before_any_turn_is_refused():
    with pytest.raises(SpanError, match="needs a turn"):
        Recorder().reward(1.0)


def test_unscored_is_not_zero():
    assert begun().finish(None, StopReason.INFRASTRUCTURE).reward is None
    assert begun().finish(0.0, StopReason.DONE).reward == 0.0


def test_a_turn_in_which_nothing_was_sampled_is_a_turn():
    recorder = begun()
    recorder.decision([], [])
    recorder.feedback([8])
    trajectory = recorder.finish(1.0, StopReason.DONE)
    assert (trajectory.turns, len(trajectory.decisions)) == (2, 1)
    assert trajectory.spans[-1].turn == 1
