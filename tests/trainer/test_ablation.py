"""The verdict of an ablation, on curves whose answer is known."""

import json
import math

import numpy as np
import pytest

from accredit.trainer.ablation import Arm, _read, mean_interval, verdict
from accredit.trainer.run import RunDirectory

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
    assert (wide[2] - wide[0]) == pytest.approx(2.1788 * values.std(ddof=1) / math.sqrt(13), rel=0.001)


def test_an_arm_is_not_blamed_for_a_baseline_that_never_ended():
    lost = arm("grpo", [], np.zeros((0, 0)), {0: "UpdateError: ..."})
    assert verdict(LEARNS, lost, 1.0)[1].holds is None


def test_held_out_episodes_that_were_all_unscored_are_no_figure_and_no_success(tmp_path):
    runs = []
    for seed, last in ((0, 0.7), (1, None), (2, 0.8)):
        lines = [{"step": 0, "eval/success": 0.5}, {"step": 1, "rollout/reward": 0.1}]
        lines += [{"step": 2, "rollout/reward": 0.2}] if seed else []  # lost in a crash
        lines.append({"step": 2, "eval/success": last})
        run = RunDirectory(tmp_path / str(seed))
        run.path.mkdir()
        run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
        runs.append(run)
    found = _read("grpo", runs, range(3), 2, {})
    assert found.steps.tolist() == [0, 2]
    assert np.array_equal(found.held_out, [[0.5, 0.7], [0.5, math.nan], [0.5, 0.8]], equal_nan=True)
    assert np.array_equal(found.training, [[0.1, math.nan], [0.1, 0.2], [0.1, 0.2]], equal_nan=True)
    divergence = verdict(found, found, 1.0)[3]
    assert divergence.holds is False and "1 runs" in divergence.evidence
    better = arm("anchored", [[0.5, 0.6, 0.9]] * 3, RISING)
    assert "+0.150" in verdict(better, found, 1.0)[1].evidence  # over the two seeds that were scored
