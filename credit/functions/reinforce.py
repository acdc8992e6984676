"""REINFORCE with a baseline: the whole return on every token, less what was expected.

Williams 1992, eq. 11; with a state value as the baseline, Sutton and Barto 2018, section 13.4:

    none     advantage_t = R                V_0 = 0
    mean     advantage_t = R - mean of R    V_0 = the mean over the scored members of the group
    value    advantage_t = R - V_t          V_t the value before token t, so that what was known is not paid again

The credit of a trajectory is (R - V_0) / n on each of its n decision tokens. Unbiased with any baseline, and noisy in
proportion to everything that is still to come. One departure from the paper: a group that teaches nothing (one scored
member, equal rewards) gets nothing without a baseline too, because a constant reward would push up whatever was done.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory
from accredit.credit.values import Values

from .broadcast import broadcast_surprise, mean_surprise
from .charges import check_charge_scale
from .critic import check_values, price_by_values
from .moves import Moves
from .options import check_choice

__all__ = ["Reinforce"]

Floats = NDArray[np.float64]
Baseline = Literal["none", "mean", "value"]


@dataclass(frozen=True, slots=True)
class Reinforce:
    """Prices every decision token by the return less a baseline.

    Attributes:
        values: trajectory -> float64 [T+1], read by the baseline "value" only; None takes the group's state values.
        baseline: "none", "mean" or "value"; see the module.
        charge_scale: multiplies every charge.

    """

    values: Values | None = None
    baseline: Baseline = "mean"
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_values(self.values)
        check_choice("baseline", self.baseline, get_args(Baseline))
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group.

        Terms, float64 [T]: `outcome`, `turn`, `charge:*`; with the baseline "value" `value`, `luck`, `charge:*`.
        """
        if self.baseline == "value":
            return price_by_values(group, self.values, self.charge_scale, _judge)
        return broadcast_surprise(group, mean_surprise if self.baseline == "mean" else _all, self.charge_scale)


def _all(parts_S2: Floats) -> Floats:
    return parts_S2


def _judge(trajectory: Trajectory, value_T1: Floats) -> tuple[Moves, Floats]:
    mask_T = trajectory.credit_mask
    surprise = float(value_T1[-1] - value_T1[0])
    credit_T = np.where(mask_T, surprise / max(1, int(mask_T.sum())), 0.0)
    return Moves(credit_T, np.zeros(len(trajectory))), np.where(mask_T, value_T1[-1] - value_T1[:-1], 0.0)
