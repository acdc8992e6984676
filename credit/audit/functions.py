"""What the audit prices with: for every name, how to make the function for a process.

Functions that need prefix values are given the exact ones, so that the audit shows the estimator and not its critic.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from accredit.credit.errors import CreditError
from accredit.credit.exact.process import ExactProcess
from accredit.credit.functions.registry import CREDIT_FUNCTIONS, credit_function, option_names
from accredit.credit.ledger import CreditFunction

__all__ = ["MAINSTREAM", "OMITTED", "Make", "audited_functions", "make_for"]

Make = Callable[[ExactProcess], CreditFunction]

_VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "gae two masks": ("gae", {"lam": 0.0, "feedback": "two_masks"}),
    "gae skipped": ("gae", {"lam": 0.0, "feedback": "skipped"}),
    "gae zeroed": ("gae", {"lam": 0.0, "feedback": "zeroed"}),
    "gae two masks .95": ("gae", {"lam": 0.95, "feedback": "two_masks"}),
}
OMITTED: Mapping[str, str] = MappingProxyType(
    {
        "prm_broadcast": "its step scores come from outside; no process of the audit has any",
        "counterfactual": "it prices pairs that differ in one resampled turn; groups of the audit are independent",
    }
)
"""Registered functions that are not audited by default, and why."""

MAINSTREAM = (
    "grpo",
    "dr_grpo",
    "rloo",
    "gae skipped",
    "gae zeroed",
    "vineppo",
    "gigpo",
    "mt_grpo",
)
"""The names of what public trainers do, for the notes on axioms that none of them keeps."""


def make_for(name: str, **options: Any) -> Make:
    """Return how to make the function `name`; one that takes `values` gets those of the process.

    Args:
        name: a registered name, or `package.module:name`.
        options: its options.

    Raises:
        CreditError: no such function or option.

    """
    takes_values = _outside_takes_values(name, options) if ":" in name else "values" in option_names(name)

    def make(process: ExactProcess) -> CreditFunction:
        given = {"values": process.values, **options} if takes_values else options
        return credit_function(name, **given)

    return make


def _outside_takes_values(path: str, options: Mapping[str, Any]) -> bool:
    try:
        credit_function(path, **{"values": lambda trajectory: None, **options})
    except CreditError:
        credit_function(path, **options)  # whatever else is wrong is said of the function as it is
        return False
    return True


def audited_functions() -> dict[str, Make]:
    """Return all that the audit prices by default: exact first, then the registered functions and forms of GAE."""
    makers: dict[str, Make] = {"exact": make_for("exact")}
    for name in CREDIT_FUNCTIONS:
        if name == "gae":
            makers |= {label: make_for(registered, **options) for label, (registered, options) in _VARIANTS.items()}
        elif name not in OMITTED and name not in makers:
            makers[name] = make_for(name)
    return makers
