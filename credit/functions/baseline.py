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

from accredit.credit.trajectory import Group

from .anchors import Anchor
from .pieces import Floats, Pieces
from .rewards import spread

__all__ = ["Interval", "group_shifts", "score_weights", "shifts"]

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


def shifts(intervals: Sequence[Interval], mean: float, deviation: float) -> Floats:
    """float64 [N], what is to be subtracted from the advantage of every interval of a group.

    A place from which different decisions led to the same value decided nothing: 0 there, and no say in the fit.

    Args:
        intervals: all skill intervals of the group.
        mean: V_0, and
        deviation: the standard deviation of R in the group, above 0; they make the fit free of the reward's scale.

    """
    choices: dict[Hashable, set[bytes]] = {}
    moved = {interval.place for interval in intervals if interval.moved}
    for interval in intervals:
        choices.setdefault(interval.place, set()).add(interval.chosen)
    open_N = np.array([one.place in moved or len(choices[one.place]) == 1 for one in intervals], dtype=bool)
    shift_N = np.zeros(len(intervals))
    if not open_N.any():
        return shift_N
    value_N = (np.array([one.value for one in intervals])[open_N] - mean) / deviation
    gained_N = np.array([one.gained for one in intervals])[open_N] / deviation
    weight_N = np.maximum(np.array([one.weight for one in intervals])[open_N], LEAST_WEIGHT)
    design_N2 = np.stack([np.ones_like(value_N), value_N], axis=1)
    weighted_N2 = design_N2 * weight_N[:, None]
    ridge = SHRINKAGE * float(weight_N.mean())
    fit_2 = np.linalg.solve(weighted_N2.T @ design_N2 + ridge * np.eye(2), weighted_N2.T @ gained_N)
    shift_N[open_N] = deviation * (design_N2 @ fit_2)
    return shift_N


def group_shifts(
    group: Group,
    anchors: dict[int, list[Anchor]],
    pieces: dict[int, Pieces],
    gained: dict[int, Floats],
    null_step: float,
    totals: Floats,
) -> dict[int, Floats]:
    """Return float64 [N] for every scored member: what the optimal baseline takes off its intervals' advantages."""
    found: list[Interval] = []
    where: list[tuple[int, int]] = []
    for index, cut in pieces.items():
        trajectory = group.trajectories[index]
        weight_T = score_weights(trajectory.logprobs)
        for interval in np.flatnonzero(cut.decisions_N).tolist():
            held = np.flatnonzero(cut.decided_P & (cut.interval_P == interval))
            tokens = np.concatenate(
                [np.arange(s, s + n) for s, n in zip(cut.start_P[held], cut.length_P[held], strict=True)]
            )
            anchor = anchors[index][interval]
            found.append(
                Interval(
                    place=anchor.place,
                    chosen=trajectory.token_ids[tokens].tobytes(),
                    moved=float(np.abs(cut.moved_N2[interval]).max()) > null_step,
                    value=anchor.value.real + anchor.value.imag,
                    gained=float(gained[index][interval].sum()),
                    weight=float(weight_T[tokens].sum()),
                )
            )
            where.append((index, interval))
    shift = {index: np.zeros(len(cut.decisions_N)) for index, cut in pieces.items()}
    taken_off = shifts(found, float(totals.mean()), spread(totals))
    for (index, interval), amount in zip(where, taken_off.tolist(), strict=True):
        shift[index][interval] = amount
    return shift
