"""Checks of the options that several credit functions share. Each raises `CreditError` and says what was expected."""

from collections.abc import Sequence

import numpy as np

from accredit.credit.errors import CreditError

__all__ = ["check_choice", "check_factor", "check_weight"]


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise CreditError(f"{name}={value!r}: expected one of {', '.join(map(repr, choices))}")


def check_factor(name: str, value: float) -> None:
    """Raise unless `value` lies between 0 and 1."""
    if not 0 <= value <= 1:
        raise CreditError(f"{name}={value}: expected a number between 0 and 1")


def check_weight(name: str, value: float) -> None:
    """Raise unless `value` is finite and at least 0."""
    if not (np.isfinite(value) and value >= 0):
        raise CreditError(f"{name}={value}: expected a number of at least 0")
