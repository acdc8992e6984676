"""Ablations: one configuration trained with several credit functions, by the same seeds and the same budget.

Every run is an ordinary run directory, so an ablation that was stopped goes on where it stood and one that is repeated
reads what is there. The verdict has four criteria; a criterion that one seed cannot settle says so.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit.audit.probe import LEAST_RIGHT
from accredit.credit.functions import credit_function
from accredit.sandboxes.errors import AccreditError

from .config import TrainConfig
from .loop import Listener, train
from .run import RunDirectory, RunError

__all__ = ["Arm", "Criterion", "mean_interval", "options_of", "run_arms", "verdict"]

_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's two-sided 95 % quantile at 1 to 10 degrees of freedom (Student 1908); 1.96 at the limit."""


def _student(freedom: int) -> float:
    """Return the two-sided 95 % quantile; above 10 degrees by its expansion (Fisher and Cornish 1960), to 0.002."""
    if freedom <= len(_T_95):
        return _T_95[freedom - 1]
    return 1.960 + 2.372 / freedom + 2.823 / freedom**2


@dataclass(frozen=True, slots=True)
class Arm:
    """What the runs of one credit function left behind.

    Attributes:
        credit: the function's name.
        runs: the run directory of every seed.
        seeds: the S seeds whose runs came to their end.
        held_out: float64 [S, points], success on held-out tasks; NaN where all of them were unscored.
        steps: int64 [points], after how many steps.
        training: float64 [S, steps], mean reward of a step; NaN where all its episodes were unscored.
        failures: what ended a seed's run before its last step, by seed.

    """

    credit: str
    runs: tuple[Path, ...]
    seeds: tuple[int, ...]
    held_out: NDArray[np.float64]
    steps: NDArray[np.int64]
    training: NDArray[np.float64]
    failures: dict[int, str]


class Criterion(NamedTuple):
    """One line of the verdict: its name, whether it holds (None: it cannot be told), and the figures that say so."""

    name: str
    holds: bool | None
    evidence: str


def run_arms(
    config: TrainConfig,
    functions: Sequence[str],
    seeds: int,
    listening: Callable[[], AbstractContextManager[Listener]],
) -> list[Arm]:
    """Train `config` with every function by `seeds` seeds, from its own upward; return one arm a function.

    Runs lie in `runs_dir/NAME-ablation/FUNCTION-seedK`. Options of the credit function are those of `options_of`.

    Raises:
        CreditError: a function is not known or cannot be made; nothing was trained.
        RunError: a run stands there that was started with another configuration; nothing was trained.

    """
    every = range(config.seed, config.seed + seeds)
    for function in functions:
        credit_function(function, charge_scale=config.credit.charge_scale, **options_of(config, function))
    planned = {function: [_planned(config, function, seed) for seed in every] for function in functions}
    for run, ours in (each for arm in planned.values() for each in arm):
        _check_same(run, ours)
    arms = []
    for function, runs in planned.items():
        failures: dict[int, str] = {}
        for run, ours in runs:
            try:
                if not _finished(run, config.steps):
                    with listening() as listener:
                        train(ours, listener, resume=run.config.exists())
            except AccreditError as error:  # a run that fails is a finding
                failures[ours.seed] = f"{type(error).__name__}: {error}"
        arms.append(_read(function, [run for run, _ in runs], every, config.steps, failures))
    return arms


def options_of(config: TrainConfig, function: str) -> dict[str, Any]:
    """Return the options of `function` in an ablation: the configuration's if it names that function, else none."""
    return config.credit.options if function == config.credit.function else {}


def _planned(config: TrainConfig, function: str, seed: int) -> tuple[RunDirectory, TrainConfig]:
    credit = config.credit.model_copy(update={"function": function, "options": options_of(config, function)})
    folder = Path(config.runs_dir) / f"{config.name}-ablation"
    place = {"runs_dir": str(folder), "name": f"{function.replace(':', '.')}-seed{seed}"}
    ours = config.model_copy(update={"credit": credit, "seed": seed, **place})
    return RunDirectory(folder / ours.name), ours


def _check_same(run: RunDirectory, config: TrainConfig) -> None:
    """Raise if another ablation left `run` behind, finished or not: its figures would be read as this one's."""
    if run.config.exists() and (changed := run.differences(config)):
        raise RunError(
            f"{run.path} was started with another configuration (differs in: {', '.join(changed)}): give this ablation "
            "another name (name=...), or move that folder away"
        )


