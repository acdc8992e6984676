"""The signal-to-noise of a credit function's gradient on a process whose exact gradient is known.

With g the gradient estimate of one group, the figure is |mean g|^2 / (sum of the variances of g): how much of one
group's gradient is direction. It does not depend on the scale of the advantages. |mean g|^2 is freed of the share that
the variance adds to it over finitely many groups, so that a gradient without direction scores about 0, and may fall
below. The cosine of mean g with the exact gradient tells bias: it tends to 1 for an unbiased function, from below, as
groups are added.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import CreditFunction

from .doob import exact_function
from .process import ExactProcess

__all__ = ["Signal", "exact_function", "measure_signal"]

Floats = NDArray[np.float64]


class Signal(NamedTuple):
    """Signal-to-noise of one group's gradient, and the cosine of the mean gradient with the exact one."""

    signal_to_noise: float
    cosine: float


def measure_signal(
    process: ExactProcess, functions: Mapping[str, CreditFunction], size: int, groups: int, rng: np.random.Generator
) -> dict[str, Signal]:
    """Price the same `groups` groups of `size` rollouts by every function; return its `Signal` by name.

    The gradient of a group is the mean over its members of sum_t advantage_t grad log pi(x_t).
    """
    gradients: dict[str, list[Floats]] = {name: [] for name in functions}
    for _ in range(groups):
        group = process.sample_group(rng, size)
        scores = [process.score(trajectory) for trajectory in group.trajectories]
        for name, function in functions.items():
            credits = function(group)
            parts = [credit.advantage.total @ score_TP for credit, score_TP in zip(credits, scores, strict=True)]
            gradients[name].append(np.sum(parts, axis=0) / len(group))
    exact_P = process.policy_gradient().ravel()
    return {name: _signal(np.array(found), exact_P) for name, found in gradients.items()}


def _signal(gradients_NP: Floats, exact_P: Floats) -> Signal:
    mean_P, noise = gradients_NP.mean(axis=0), float(gradients_NP.var(axis=0, ddof=1).sum())
    signal = float(mean_P @ mean_P) - noise / len(gradients_NP)
    length = float(np.linalg.norm(mean_P) * np.linalg.norm(exact_P))
    return Signal(signal / noise if noise else 0.0, float(mean_P @ exact_P) / length if length else 0.0)
