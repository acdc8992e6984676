"""Cells that fail: what a sloppy analyst writes before the right cell. Nothing is run here."""

from collections.abc import Callable

import numpy as np

__all__ = ["broken_cell"]

_COLUMNS = (("['qty']", "['count']"), ("['name']", "['person']"), ("['item']", "['thing']"), ("['day']", "['date']"))


def broken_cell(cell: str, rng: np.random.Generator) -> str:
    """Return the cell with a mistake that fails.

    A column or a name that is not there, an undefined function, a bracket that is never closed.
    """
    kinds = [_KINDS[int(at)] for at in rng.permutation(len(_KINDS))]
    return next(found for found in (kind(cell) for kind in kinds) if found != cell)


def _unknown_column(cell: str) -> str:
    """Break the first column that is read of every row, not one that a condition may skip."""
    found = sorted((cell.index(old), old, new) for old, new in _COLUMNS if old in cell)
    if not found or "for r in" not in cell:
        return cell
    filtered = " if r" in cell
    old, new = next(
        ((old, new) for at, old, new in found if not filtered or at > cell.index(" if r")),
        found[0][1:],
    )
    return cell.replace(old, new)


def _unknown_name(cell: str) -> str:
    for old, new in (
        ("in rows", "in table"),
        ("in kept", "in keep"),
        ("totals.values", "total.values"),
        ("prices.", "price."),
    ):
        if old in cell:
            return cell.replace(old, new)
    return cell


def _undefined_function(cell: str) -> str:
    for old, new in (
        ("len(", "count("),
        ("sum(", "total("),
        ("max(", "largest("),
        ("min(", "best("),
        ("int(", "number("),
    ):
        if old in cell:
            return cell.replace(old, new)
    return cell


def _unclosed_bracket(cell: str) -> str:
    at = max(cell.rfind(")"), cell.rfind("]"))
    return cell if at < 0 else cell[:at] + cell[at + 1 :]


_KINDS: tuple[Callable[[str], str], ...] = (_unknown_column, _unknown_name, _undefined_function, _unclosed_bracket)