def verdict(arm: Arm, baseline: Arm, probe: float | None) -> tuple[Criterion, ...]:
    """Judge an arm by four criteria.

    Args:
        arm: the function that is judged.
        baseline: what it is held against; may be the arm itself.
        probe: share of exact counterfactual probes in which its credit moved in the right direction; None when there
            is none for it.

    """
    return (_rises(arm), _not_below(arm, baseline), _probed(probe), _does_not_diverge(arm))


def mean_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return the mean over seeds and its 95 % interval by Student's t; infinite with one seed."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return mean, -math.inf, math.inf
    half = _student(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return mean, mean - half, mean + half


def _rises(arm: Arm) -> Criterion:
    name = "training reward rises"
    if not arm.training.size:
        return Criterion(name, False, "no seed made a step")
    part = max(1, arm.training.shape[1] // 5)
    gain = np.array([_known_mean(row[-part:]) - _known_mean(row[:part]) for row in arm.training])
    gain = gain[~np.isnan(gain)]
    if not len(gain):
        return Criterion(name, None, "no seed has scored steps at both ends")
    mean, low, high = mean_interval(gain)
    if len(gain) < 2:
        return Criterion(name, mean > 0, f"last fifth minus first fifth {mean:+.3f}, one seed")
    return Criterion(name, low > 0, f"last fifth minus first fifth {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


def _known_mean(rewards: NDArray[np.float64]) -> float:
    known = rewards[~np.isnan(rewards)]
    return float(known.mean()) if len(known) else math.nan


def _not_below(arm: Arm, baseline: Arm) -> Criterion:
    name = f"held out not below {baseline.credit}"
    if arm.credit == baseline.credit:
        return Criterion(name, True, "is the baseline")
    if not arm.seeds:
        return Criterion(name, False, "no seed came to its end")
    ours, theirs = (dict(zip(one.seeds, one.held_out[:, -1:].ravel(), strict=True)) for one in (arm, baseline))
    apart_S = np.array([ours[seed] - theirs[seed] for seed in ours if seed in theirs])
    apart_S = apart_S[~np.isnan(apart_S)]
    if not len(apart_S):
        return Criterion(name, None, "no seed came to a scored end with both")
    mean, low, high = mean_interval(apart_S)
    if len(apart_S) < 2:
        return Criterion(name, None, f"difference {mean:+.3f}, one seed cannot tell")
    return Criterion(name, high >= 0, f"difference at the end {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


def _probed(probe: float | None) -> Criterion:
    name = "counterfactual probe in the right direction"
    if probe is None:
        return Criterion(name, None, "not an advantage that a probe can move")
    return Criterion(
        name, probe >= LEAST_RIGHT, f"{100 * probe:.1f} % of exact cases, at least {100 * LEAST_RIGHT:g} %"
    )


def _does_not_diverge(arm: Arm) -> Criterion:
    name = "no divergence"
    if arm.failures:
        seed, why = next(iter(arm.failures.items()))
        return Criterion(name, False, f"{len(arm.failures)} of {len(arm.runs)} runs failed; seed {seed}: {why}")
    gained_S = arm.held_out[:, -1] - arm.held_out[:, 0]
    if lost := int(np.isnan(gained_S).sum()):
        return Criterion(name, False, f"all held-out episodes unscored at the start or end of {lost} runs")
    mean, _, high = mean_interval(gained_S)
    fell = high < 0 if len(gained_S) > 1 else mean < -0.1
    return Criterion(name, not fell, f"every run finite to its end; held out {mean:+.3f} from start to end")


def _finished(run: RunDirectory, steps: int) -> bool:
    return any(line["step"] == steps and "eval/success" in line for line in run.history())


def _read(
    function: str, runs: Sequence[RunDirectory], seeds: Sequence[int], steps: int, failures: dict[int, str]
) -> Arm:
    whole = [run.history() for seed, run in zip(seeds, runs, strict=True) if seed not in failures]
    held_out = [_by_step(history, "eval/success") for history in whole]
    training = [_by_step(history, "rollout/reward") for history in whole]
    points = sorted(set.intersection(*map(set, held_out))) if held_out else []
    return Arm(
        function,
        tuple(run.path for run in runs),
        tuple(seed for seed in seeds if seed not in failures),
        np.array([[one[step] for step in points] for one in held_out], dtype=np.float64).reshape(
            len(whole), len(points)
        ),
        np.array(points, dtype=np.int64),
        np.array(
            [[one.get(step, math.nan) for step in range(1, steps + 1)] for one in training], dtype=np.float64
        ).reshape(len(whole), steps),
        failures,
    )


def _by_step(history: Sequence[Mapping[str, Any]], name: str) -> dict[int, float]:
    """Return the metric `name` by step; null is NaN."""
    return {line["step"]: math.nan if line[name] is None else line[name] for line in history if name in line}
