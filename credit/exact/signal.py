"""The signal-to-noise of a credit function's gradient on `ChainProcess`, where the exact gradient is known.

With g the gradient estimate of one group, the figure is |mean g|^2 / (sum of the variances of g): how much of one
group's gradient is direction. It does not depend on the scale of the advantages. |mean g|^2 is freed of the share that
the variance adds to it over finitely many groups. The cosine of mean g with the exact gradient tells bias: it tends to
1 for an unbiased function, from below, as groups are added.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit, CreditFunction
from accredit.credit.trajectory import Group

from .chain import ChainProcess

__all__ = ["Signal", "exact_function", "measure_signal"]


class Signal(NamedTuple):
    """Signal-to-noise of one group's gradient, and the cosine of the mean gradient with the exact one."""

    signal_to_noise: float
    cosine: float


def measure_signal(
    process: ChainProcess, functions: Mapping[str, CreditFunction], size: int, groups: int, rng: np.random.Generator
) -> dict[str, Signal]:
    """Price the same `groups` groups of `size` rollouts by every function; return its `Signal` by name."""
    gradients_NKA: dict[str, list[NDArray[np.float64]]] = {name: [] for name in functions}
    for _ in range(groups):
        group = process.sample_group(rng, size)
        for name, function in functions.items():
            gradients_NKA[name].append(process.group_gradient(group, function(group)))
    exact = process.policy_gradient().ravel()
    return {name: _signal(np.array(found).reshape(groups, -1), exact) for name, found in gradients_NKA.items()}


def exact_function(process: ChainProcess) -> CreditFunction:
    """Return the credit function that knows the exact V of `process`."""

    def price(group: Group, /) -> tuple[Credit, ...]:
        return tuple(process.exact_credit(trajectory) for trajectory in group.trajectories)

    return price


def _signal(gradients: NDArray[np.float64], exact: NDArray[np.float64]) -> Signal:
    mean, noise = gradients.mean(axis=0), float(gradients.var(axis=0, ddof=1).sum())
    signal = float(mean @ mean) - noise / len(gradients)
    cosine = float(mean @ exact) / float(np.linalg.norm(mean) * np.linalg.norm(exact))
    return Signal(signal / noise, cosine)
