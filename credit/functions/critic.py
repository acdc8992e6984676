"""The one way in which the functions of prefix values price a group.

With `values` every scored trajectory is judged by them alone, whatever its group: a group of one carries a signal when
the critic knows better than its reward. Without (`None`) the group's own state values are taken, and then a group that
teaches nothing (one scored member, equal rewards) gets exactly 0. Unscored trajectories get their charges only.

Ledger terms: `value` (skill), `luck` (credit only), `charge:*`.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory
from accredit.credit.values import Values, prefix_values

from .charges import with_charges
from .moves import Moves
from .rewards import read_rewards
from .states import state_values

__all__ = ["check_values", "price_by_values"]

Floats = NDArray[np.float64]
Judge = Callable[[Trajectory, Floats], tuple[Moves, Floats]]
"""(trajectory, V [T+1]) -> (moves that make up the credit, advantage [T])."""


def check_values(values: object, optional: bool = True) -> None:
    """Raise `CreditError` unless `values` is a function, or None where that is a choice."""
    if callable(values) or (optional and values is None):
        return
    otherwise = ", or None for the states of the group itself" if optional else ""
    raise CreditError(
        f"values={values!r}: expected a function from a trajectory to float64 [T+1]{otherwise}. "
        "A configuration file cannot hold a function: name one of your own as package.module:name, which makes it"
    )


def price_by_values(group: Group, values: Values | None, charge_scale: float, judge: Judge) -> tuple[Credit, ...]:
    """Return the credit of every trajectory of `group`, judged one by one.

    Args:
        group: the rollouts.
        values: the prefix values; None takes `state_values(group)`.
        charge_scale: multiplies every charge.
        judge: prices one scored trajectory from its values.

    """
    if values is None and read_rewards(group).teaches:
        values = state_values(group)
    priced = []
    for trajectory in group.trajectories:
        length = len(trajectory)
        moves, advantage_T = Moves(np.zeros(length), np.zeros(length)), np.zeros(length)
        if values is not None and trajectory.outcome is not None:
            moves, advantage_T = judge(trajectory, prefix_values(values, trajectory))
        credit = {"value": moves.skill, "luck": moves.luck}
        priced.append(with_charges(trajectory, credit, {"value": advantage_T}, charge_scale))
    return tuple(priced)
