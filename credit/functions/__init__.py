"""Credit functions: who is paid for what. Pure functions of a group; numpy only.

`credit_function("anchored", lam=0.5)` makes one by name. A credit function from elsewhere needs no registration: any
callable that fits `CreditFunction` will do.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from accredit.credit.errors import CreditError
from accredit.credit.ledger import CreditFunction

from .anchored import Anchored
from .broadcast import Broadcast
from .group import GRPO, RLOO, DrGRPO

__all__ = ["CREDIT_FUNCTIONS", "GRPO", "RLOO", "Anchored", "Broadcast", "DrGRPO", "credit_function"]

CREDIT_FUNCTIONS: Mapping[str, Callable[..., CreditFunction]] = MappingProxyType(
    {"broadcast": Broadcast, "grpo": GRPO, "dr_grpo": DrGRPO, "rloo": RLOO, "anchored": Anchored}
)


def credit_function(name: str, **options: Any) -> CreditFunction:
    """Make the credit function `name` with its options, e.g. `credit_function("anchored", kappa=1.0, lam=0.0)`.

    Raises:
        CreditError: no such function, or it has no such option, or the option's value is out of range.

    """
    if name not in CREDIT_FUNCTIONS:
        raise CreditError(f"there is no credit function '{name}'{_nearest(name, CREDIT_FUNCTIONS)}")
    made = CREDIT_FUNCTIONS[name]
    known = [field.name for field in fields(made)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            raise CreditError(f"credit function '{name}' has no option '{option}'{_nearest(option, known)}")
    return made(**options)


def _nearest(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f": did you mean '{close[0]}'?" if close else f": expected one of {', '.join(known)}"
