"""The table of credit functions, and the one way to make one by name.

A name with a colon, `package.module:name`, is looked up outside the table (`outside.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from accredit.credit.errors import CreditError
from accredit.credit.ledger import CreditFunction
from accredit.credit.process.function import ProcessReward

from .anchored import Anchored
from .broadcast import Broadcast
from .counterfactual import Counterfactual
from .exact import Exact
from .gae import GAE
from .gigpo import GiGPO
from .group import GRPO, RLOO, DrGRPO
from .mt_grpo import MTGRPO
from .outside import outside_function
from .prm_broadcast import PRMBroadcast
from .reinforce import Reinforce
from .turn_verifier import TurnVerifier
from .vineppo import VinePPO

__all__ = ["CREDIT_FUNCTIONS", "credit_function", "option_names"]

CREDIT_FUNCTIONS: Mapping[str, Callable[..., CreditFunction]] = MappingProxyType(
    {
        "broadcast": Broadcast,
        "reinforce": Reinforce,
        "grpo": GRPO,
        "dr_grpo": DrGRPO,
        "rloo": RLOO,
        "anchored": Anchored,
        "gae": GAE,
        "vineppo": VinePPO,
        "gigpo": GiGPO,
        "mt_grpo": MTGRPO,
        "turn_verifier": TurnVerifier,
        "prm_broadcast": PRMBroadcast,
        "process": ProcessReward,
        "counterfactual": Counterfactual,
        "exact": Exact,
    }
)


def credit_function(name: str, /, **options: Any) -> CreditFunction:
    """Make the credit function `name` with its options, e.g. `credit_function("anchored", kappa=1.0, lam=0.0)`.

    Args:
        name: a name of `CREDIT_FUNCTIONS`, or `package.module:name` for a function from elsewhere.
        options: keyword options; `charge_scale` is known to every function of the table.

    Raises:
        CreditError: no such function, or it has no such option, or an option's value is missing or out of range.

    """
    if ":" in name:
        return outside_function(name, **options)
    known = option_names(name)
    for option in options:
        if option not in known:
            raise CreditError(f"credit function '{name}' has no option '{option}'{_nearest(option, known)}")
    missing = [option for option in option_names(name, required=True) if option not in options]
    if missing:
        raise CreditError(
            f"credit function '{name}' needs {' and '.join(missing)}: a function of a trajectory, passed in Python. A "
            "configuration file cannot hold one: name a function of your own as package.module:name, which makes it"
        )
    return CREDIT_FUNCTIONS[name](**options)


def option_names(name: str, required: bool = False) -> tuple[str, ...]:
    """Return the names of the options of the credit function `name`; with `required`, of those without a default.

    Raises:
        CreditError: no such function.

    """
    if name not in CREDIT_FUNCTIONS:
        raise CreditError(f"there is no credit function '{name}'{_nearest(name, CREDIT_FUNCTIONS)}")
    found = fields(CREDIT_FUNCTIONS[name])  # type: ignore[arg-type]
    return tuple(
        field.name for field in found if not required or (field.default is MISSING and field.default_factory is MISSING)
    )


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(word, names, n=1, cutoff=0.5)
    return f": did you mean '{close[0]}'?" if close else f": expected one of {', '.join(names)}"
