"""The checks that a run's credit function has to pass before anything is trained: seconds, on exact processes.

Required is what no use of a credit function can do without: the boundary cases (equal rewards teach nothing, a group of
one teaches nothing, an unscored member changes nothing, ...) and the direction of the exact policy gradient (axiom 6).
The other axioms tell functions apart and are `accredit audit`'s business: every mainstream method breaks some of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from accredit.credit import AccreditError, CreditFunction
from accredit.credit.audit import OMITTED, Make, make_for
from accredit.credit.axioms import BOUNDARY_CASES, Panel, boundary_fault, policy_invariance
from accredit.credit.exact import ExactProcess, random_tree, two_turn
from accredit.credit.process import ProcessReward

from .config import CreditConfig

__all__ = ["LEAST_COSINE", "PreflightError", "check_credit", "without_scorers"]

LEAST_COSINE = 0.95
"""The least cosine of the mean gradient of the advantages with the exact one."""


class PreflightError(AccreditError, ValueError):
    """The credit function breaks what training needs."""

    exit_code = 2


def check_credit(config: CreditConfig) -> None:
    """Raise `PreflightError` if the configured credit function breaks a required check.

    Functions that need more than a group of rollouts (`accredit.credit.audit.OMITTED`) are not checked. Process rewards
    are checked without their `scorers`: a learned score says nothing of the tokens of an exact process.
    """
    if not config.check or config.function in OMITTED:
        return
    broken = _faults(config.function, config.options)
    if broken:
        lines = "\n  - ".join(["", *broken])
        raise PreflightError(
            f"credit function '{config.function}' breaks what training needs:{lines}\nSee `accredit audit --function "
            f"{config.function}`. To train with it all the same: credit.check=false"
        )


def _faults(function: str, options: Mapping[str, Any]) -> list[str]:
    make = without_scorers(make_for(function, **options))
    found = [f"{case.name}: {fault}" for case in BOUNDARY_CASES if (fault := boundary_fault(case, make))]
    for process in (two_turn(), random_tree(1, depth=4)):
        panel = Panel.of(process, most_groups=200)
        try:
            residual = policy_invariance(panel, make(panel.recalled), "advantage")
        except Exception as error:  # a user's function may raise anything, and that is the finding
            found.append(f"on {process.name}: {type(error).__name__}: {error}")
            continue
        cosine = residual.parts["cosine"]
        if cosine < LEAST_COSINE:
            found.append(
                f"on {process.name} its gradient has cosine {cosine:.3f} with the exact one, expected at least "
                f"{LEAST_COSINE}; {residual.witness}"
            )
    return found


def without_scorers(make: Make) -> Make:
    """Return `make`, with the learned scorers of a process reward left out of what it makes."""

    def made(process: ExactProcess) -> CreditFunction:
        function = make(process)
        return replace(function, scorers=()) if isinstance(function, ProcessReward) else function

    return made
