"""Doob's credit from known prefix values: the one credit that is causal, fair given the past, and complete.

    c_t = V_t - V_{t-1}        skill on decision tokens, luck on every other token

(Doob's decomposition of R into martingale increments, e.g. Williams 1991, Probability with Martingales, 12.11.) The
values come from an exact process here; nothing is estimated.
"""

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit, CreditFunction, Ledger
from accredit.credit.trajectory import Group, Trajectory

from .process import ExactProcess

__all__ = ["doob_credit", "exact_function"]


def doob_credit(trajectory: Trajectory, values: NDArray[np.float64]) -> Credit:
    """Return the increments of `values` float64 [T+1]: `outcome` on decisions, `luck` elsewhere, in credit only.

    An unscored trajectory gets 0 everywhere.
    """
    moved_T = np.diff(values) if trajectory.outcome is not None else np.zeros(len(trajectory))
    skill_T = np.where(trajectory.credit_mask, moved_T, 0.0)
    credit = Ledger(len(trajectory), {"outcome": skill_T, "luck": moved_T - skill_T})
    return Credit(credit, Ledger(len(trajectory), {"outcome": skill_T.copy()}))


def exact_function(process: ExactProcess) -> CreditFunction:
    """Return the credit function that knows the exact V of `process`."""

    def price(group: Group, /) -> tuple[Credit, ...]:
        return tuple(doob_credit(trajectory, process.values(trajectory)) for trajectory in group.trajectories)

    return price
