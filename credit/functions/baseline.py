"""The baseline that lowers the variance of the policy gradient most, fitted to a group's own intervals.

V(a) is the right zero of *credit*: what a decision made of the state it found. It is not the best baseline of the
*gradient*. Of all b(a), (Q - b(a)) grad log pi has the least variance with b* = E[w Q] / E[w], w = |grad log pi|^2
(Greensmith, Bartlett and Baxter 2004, JMLR 5, theorem 8; Weaver and Tao 2001). A decision that the policy makes nine
times in ten has a large score only where it is *not* made, so b* is near what the rare choice is worth: the frequent
choice is then paid and the rare one gets nearly 0, instead of a frequent 0.1 and a rare, loud -0.9.

Per interval n, with x the value of the state it starts from and d its advantage over V, the least squares fit of
d = alpha + beta x, weighted by w and shrunk towards 0 by half an interval of mean weight, is subtracted from d. Where
all score alike it leaves d as it was. w is the sum of (1 - pi)^2 over the decision tokens of the interval, from the
behaviour policy's log-probabilities alone; for two choices that is |grad log pi|^2 / 2 in the logits.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "score_weights", "shifts"]

Floats = NDArray[np.float64]

SHRINKAGE = 0.5
LEAST_WEIGHT = 1e-9


class Interval(NamedTuple):
    """One skill interval of one rollout.

    Attributes:
        place: the anchor it starts from, the same for all rollouts that left it.
        chosen: its decision tokens.
        moved: whether V moved over it.
        value: the value of that anchor, this rollout's share in it included: left out, it would give the rollout away.
        gained: its advantage over what that anchor is worth to the other rollouts.
        weight: the sum of (1 - pi)^2 over its decision tokens.

    """

    place: Hashable
    chosen: bytes
    moved: bool
    value: float
    gained: float
    weight: float


def score_weights(logprobs_T: NDArray[np.float32]) -> Floats:
    """float64 [T], (1 - pi)^2 of every decision token; 0 on the others, whose log-probability is NaN."""
    weight_T: Floats = np.square(1 - np.exp(np.nan_to_num(logprobs_T.astype(np.float64), nan=0.0)))
    return weight_T


def shifts(intervals: Sequence[Interval], mean: float, spread: float) -> Floats:
    """float64 [N], what is to be subtracted from the advantage of every interval of a group.

    A place from which different decisions led to the same value decided nothing: 0 there, and no say in the fit.

    Args:
        intervals: all skill intervals of the group.
        mean: V_0, and
        spread: the standard deviation of R in the group, above 0; they make the fit free of the reward's scale.

    """
    choices: dict[Hashable, set[bytes]] = {}
    moved = {interval.place for interval in intervals if interval.moved}
    for interval in intervals:
        choices.setdefault(interval.place, set()).add(interval.chosen)
    open_N = np.array([one.place in moved or len(choices[one.place]) == 1 for one in intervals], dtype=bool)
    shift_N = np.zeros(len(intervals))
    if not open_N.any():
        return shift_N
    value_N = (np.array([one.value for one in intervals])[open_N] - mean) / spread
    gained_N = np.array([one.gained for one in intervals])[open_N] / spread
    weight_N = np.maximum(np.array([one.weight for one in intervals])[open_N], LEAST_WEIGHT)
    design_N2 = np.stack([np.ones_like(value_N), value_N], axis=1)
    weighted_N2 = design_N2 * weight_N[:, None]
    ridge = SHRINKAGE * float(weight_N.mean())
    fit_2 = np.linalg.solve(weighted_N2.T @ design_N2 + ridge * np.eye(2), weighted_N2.T @ gained_N)
    shift_N[open_N] = spread * (design_N2 @ fit_2)
    return shift_N
