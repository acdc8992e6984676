"""The database of a task: what tables and columns are called, and the rows that they hold.

Four tables: customers, items, orders, and lines (which items an order has). Their names are drawn, so that a policy has
to read the schema. Rows are drawn around what a question names, twice: the database that the policy sees, and a second
one with the same schema that only the checker sees.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES

from .engine import Value

__all__ = ["CITIES", "KINDS", "Names", "Rows", "Wanted", "creation", "draw_names", "draw_rows"]

CITIES = ("canyon", "cliff", "granite", "meadow", "oasis", "quartz", "valley", "willow")
"""Where customers live: words of the catalogue that could be places."""

KINDS = ("copper", "crystal", "flame", "opal", "pine")

_TABLES = {
    "customers": ("customers", "clients", "buyers"),
    "items": ("items", "goods", "products"),
    "orders": ("orders", "sales", "deals"),
    "lines": ("lines", "parts", "entries"),
}
_COLUMNS = {
    "name": ("name", "label"),
    "city": ("city", "town", "home"),
    "price": ("price", "cost"),
    "kind": ("kind", "sort", "class"),
    "day": ("day", "placed"),
    "qty": ("qty", "amount", "pieces"),
}

Rows = dict[str, list[tuple[Value, ...]]]
"""Rows of each table, by its drawn name."""


@dataclass(frozen=True, slots=True)
class Names:
    """What tables and columns are called in one task. `whole` says that it has all four tables, not the first two."""

    customers: str
    items: str
    orders: str
    lines: str
    name: str
    city: str
    price: str
    kind: str
    day: str
    qty: str
    whole: bool = True

    @property
    def customer_id(self) -> str:
        """The column of an order that says whose it is."""
        return f"{self.customers.removesuffix('s')}_id"

    @property
    def item_id(self) -> str:
        """The column of a line that says what it is."""
        return f"{self.items.removesuffix('s')}_id"

    @property
    def order_id(self) -> str:
        """The column of a line that says whose it is."""
        return f"{self.orders.removesuffix('s')}_id"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a question names, and so must be there."""

    names: Sequence[str] = ()
    items: Sequence[str] = ()
    cities: Sequence[str] = ()
    kinds: Sequence[str] = ()


def draw_names(rng: np.random.Generator, *, whole: bool) -> Names:
    """Draw what tables and columns are called. Without `whole` there are only customers and items."""
    drawn = {key: words[int(rng.integers(len(words)))] for key, words in {**_TABLES, **_COLUMNS}.items()}
    return Names(**drawn, whole=whole)


def creation(names: Names) -> tuple[str, ...]:
    """Write the statements that make the tables: what `schema` shows."""
    n = names
    first = (
        f"CREATE TABLE {n.customers} (id INTEGER PRIMARY KEY, {n.name} TEXT, {n.city} TEXT)",
        f"CREATE TABLE {n.items} (id INTEGER PRIMARY KEY, {n.name} TEXT, {n.kind} TEXT, {n.price} INTEGER)",
    )
    if not n.whole:
        return first
    return (
        *first,
        f"CREATE TABLE {n.orders} (id INTEGER PRIMARY KEY, {n.customer_id} INTEGER, {n.day} INTEGER)",
        f"CREATE TABLE {n.lines} ({n.order_id} INTEGER, {n.item_id} INTEGER, {n.qty} INTEGER)",
    )


def draw_rows(rng: np.random.Generator, names: Names, wanted: Wanted) -> Rows:
    """Draw the rows of every table around what a question names."""
    people = _with(rng, wanted.names, NAMES, 9)
    things = _with(rng, wanted.items, ITEMS, 11)
    cities = _with(rng, wanted.cities, CITIES, 4)
    kinds = _with(rng, wanted.kinds, KINDS, 3)
    living: list[str | None] = [str(rng.choice(cities)) if rng.random() < 0.85 else None for _ in people]
    prices = (rng.permutation(40)[: len(things)] + 1).tolist()
    rows: Rows = {
        names.customers: [(i + 1, name, living[i]) for i, name in enumerate(people)],
        names.items: [(i + 1, name, str(rng.choice(kinds)), prices[i]) for i, name in enumerate(things)],
    }
    if not names.whole:
        return rows
    orders, lines = _trade(rng, len(people), len(things))
    return {**rows, names.orders: orders, names.lines: lines}


def _trade(
    rng: np.random.Generator, people: int, things: int
) -> tuple[list[tuple[Value, ...]], list[tuple[Value, ...]]]:
    """Draw orders and their lines. One customer and one item in six stay without."""
    buyers = (rng.permutation(people)[: people - people // 6] + 1).tolist()
    bought = (rng.permutation(things)[: things - things // 6] + 1).tolist()
    days = (rng.permutation(60) + 1).tolist()
    orders: list[tuple[Value, ...]] = []
    lines: list[tuple[Value, ...]] = []
    for number in range(1, 17):
        orders.append((number, int(rng.choice(buyers)), days[number]))
        chosen = rng.choice(bought, size=int(rng.integers(1, 4)), replace=False).tolist()
        lines += [(number, item, int(rng.integers(1, 6))) for item in chosen]
    return orders, lines


def _with(rng: np.random.Generator, wanted: Sequence[str], words: Sequence[str], count: int) -> list[str]:
    """Return `count` of the words, in any order, the wanted ones among them."""
    others = [word for word in words if word not in wanted]
    picked = [others[int(index)] for index in rng.permutation(len(others))[: count - len(wanted)]]
    return [str(word) for word in rng.permutation([*wanted, *picked])]
