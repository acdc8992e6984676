"""Exact: Doob's decomposition of the reward, the only complete, causal and fair credit (see `docs/concepts.md`).

    credit_t = advantage_t = V_{t+1} - V_t    on decision tokens: skill
    credit_t = V_{t+1} - V_t                  on feedback tokens: luck, never an advantage

Doob 1953, chapter II.7: a reward is its mean plus the increments of the martingale of its conditional expectations. The
credit is as exact as the values are; `accredit.credit.exact` has processes where they are known in closed form.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory
from accredit.credit.values import Values

from .charges import check_charge_scale
from .critic import check_values, price_by_values
from .moves import Moves, value_moves

__all__ = ["Exact"]


@dataclass(frozen=True, slots=True)
class Exact:
    """Prices every trajectory by the moves of V on its tokens; the credit sums to R - V_0.

    Attributes:
        values: trajectory -> float64 [T+1], the prefix values.
        charge_scale: multiplies every charge.

    """

    values: Values
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_values(self.values, optional=False)
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `value`, `luck`, `charge:*`."""
        return price_by_values(group, self.values, self.charge_scale, _judge)


def _judge(trajectory: Trajectory, value_T1: NDArray[np.float64]) -> tuple[Moves, NDArray[np.float64]]:
    moves = value_moves(trajectory, value_T1)
    return moves, moves.skill.copy()
