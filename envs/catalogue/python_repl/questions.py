"""Questions on the tables: words, the host's own answer, and the cells that find it.

The answer is computed here from the drawn tables, never from what the interpreter says. The cells are text for the
expert; the last one prints the answer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .tables import ITEMS_USED, NAMES_USED, Row, Tables

__all__ = ["LEVELS", "Answer", "Draft", "Question"]

Answer = int | str


@dataclass(frozen=True, slots=True)
class Question:
    """A question as plain data.

    `slips` are wrong ideas, as replacements (old, new) in the cells; `with_prices` says that both tables are needed.
    """

    text: str
    cells: tuple[str, ...]
    slips: tuple[tuple[str, str], ...]
    with_prices: bool = False


@dataclass(frozen=True, slots=True)
class Draft:
    """A question, and how the host answers it on any tables."""

    text: str
    answer: Callable[[Tables], Answer]
    cells: tuple[str, ...]
    slips: tuple[tuple[str, str], ...]
    with_prices: bool = False

    @property
    def question(self) -> Question:
        """The question without the host's answer."""
        return Question(self.text, self.cells, self.slips, self.with_prices)


@dataclass(frozen=True, slots=True)
class _Filter:
    """Which rows are asked for: in words, as code on `r`, as a test of the host, and as a wrong idea of it."""

    text: str
    code: str
    keep: Callable[[Row], bool]
    slip: tuple[str, str]


def _filter(rng: np.random.Generator) -> _Filter:
    kind = int(rng.integers(4))
    if kind == 0:
        name = _pick(rng, NAMES_USED)
        return _Filter(f"of {name}", f"r['name'] == '{name}'", lambda r: r.name == name, (" == ", " != "))
    if kind == 1:
        item = _pick(rng, ITEMS_USED)
        return _Filter(f"with {item}", f"r['item'] == '{item}'", lambda r: r.item == item, (" == ", " != "))
    if kind == 2:
        qty = int(rng.integers(2, 7))
        return _Filter(f"with qty above {qty}", f"r['qty'] > {qty}", lambda r: r.qty > qty, (" > ", " >= "))
    day = int(rng.integers(6, 25))
    return _Filter(f"before day {day}", f"r['day'] < {day}", lambda r: r.day < day, (" < ", " > "))


def _easy(rng: np.random.Generator) -> Draft:
    where = _filter(rng)
    kind = int(rng.integers(3))
    if kind == 0:
        return Draft(
            f"How many rows {where.text}?",
            lambda tables: len(_kept(tables, where)),
            (f"print(len([r for r in rows if {where.code}]))",),
            (where.slip, (f" if {where.code}", "")),
        )
    column = ("qty", "day")[int(rng.integers(2))]
    if kind == 1:
        return Draft(
            f"Sum of {column} in rows {where.text}?",
            lambda tables: sum(getattr(row, column) for row in _kept(tables, where)),
            (f"print(sum(r['{column}'] for r in rows if {where.code}))",),
            (where.slip, (f" if {where.code}", ""), ("sum(", "max(")),
        )
    return Draft(
        f"Largest {column} in rows {where.text}, 0 if there is none?",
        lambda tables: max((getattr(row, column) for row in _kept(tables, where)), default=0),
        (f"print(max([r['{column}'] for r in rows if {where.code}], default=0))",),
        (where.slip, (f" if {where.code}", ""), ("max(", "sum(")),
    )


def _medium(rng: np.random.Generator) -> Draft:
    where = _filter(rng)
    key = ("name", "item")[int(rng.integers(2))]
    group = (
        "totals = {}",
        f"for r in rows:\n    if {where.code}:\n        totals[r['{key}']] = totals.get(r['{key}'], 0) + r['qty']",
    )
    cells = ("\n".join(group),)
    slips = (where.slip, ("r['qty']", "1"), (f"if {where.code}", "if True"))

    def totals(tables: Tables) -> dict[str, int]:
        return _totals((getattr(row, key), row.qty) for row in _kept(tables, where))

    if rng.random() < 0.5:
        least = int(rng.integers(3, 16))
        return Draft(
            f"How many different {key}s have a total qty of {least} or more in rows {where.text}?",
            lambda tables: sum(total >= least for total in totals(tables).values()),
            (*cells, f"print(sum(total >= {least} for total in totals.values()))"),
            (*slips, (f">= {least}", f"< {least}")),
        )
    return Draft(
        f"Which {key} has the largest total qty in rows {where.text}? The first in the alphabet of equals, none if "
        "there are no rows.",
        lambda tables: _largest(totals(tables)),
        (*cells, "print(min(totals, key=lambda k: (-totals[k], k), default='none'))"),
        (*slips, ("-totals[k]", "totals[k]")),
    )


def _hard(rng: np.random.Generator) -> Draft:
    where = _filter(rng)
    parse = (
        "price = {}\nfor line in prices.split('\\n')[1:]:\n"
        "    item, cost = line.split(',')\n    price[item] = int(cost)"
    )
    keep = f"kept = [r for r in rows if {where.code}]"
    slips = (where.slip, ("r['qty'] * price[r['item']]", "price[r['item']]"), (f" if {where.code}", ""))
    if rng.random() < 0.4:
        above = int(rng.integers(20, 150))
        return Draft(
            f"How many rows {where.text} are worth more than {above} (qty times price)?",
            lambda tables: sum(worth > above for _, worth in _worths(tables, where)),
            (parse, keep, f"print(len([r for r in kept if r['qty'] * price[r['item']] > {above}]))"),
            (*slips, (f"> {above}", f"< {above}")),
            with_prices=True,
        )
    if rng.random() < 0.3:
        return Draft(
            f"What are the rows {where.text} worth together (qty times price)?",
            lambda tables: sum(worth for _, worth in _worths(tables, where)),
            (parse, keep, "print(sum(r['qty'] * price[r['item']] for r in kept))"),
            slips,
            with_prices=True,
        )
    key = ("name", "item")[int(rng.integers(2))]
    group = (
        f"totals = {{}}\nfor r in kept:\n    totals[r['{key}']] = totals.get(r['{key}'], 0) "
        "+ r['qty'] * price[r['item']]"
    )
    return Draft(
        f"Which {key} is worth most (qty times price, summed) in rows {where.text}? The first in the alphabet of "
        "equals, none if there are no rows.",
        lambda tables: _largest(_totals((getattr(row, key), worth) for row, worth in _worths(tables, where))),
        (parse, keep, group, "print(min(totals, key=lambda k: (-totals[k], k), default='none'))"),
        (*slips, ("-totals[k]", "totals[k]")),
        with_prices=True,
    )


def _kept(tables: Tables, where: _Filter) -> list[Row]:
    return [row for row in tables.orders if where.keep(row)]


def _worths(tables: Tables, where: _Filter) -> list[tuple[Row, int]]:
    return [(row, row.qty * tables.price_of[row.item]) for row in _kept(tables, where)]


def _totals(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for key, value in pairs:
        totals[key] = totals.get(key, 0) + value
    return totals


def _largest(totals: dict[str, int]) -> str:
    return min(totals, key=lambda key: (-totals[key], key), default="none")


def _pick(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]


LEVELS: dict[str, Callable[[np.random.Generator], Draft]] = {"easy": _easy, "medium": _medium, "hard": _hard}
