"""The group-relative functions of the literature: GRPO, Dr. GRPO and RLOO.

All three give every decision token of a trajectory one advantage, from the rewards R_1..R_G of its group:

    grpo      (R - mean) / spread       DeepSeekMath, arXiv 2402.03300, section 4.1.2; the population's deviation
    dr_grpo   R - mean                  Dr. GRPO, arXiv 2503.20783, section 3.2; its length correction is the loss's
    rloo      R - mean of the others    RLOO, arXiv 2402.14740, eq. 8 (Kool et al. 2019)

The credit of a trajectory is spread evenly over its n decision tokens and sums to R - V_0, where V_0 is the function's
own baseline: the spread of GRPO scales the advantage only. Means run over scored members. Dividing by the spread
changes the weight of whole tasks (one solved 1 time in 64 weighs 4 times one solved half of the time); |advantage|
stays within sqrt(G - 1), because the member itself is part of the spread.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group

from .broadcast import broadcast_surprise, mean_surprise
from .charges import check_charge_scale
from .rewards import Rewards, spread

__all__ = ["GRPO", "RLOO", "DrGRPO", "inverse_spread"]


@dataclass(frozen=True, slots=True)
class GRPO:
    """(R - mean) / spread on every decision token. `charge_scale` multiplies every charge."""

    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `outcome`, `turn`, `charge:*`."""
        return broadcast_surprise(group, mean_surprise, self.charge_scale, inverse_spread)


@dataclass(frozen=True, slots=True)
class DrGRPO:
    """R - mean on every decision token. `charge_scale` multiplies every charge."""

    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `outcome`, `turn`, `charge:*`."""
        return broadcast_surprise(group, mean_surprise, self.charge_scale)


@dataclass(frozen=True, slots=True)
class RLOO:
    """R - mean of the other members on every decision token. `charge_scale` multiplies every charge."""

    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `outcome`, `turn`, `charge:*`."""
        return broadcast_surprise(group, _leave_one_out, self.charge_scale)


def inverse_spread(rewards: Rewards) -> float:
    """1 / population standard deviation of R over the scored members of a group that carries a signal."""
    return 1.0 / spread(rewards.totals)


def _leave_one_out(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    count = len(parts)
    surprise_S2: NDArray[np.float64] = mean_surprise(parts) * (count / (count - 1))
    return surprise_S2
