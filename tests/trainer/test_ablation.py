"""The verdict of an ablation, on curves whose answer is known."""

import math

import numpy as np
import pytest

from accredit.trainer.ablation import Arm, mean_interval, verdict

STEPS = np.array([0, 5, 10])


def arm(credit, held_out, training, failures=None, seeds=None):
    held_out = np.array(held_out, dtype=float).reshape(-1, 3)
    seeds = tuple(range(len(held_out))) if seeds is None else seeds
    return Arm(credit, (), seeds, held_out, STEPS, np.array(training, dtype=float), failures or {})


RISING = np.linspace(0.2, 0.8, 10) + np.array([[0.0], [0.02], [-0.01]])
LEARNS = arm("anchored", [[0.2, 0.5, 0.8], [0.2, 0.6, 0.82], [0.3, 0.5, 0.78]], RISING)
BASELINE = arm("grpo", [[0.2, 0.4, 0.6], [0.2, 0.5, 0.63], [0.3, 0.4, 0.6]], RISING)


def test_a_healthy_arm_holds_all_four_criteria():
    assert [one.holds for one in verdict(LEARNS, BASELINE, 1.0)] == [True] * 4


def test_a_reward_that_only_wanders_does_not_rise():
    flat = arm("grpo", BASELINE.held_out, np.random.default_rng(0).normal(0.5, 0.1, (3, 10)))
    assert verdict(flat, flat, 1.0)[0].holds is False


def test_an_arm_below_the_baseline_on_every_seed_is_told_and_the_baseline_itself_is_not():
    found = verdict(BASELINE, LEARNS, 1.0)[1]
    assert found.holds is False
    assert "-0.190" in found.evidence
    assert verdict(LEARNS, LEARNS, 1.0)[1].holds is True


def test_only_seeds_that_ended_with_both_are_compared():
    one = arm("anchored", [[0.2, 0.5, 0.9], [0.2, 0.5, 0.1]], RISING[:2], {1: "UpdateError: ..."}, seeds=(0, 2))
    other = arm("grpo", [[0.2, 0.5, 0.8], [0.2, 0.5, 0.0]], RISING[:2], {0: "UpdateError: ..."}, seeds=(1, 2))
    found = verdict(one, other, 1.0)[1]
    assert found.holds is None
    assert "+0.100" in found.evidence


@pytest.mark.parametrize(("share", "holds"), [(0.94, False), (0.95, True), (None, None)])
def test_the_probe_needs_95_percent_of_its_cases(share, holds):
    assert verdict(LEARNS, BASELINE, share)[2].holds is holds


def test_a_run_that_failed_or_fell_below_its_start_has_diverged():
    failed = arm("grpo", BASELINE.held_out[:2], RISING[:2], {2: "UpdateError: the gradient norm is nan"})
    fallen = arm("grpo", [[0.6, 0.4, 0.2], [0.6, 0.5, 0.25], [0.65, 0.3, 0.2]], RISING)
    assert verdict(failed, failed, 1.0)[3].holds is False
    assert "gradient norm" in verdict(failed, failed, 1.0)[3].evidence
    assert verdict(fallen, fallen, 1.0)[3].holds is False


def test_an_arm_without_a_single_finished_run_is_judged_and_not_an_error():
    lost = arm("grpo", [], np.zeros((0, 0)), {0: "UpdateError: ..."})
    assert [one.holds for one in verdict(lost, LEARNS, 1.0)] == [False, False, True, False]


def test_the_interval_is_students():
    mean, low, high = mean_interval(np.array([1.0, 2.0, 3.0]))
    assert mean == 2.0
    assert (high - low) / 2 == pytest.approx(4.303 / math.sqrt(3))
    assert mean_interval(np.array([1.0]))[1:] == (-math.inf, math.inf)
    wide = mean_interval(np.random.default_rng(0).normal(size=13))
    values = np.random.default_rng(0).normal(size=13)
    assert (wide[2] - wide[0]) == pytest.approx(2.179 * values.std(ddof=1) / math.sqrt(13), rel=0.02)
