"""Charges in the ledger: the one piece that every credit function shares.

A charge of `amount` on n decision tokens adds the term `charge:REASON`: -amount / n to the credit of each of them, so
that the charge costs its amount once, and -amount to the advantage of each of them, because a decision's whole segment
shares one advantage. It is never moved, smoothed, scaled by a group or taken from the reward; an unscored trajectory
keeps its charges.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit, Ledger
from accredit.credit.trajectory import Trajectory

from .options import is_number

__all__ = ["check_charge_scale", "with_charges"]

Terms = Mapping[str, NDArray[np.float64]]


def check_charge_scale(charge_scale: float) -> None:
    """Raise `CreditError` unless `charge_scale` is finite and at least 0."""
    if not is_number(charge_scale, 0):
        raise CreditError(f"charge_scale={charge_scale!r}: expected a number of at least 0 (0 switches charges off)")


def with_charges(trajectory: Trajectory, credit: Terms, advantage: Terms, charge_scale: float) -> Credit:
    """Return the `Credit` of a trajectory: float64 [T] terms of a function, plus the terms of its charges.

    Args:
        trajectory: whose charges are added.
        credit: named terms of the credit.
        advantage: named terms of the advantage.
        charge_scale: multiplies every amount; anneal it to 0 to end with the undisturbed objective.

    """
    credit_terms, advantage_terms = dict(credit), dict(advantage)
    if charge_scale > 0:
        for charge in trajectory.charges:
            name, amount = f"charge:{charge.reason}", charge_scale * charge.amount
            for terms, each in (
                (credit_terms, amount / (charge.end - charge.start)),
                (advantage_terms, amount),
            ):
                term_T = terms.setdefault(name, np.zeros(len(trajectory)))
                term_T[charge.start : charge.end] -= each
    return Credit(Ledger(len(trajectory), credit_terms), Ledger(len(trajectory), advantage_terms))
