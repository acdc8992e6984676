"""The baseline of least variance: what it takes off, where it keeps out, and what it does to signal-to-noise."""

from dataclasses import replace

import numpy as np
import pytest

from accredit.credit import Group, Recorder, StopReason, Trajectory
from accredit.credit.exact import ChainProcess, measure_signal
from accredit.credit.functions import credit_function
from accredit.credit.functions.baseline import SHRINKAGE, Interval, shifts

ANCHORED = credit_function("anchored")
OPTIMAL = credit_function("anchored", baseline="optimal")


def one_turn(token: int, probability: float, reward: float, after: str = "end") -> Trajectory:
    recorder = Recorder("Env", "task", f"e{token}", state_key="start")
    recorder.prompt([0])
    recorder.decision([token], [np.log(probability)])
    recorder.feedback([9])
    recorder.state_key(after)
    return recorder.finish(reward, StopReason.DONE)


def advantages(function: object, rollouts: list[Trajectory]) -> list[float]:
    priced = function(Group(tuple(rollouts)))  # type: ignore[operator]
    return [float(credit.advantage.total[1]) for credit in priced]


def test_a_frequent_right_choice_is_paid_and_a_rare_wrong_one_is_nearly_spared() -> None:
    rollouts = [one_turn(1, 0.9, 1.0, f"a{i}") for i in range(3)] + [one_turn(2, 0.1, 0.0, "b")]
    assert advantages(ANCHORED, rollouts) == pytest.approx([1 / 3, 1 / 3, 1 / 3, -1.0])
    weights = np.array([0.01, 0.01, 0.01, 0.81])
    gained = np.array([1 / 3, 1 / 3, 1 / 3, -1.0])
    taken_off = float(weights @ gained) / (weights.sum() + SHRINKAGE * weights.mean())
    found = advantages(OPTIMAL, rollouts)
    assert found == pytest.approx((gained - taken_off).tolist())
    assert found[0] > 1.0 and abs(found[3]) < 0.2


def test_equal_scores_leave_the_advantage_as_it_was() -> None:
    rollouts = [
        one_turn(1, 0.5, 1.0, "a"),
        one_turn(1, 0.5, 1.0, "b"),
        one_turn(2, 0.5, 0.0, "c"),
        one_turn(2, 0.5, 0.0),
    ]
    assert advantages(OPTIMAL, rollouts) == pytest.approx(advantages(ANCHORED, rollouts))


def test_different_choices_with_one_outcome_decided_nothing() -> None:
    def two_turns(first: int, second: int, reward: float) -> Trajectory:
        recorder = Recorder("Env", "task", f"{first}{second}{reward}", state_key="start")
        recorder.prompt([0])
        recorder.decision([first], [np.log(0.7)])
        recorder.feedback([9])
        recorder.state_key("middle")
        recorder.decision([second], [np.log(0.9 if reward else 0.1)])
        recorder.feedback([9])
        recorder.state_key(f"{second}")
        return recorder.finish(reward, StopReason.DONE)

    group = Group((two_turns(1, 3, 1.0), two_turns(2, 3, 1.0), two_turns(1, 4, 0.0), two_turns(2, 4, 0.0)))
    for credit in OPTIMAL(group):
        assert credit.advantage.total[1] == 0.0
        assert credit.advantage.total[3] != 0.0


def test_the_credit_is_untouched_and_units_of_the_reward_do_not_matter() -> None:
    group = ChainProcess(6, 3, 0.7, 0.05).sample_group(np.random.default_rng(3), 8)
    moved = Group(tuple(replace(t, outcome=5.0 + 10.0 * float(t.outcome or 0.0)) for t in group.trajectories))
    for plain, ours, scaled in zip(ANCHORED(group), OPTIMAL(group), OPTIMAL(moved), strict=True):
        np.testing.assert_array_equal(plain.credit.total, ours.credit.total)
        np.testing.assert_allclose(scaled.advantage.total, 10.0 * ours.advantage.total, atol=1e-9)
        assert not ours.advantage.total[~np.isfinite(group.trajectories[0].logprobs)].any()


def test_nothing_is_fitted_where_every_place_is_decided_already() -> None:
    assert shifts(
        [Interval("a", b"1", False, 0.5, 0.0, 0.1), Interval("a", b"2", False, 0.5, 0.0, 0.1)], 0.5, 0.5
    ).tolist() == [0, 0]


@pytest.mark.parametrize(("p", "least"), [(0.8, 2.0), (0.9, 5.0)])
def test_signal_to_noise_where_every_decision_must_be_right(p: float, least: float) -> None:
    functions = {"grpo": credit_function("grpo"), "value": ANCHORED, "optimal": OPTIMAL}
    found = measure_signal(ChainProcess(6, 6, p, 0.0), functions, 8, 150, np.random.default_rng(0))
    assert found["optimal"].signal_to_noise > least * found["grpo"].signal_to_noise
    assert found["optimal"].signal_to_noise > least * found["value"].signal_to_noise
    assert found["optimal"].cosine > 0.98
