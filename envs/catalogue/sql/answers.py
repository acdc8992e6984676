"""When two results are the same answer: rows as a multiset, or in order where the question asks for one.

Names of columns say nothing; their number and order do. 25 and 25.0 are the same number, decimals may differ in the
last digits that a different order of adding leaves, NULL equals NULL alone, and text is never a number.
"""

import math
from collections.abc import Sequence
from typing import Any

from .engine import Table, Value

__all__ = ["same_answer"]

_RELATIVE = 1e-9
_DIGITS = 7

Row = Sequence[Value]


def same_answer(expected: Table, found: Table, *, ordered: bool) -> bool:
    """Tell whether `found` answers as `expected` does. A result that was cut answers nothing."""
    if expected.cut or found.cut or len(expected.rows) != len(found.rows):
        return False
    ours: list[Row] = list(expected.rows)
    theirs: list[Row] = list(found.rows)
    if not ordered:
        ours, theirs = sorted(ours, key=_rank), sorted(theirs, key=_rank)
    return all(_same_row(one, other) for one, other in zip(ours, theirs, strict=True))


def _same_row(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(map(_same_value, one, other))


def _same_value(one: Value, other: Value) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_RELATIVE)
    return type(one) is type(other) and one == other


def _rank(row: Row) -> list[tuple[int, Any]]:
    """Order rows of mixed values so that rows which are the same stand at the same place."""
    ranks: list[tuple[int, Any]] = []
    for value in row:
        if value is None:
            ranks.append((0, 0))
        elif isinstance(value, (int, float)):
            ranks.append((1, float(f"{value:.{_DIGITS}g}")))
        elif isinstance(value, str):
            ranks.append((2, value))
        else:
            ranks.append((3, value))
    return ranks
