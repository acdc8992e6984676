"""The rewards of a group as credit functions read them: who is scored, and whether there is anything to learn.

An unscored member is out of every baseline. A group teaches nothing when it has fewer than two scored members or when
their rewards are all equal; equality is tested on the rewards themselves (max == min), because the spread of eight
equal 0.7 is not exactly 0. Equal sums may differ by rounding, because it depends on the order of what was added: eight
episodes that collect the same turn rewards in another order are equal. Otherwise dividing by the spread would blow the
rounding up to full size.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accredit.credit.trajectory import Group

__all__ = ["Rewards", "all_equal", "exact_mean", "read_rewards", "spread"]

COMPONENTS = ("outcome", "turn")
ROUNDING = 1e-13  # sums whose difference is below this share of what was added up are equal


@dataclass(frozen=True, slots=True, eq=False)
class Rewards:
    """The scored members of a group.

    Attributes:
        scored: int64 [S], their indices in the group.
        parts: float64 [S, 2], outcome and sum of turn rewards of each.
        names: the ledger terms that the columns of `parts` feed; `turn` is absent when no member has a turn reward.
        teaches: whether the group carries a learning signal.
        size: the largest sum of the absolute amounts that make up one R: what rounding is measured by.

    """

    scored: NDArray[np.int64]
    parts: NDArray[np.float64]
    names: tuple[str, ...]
    teaches: bool
    size: float

    @property
    def totals(self) -> NDArray[np.float64]:
        """float64 [S], R of each scored member."""
        totals_S: NDArray[np.float64] = self.parts.sum(axis=1)
        return totals_S


def read_rewards(group: Group) -> Rewards:
    """Return the rewards of the scored members of `group`."""
    members = [(i, t, t.outcome) for i, t in enumerate(group.trajectories) if t.outcome is not None]
    parts_S2 = np.array([(o, t.turn_rewards.sum()) for _, t, o in members], dtype=np.float64).reshape(-1, 2)
    size = max((abs(o) + float(np.abs(t.turn_rewards).sum()) for _, t, o in members), default=0.0)
    paid_by_turn = any(bool(t.turn_rewards.any()) for _, t, _ in members)
    return Rewards(
        scored=np.array([i for i, _, _ in members], dtype=np.int64),
        parts=parts_S2,
        names=COMPONENTS if paid_by_turn else COMPONENTS[:1],
        teaches=len(members) > 1 and not all_equal(parts_S2.sum(axis=1), size),
        size=size,
    )


def all_equal(values: NDArray[np.float64], size: float = 0.0) -> bool:
    """Whether max == min, up to the last bits that the order of a sum of rewards can move (0.1 + 0.2 is 0.3).

    `size` is the largest sum of absolute amounts behind a value; 0 where the values are no sums.
    """
    high, low = float(values.max()), float(values.min())
    rounding = max(4 * float(np.spacing(max(abs(high), abs(low)))), ROUNDING * size)
    return high == low or high - low <= rounding


def exact_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over the first axis, exact when all values are equal."""
    mean: NDArray[np.float64] = values[0] + (values - values[0]).sum(axis=0) / len(values)
    return mean


def spread(values: NDArray[np.float64]) -> float:
    """Return the population standard deviation of values not all equal, above 0 however small or large they are."""
    apart = values - values[0]
    reach = float(np.abs(apart).max())
    return reach * float((apart / reach).std())
