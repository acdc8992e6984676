"""The six axioms of credit, each measured as a residual on exactly solvable processes, and the boundary cases.

    from accredit.credit.axioms import all_axioms
    from accredit.credit.exact import two_turn
    for residual in all_axioms(two_turn(), my_function): print(residual)

`accredit.credit.testing` turns them into assertions, `accredit.credit.audit` into a table.
"""

from .boundary import BOUNDARY_CASES, BoundaryCase, boundary_fault
from .checks import (
    all_axioms,
    causality,
    completeness,
    discrimination,
    no_disturbance,
    policy_invariance,
    scale_stability,
)
from .panel import Panel, Priced, price_checked
from .residual import Axiom, Residual, Witness

__all__ = [
    "BOUNDARY_CASES",
    "Axiom",
    "BoundaryCase",
    "Panel",
    "Priced",
    "Residual",
    "Witness",
    "all_axioms",
    "boundary_fault",
    "causality",
    "completeness",
    "discrimination",
    "no_disturbance",
    "policy_invariance",
    "price_checked",
    "scale_stability",
]
