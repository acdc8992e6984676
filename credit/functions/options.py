"""Checks of the options that several credit functions share. Each raises `CreditError` and says what was expected."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from accredit.credit.errors import CreditError

__all__ = ["check_choice", "check_factor", "check_weight", "is_count", "is_number"]


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise CreditError(f"{name}={value!r}: expected one of {', '.join(map(repr, choices))}")


def is_number(value: Any, least: float = -np.inf, most: float = np.inf) -> bool:
    """Whether `value`, which may come from a configuration file, is a finite number from `least` to `most`."""
    known = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return known and bool(np.isfinite(value) and least <= value <= most)


def is_count(value: Any) -> bool:
    """Whether `value` is a whole number of at least 1."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 1)


def check_factor(name: str, value: float) -> None:
    """Raise unless `value` lies between 0 and 1."""
    if not is_number(value, 0, 1):
        raise CreditError(f"{name}={value!r}: expected a number between 0 and 1")


def check_weight(name: str, value: float) -> None:
    """Raise unless `value` is finite and at least 0."""
    if not is_number(value, 0):
        raise CreditError(f"{name}={value!r}: expected a number of at least 0")
