"""The tables of a PythonRepl episode: orders as a list of rows, prices as CSV text.

Drawn from a seed; the host keeps its own copy, so nothing that the policy does to the interpreter's changes the answer.
"""

from dataclasses import dataclass

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES

__all__ = ["Row", "Tables", "draw_tables"]

NAMES_USED, ITEMS_USED = NAMES[:4], ITEMS[:5]
"""Few, so that every one is met in most tables."""


@dataclass(frozen=True, slots=True)
class Row:
    """One order."""

    name: str
    item: str
    qty: int
    day: int


@dataclass(frozen=True, slots=True)
class Tables:
    """Orders, and what one piece of each item costs."""

    orders: tuple[Row, ...]
    prices: tuple[tuple[str, int], ...]

    @property
    def price_of(self) -> dict[str, int]:
        """Prices by item."""
        return dict(self.prices)

    def setup_cell(self, with_prices: bool) -> str:
        """Write the cell that puts the tables into the interpreter."""
        rows = [f"    {{'name': {r.name!r}, 'item': {r.item!r}, 'qty': {r.qty}, 'day': {r.day}}}," for r in self.orders]
        cell = "\n".join(["rows = [", *rows, "]"])
        if not with_prices:
            return cell
        text = "\n".join(["item,price", *(f"{item},{price}" for item, price in self.prices)])
        return f"{cell}\nprices = {text!r}"


def draw_tables(rng: np.random.Generator) -> Tables:
    """Draw 8 to 15 orders, and the prices of all items."""

    def pick(words: tuple[str, ...]) -> str:
        return words[int(rng.integers(len(words)))]

    orders = tuple(
        Row(pick(NAMES_USED), pick(ITEMS_USED), int(rng.integers(1, 10)), int(rng.integers(1, 31)))
        for _ in range(int(rng.integers(8, 16)))
    )
    return Tables(orders, tuple((item, int(rng.integers(2, 30))) for item in ITEMS_USED))
