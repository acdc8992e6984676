"""Held-out evaluation: success with a 95 % interval.

An episode succeeds when its reward reaches 1. Unscored episodes are counted apart and enter no mean.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from accredit.credit import Trajectory

__all__ = ["Evaluation", "evaluation_line", "evaluation_of", "summarise", "wilson"]


class Evaluation(NamedTuple):
    """What a set of held-out episodes says. Intervals are 95 %."""

    episodes: int
    unscored: int
    success: float
    success_low: float
    success_high: float
    reward: float
    turns: float
    charges: float
    """Mean charges an episode."""

    def line(self) -> str:
        """Return one line for people."""
        share = self.success, self.success_low, self.success_high
        return evaluation_line(share, self.episodes, self.unscored, self.turns, self.charges)


def evaluation_line(share: Sequence[float], tasks: int, unscored: int, turns: float, charges: float) -> str:
    """Return the line for people; `share` begins with success and its interval."""
    told = f", {unscored} unscored" if unscored else ""
    return (
        f"success {share[0]:.3f} [{share[1]:.3f}, {share[2]:.3f}] on {tasks} tasks"
        f"{told}, {turns:.1f} turns, {charges:.2f} charges an episode"
    )


def evaluation_of(line: Mapping[str, Any]) -> Evaluation:
    """Return the evaluation that a line of `metrics.jsonl` tells of."""
    found: list[Any] = [line[f"eval/{name}"] for name in Evaluation._fields]
    return Evaluation._make(float("nan") if value is None else value for value in found)


def wilson(successes: float, trials: float, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion (Wilson 1927); (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    p = successes / trials
    centre = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def summarise(trajectories: Sequence[Trajectory]) -> Evaluation:
    """Summarise held-out episodes."""
    rewards = [t.reward for t in trajectories if t.reward is not None]
    successes = sum(reward >= 1 - 1e-9 for reward in rewards)
    return Evaluation(
        len(trajectories),
        len(trajectories) - len(rewards),
        successes / len(rewards) if rewards else float("nan"),
        *wilson(successes, len(rewards)),
        float(np.mean(rewards)) if rewards else float("nan"),
        float(np.mean([t.turns for t in trajectories])) if trajectories else float("nan"),
        float(np.mean([len(t.charges) for t in trajectories])) if trajectories else float("nan"),
    )
