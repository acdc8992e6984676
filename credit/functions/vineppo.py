"""VinePPO over turns: every token of a turn gets what the value gained from this turn's start to the next one's.

arXiv 2410.01679, section 4: A_k = r_k + V(s_{k+1}) - V(s_k), where the values of the steps' starts come from rollouts
continued there, and a step is a turn here. The environment's answer belongs to the turn, and so does its luck.

The credit of a turn is spread over its decision tokens; together they sum to R - V, V the value before the first
decision.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory
from accredit.credit.values import Values

from .charges import check_charge_scale
from .critic import check_values, price_by_values
from .moves import Moves
from .turns import decided_turns

__all__ = ["VinePPO"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class VinePPO:
    """Prices every turn by the move of V from its start to the start of the next turn.

    Attributes:
        values: trajectory -> float64 [T+1], read at the first token of every turn; None takes the group's state values.
        charge_scale: multiplies every charge.

    """

    values: Values | None = None
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_values(self.values)
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `value`, `luck`, `charge:*`."""
        return price_by_values(group, self.values, self.charge_scale, _judge)


def _judge(trajectory: Trajectory, value_T1: Floats) -> tuple[Moves, Floats]:
    turns = decided_turns(trajectory)
    starts_N = [span.start for span in turns.spans]
    gained_N = np.diff(np.append(value_T1[starts_N], value_T1[-1]))
    return Moves(turns.split(gained_N), np.zeros(len(trajectory))), turns.shared(gained_N)
