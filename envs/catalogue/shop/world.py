"""What a Shop episode starts from: items, people, past purchases, and the requests that the assistant has to serve.

Only data, and the generator of a world around given requests. The requests themselves are drawn in `tasks`, the
database that tools read and change is in `database`, the rules are in `rules`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES, WORDS

__all__ = ["Change", "Item", "Line", "Order", "Person", "Purchase", "Request", "Return", "World", "make_world"]


@dataclass(frozen=True, slots=True)
class Item:
    """A row of the catalogue. `big` items may not ship fast."""

    name: str
    sku: str
    price: int
    stock: int
    big: bool


@dataclass(frozen=True, slots=True)
class Person:
    """A customer. Everybody has a code; only members may use theirs."""

    name: str
    member: bool
    code: str


@dataclass(frozen=True, slots=True)
class Purchase:
    """A past purchase: what a customer may return."""

    name: str
    sku: str
    qty: int
    days: int


@dataclass(frozen=True, slots=True)
class Change:
    """A change of mind, told in the result of the call that adds the line's item. `qty` 0 drops the line."""

    qty: int


@dataclass(frozen=True, slots=True)
class Line:
    """One wanted item, and what to take when stock is short."""

    item: str
    qty: int
    substitute: str | None = None
    change: Change | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A customer's wish to buy."""

    name: str
    lines: tuple[Line, ...]
    fast: bool


@dataclass(frozen=True, slots=True)
class Return:
    """A customer's wish to give back."""

    name: str
    item: str
    qty: int


Request = Order | Return


@dataclass(frozen=True, slots=True)
class World:
    """Everything the database is filled with."""

    items: Mapping[str, Item] = field(default_factory=dict)
    people: Mapping[str, Person] = field(default_factory=dict)
    purchases: tuple[Purchase, ...] = ()


def make_world(
    rng: np.random.Generator,
    requests: Iterable[Request],
    *,
    short_rate: float,
    zero_only: bool,
    limit: int,
    days_limit: int,
) -> World:
    """Draw stock, prices, membership and history around the requests.

    `short_rate` is the chance that a wanted item is short of stock; `zero_only` makes every such stock 0, so that the
    shortage can be read without comparing numbers. The first line of an order of several lines, or its substitute, is
    always in stock: an order never dies with nothing sold, except an order of one line.
    """
    requests = tuple(requests)
    words = [WORDS[index] for index in rng.permutation(len(WORDS)).tolist()]
    skus, codes = words[: len(ITEMS)], words[len(ITEMS) :]
    stock = dict(zip(ITEMS, rng.integers(1, limit + 5, len(ITEMS)).tolist(), strict=True))
    prices, big = rng.integers(1, 10, len(ITEMS)).tolist(), (rng.random(len(ITEMS)) < 0.5).tolist()
    member = (rng.random(len(NAMES)) < 0.5).tolist()
    past: dict[str, tuple[str, int, int]] = {}
    for request in requests:
        if isinstance(request, Return):
            days = int(rng.integers(1, 2 * days_limit))
            past[request.item] = (request.name, min(9, request.qty + int(rng.integers(0, 3))), days)
            continue
        alone = len(request.lines) == 1
        for number, line in enumerate(request.lines):
            short = bool(rng.random() < short_rate) and (alone or number > 0 or line.substitute is not None)
            stock[line.item] = _stock(rng, line, short, zero_only)
            if line.substitute is not None:
                short = short and number > 0 and bool(rng.random() < short_rate)
                stock[line.substitute] = _stock(rng, line, short, zero_only)
    items = {name: Item(name, skus[index], prices[index], stock[name], big[index]) for index, name in enumerate(ITEMS)}
    people = {name: Person(name, member[index], codes[index]) for index, name in enumerate(NAMES)}
    purchases = [Purchase(name, items[item].sku, qty, days) for item, (name, qty, days) in past.items()]
    purchases += _other_purchases(rng, [purchase.name for purchase in purchases], items, set(past), days_limit)
    return World(items, people, tuple(purchases))


def _stock(rng: np.random.Generator, line: Line, short: bool, zero_only: bool) -> int:
    if short:
        return 0 if zero_only else int(rng.integers(0, line.qty))
    return max(line.qty, line.change.qty if line.change else 0) + int(rng.integers(0, 4))


def _other_purchases(
    rng: np.random.Generator, names: Sequence[str], items: Mapping[str, Item], taken: set[str], days_limit: int
) -> list[Purchase]:
    """One more old purchase for everybody who returns something, so that the right row must be picked."""
    free = [item for item in ITEMS if item not in taken]
    return [
        Purchase(name, items[str(rng.choice(free))].sku, int(rng.integers(1, 10)), int(rng.integers(1, 2 * days_limit)))
        for name in dict.fromkeys(names)
    ]
