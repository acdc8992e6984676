"""Ablations: one configuration trained with several credit functions, by the same seeds and the same budget.

Every run is an ordinary run directory, so an ablation that was stopped goes on where it stood and one that is repeated
reads what is there. The verdict has four criteria; a criterion that one seed cannot settle says so.
"""

import math
from collections.abc import Callable, Sequence
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

__all__ = ["Arm", "Criterion", "mean_interval", "run_arms", "verdict"]

_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's two-sided 95 % quantile at 1 to 10 degrees of freedom (Student 1908); 1.96 at the limit."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What the runs of one credit function left behind.

    Attributes:
        credit: the function's name.
        runs: the run directory of every seed.
        seeds: the S seeds whose runs came to their end.
        held_out: float64 [S, points], success on held-out tasks.
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

    Runs lie in `runs_dir/NAME-ablation/FUNCTION-seedK`. Options of the credit function are kept for the function that
    the configuration names; the others run with their defaults.

    Raises:
        CreditError: a function is not known or cannot be made; nothing was trained.
        RunError: a run stands there that was started with another configuration.

    """
    own = config.credit
    options = {function: own.options if function == own.function else {} for function in functions}
    for function in functions:
        credit_function(function, charge_scale=own.charge_scale, **options[function])
    arms = []
    for function in functions:
        credit = own.model_copy(update={"function": function, "options": options[function]})
        runs: list[RunDirectory] = []
        failures: dict[int, str] = {}
        for seed in range(config.seed, config.seed + seeds):
            ours = config.model_copy(
                update={
                    "credit": credit,
                    "seed": seed,
                    "runs_dir": str(Path(config.runs_dir) / f"{config.name}-ablation"),
                    "name": f"{function.replace(':', '.')}-seed{seed}",
                }
            )
            run = RunDirectory(Path(ours.runs_dir) / ours.name)
            runs.append(run)
            try:
                if not _finished(run, config.steps):
                    with listening() as listener:
                        train(ours, listener, resume=run.config.exists())
            except RunError:
                raise
            except AccreditError as error:  # a run that fails is a finding
                failures[seed] = f"{type(error).__name__}: {error}"
        arms.append(_read(function, runs, range(config.seed, config.seed + seeds), failures))
    return arms


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
    quantile = _T_95[count - 2] if count - 2 < len(_T_95) else 1.96 + 2.4 / (count - 1)
    half = quantile * float(values.std(ddof=1)) / math.sqrt(count)
    return mean, mean - half, mean + half


def _rises(arm: Arm) -> Criterion:
    name = "training reward rises"
    if not arm.training.shape[1]:
        return Criterion(name, False, "no seed made a step")
    part = max(1, arm.training.shape[1] // 5)
    gain = np.nanmean(arm.training[:, -part:], axis=1) - np.nanmean(arm.training[:, :part], axis=1)
    mean, low, high = mean_interval(gain)
    if len(gain) < 2:
        return Criterion(name, mean > 0, f"last fifth minus first fifth {mean:+.3f}, one seed")
    return Criterion(name, low > 0, f"last fifth minus first fifth {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


def _not_below(arm: Arm, baseline: Arm) -> Criterion:
    name = f"held out not below {baseline.credit}"
    if arm.credit == baseline.credit:
        return Criterion(name, True, "is the baseline")
    both = [seed for seed in arm.seeds if seed in baseline.seeds]
    if not both:
        return Criterion(name, False, "no seed came to its end with both")
    ours_S, theirs_S = (one.held_out[[one.seeds.index(seed) for seed in both], -1] for one in (arm, baseline))
    mean, low, high = mean_interval(ours_S - theirs_S)
    if len(both) < 2:
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
    mean, _, high = mean_interval(gained_S)
    fell = high < 0 if len(gained_S) > 1 else mean < -0.1
    return Criterion(name, not fell, f"every run finite to its end; held out {mean:+.3f} from start to end")


def _finished(run: RunDirectory, steps: int) -> bool:
    return any(line["step"] == steps and "eval/success" in line for line in run.history())


def _read(function: str, runs: Sequence[RunDirectory], seeds: Sequence[int], failures: dict[int, str]) -> Arm:
    whole = [_curves(run.history()) for seed, run in zip(seeds, runs, strict=True) if seed not in failures]
    held_out = np.array([[point for _, point in evaluated] for evaluated, _ in whole])
    return Arm(
        function,
        tuple(run.path for run in runs),
        tuple(seed for seed in seeds if seed not in failures),
        held_out.reshape(len(whole), -1),
        np.array([step for step, _ in whole[0][0]] if whole else [], dtype=np.int64),
        np.array([rewards for _, rewards in whole], dtype=np.float64).reshape(len(whole), -1),
        failures,
    )


def _curves(history: list[dict[str, Any]]) -> tuple[list[tuple[int, float]], list[float]]:
    ordered = sorted(history, key=lambda line: line["step"])
    held_out = [(line["step"], line["eval/success"]) for line in ordered if line.get("eval/success") is not None]
    rewards = [line["rollout/reward"] for line in ordered if "rollout/reward" in line]
    return held_out, [math.nan if reward is None else reward for reward in rewards]
