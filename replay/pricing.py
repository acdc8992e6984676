"""Prices stored groups again by further credit functions, so that one rollout can be seen under two of them.

A function is named as in a configuration, its options behind commas: `rloo`, `anchored,kappa=1.0,lam=0`. Charges count
as much as they did in the stored credit, unless `charge_scale` is among the options.
"""

from collections.abc import Sequence
from typing import Any

import yaml

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit
from accredit.credit.traces import StoredEpisode
from accredit.credit.trajectory import Group

__all__ = ["price", "stored_charge_scale"]


def price(members: Sequence[StoredEpisode], functions: Sequence[str]) -> list[dict[str, Credit]]:
    """Return for each member of a whole group its credit by the label of each function.

    Raises:
        CreditError: no such function or option, or it cannot price this group.

    """
    group = Group(tuple(member.trajectory for member in members))
    scale = stored_charge_scale(members)
    found: list[dict[str, Credit]] = [{} for _ in members]
    for label in dict.fromkeys(functions):
        name, options = _parsed(label)
        for credits, credit in zip(found, _function(name, {"charge_scale": scale, **options})(group), strict=True):
            credits[label] = credit
    return found


def stored_charge_scale(members: Sequence[StoredEpisode]) -> float:
    """Return what multiplied the charges in the stored credit, read off its terms; 1 where nothing was charged."""
    paid = amounts = 0.0
    for member in members:
        if member.credit is None:
            continue
        amounts += sum(charge.amount for charge in member.trajectory.charges)
        terms = member.credit.credit.terms
        paid -= sum(float(term_T.sum()) for name, term_T in terms.items() if name.startswith("charge:"))
    return round(paid / amounts, 9) if amounts else 1.0


def _function(name: str, options: dict[str, Any]) -> Any:
    from accredit.credit.functions import credit_function  # imported late: a page without further functions needs none

    return credit_function(name, **options)


def _parsed(label: str) -> tuple[str, dict[str, Any]]:
    name, *settings = label.split(",")
    options: dict[str, Any] = {}
    for setting in settings:
        option, equals, value = setting.partition("=")
        if not equals:
            raise CreditError(f"credit function '{label}': expected options as name=value, found '{setting}'")
        options[option.strip()] = yaml.safe_load(value)
    return name.strip(), options
