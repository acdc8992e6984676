"""The ledger: credit and advantage per token as a sum of named terms.

`credit` says what a token is worth and sums to R - V_0; `advantage` is what multiplies grad log pi in the loss. Both
are kept as named terms (`outcome`, `turn`, `luck`, `charge:invalid_arguments`, ...) whose sum is the total, exactly,
so that every colour in the replay can be explained.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import SpanError
from .trajectory import Group

__all__ = ["Credit", "CreditFunction", "Ledger"]


@dataclass(frozen=True, slots=True, eq=False)
class Ledger:
    """Named float64 [T] terms of one quantity."""

    length: int
    terms: Mapping[str, NDArray[np.float64]]

    def __post_init__(self) -> None:
        for name, term_T in self.terms.items():
            if term_T.shape != (self.length,):
                raise SpanError(f"ledger term '{name}' has shape {term_T.shape}, expected ({self.length},)")
            if not bool(np.isfinite(term_T).all()):
                raise SpanError(f"ledger term '{name}' is not finite at token {int(np.argmin(np.isfinite(term_T)))}")
            term_T.setflags(write=False)

    @property
    def total(self) -> NDArray[np.float64]:
        """float64 [T], the sum of the terms in their order."""
        total_T = np.zeros(self.length, dtype=np.float64)
        for term_T in self.terms.values():
            total_T += term_T
        return total_T


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """What a credit function says of one trajectory."""

    credit: Ledger
    advantage: Ledger


class CreditFunction(Protocol):
    """Prices a group: one `Credit` a trajectory, in the group's order. Pure; needs numpy only."""

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group."""
        ...
