"""The shop's rules, twice: as the short text that the policy reads, and as the final books that follow from them.

`expected_books` is the checker's only source of truth. It looks at the requests and the world, never at what the
assistant did; a reward is the equality of these books with those of the database.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .world import Line, Order, Request, World

__all__ = ["DAYS_LIMIT", "QTY_LIMIT", "Books", "PlacedOrder", "Refund", "all_closed", "expected_books", "policy_text"]

QTY_LIMIT = 5
"""More pieces of one item than this need an approval."""

DAYS_LIMIT = 30
"""Purchases older than this are not refunded."""

_RULES = {
    "easy": ("Coupon for members only.", "Short stock: refuse the item.", "Big items go slow."),
    "medium": (f"Over {QTY_LIMIT} of an item: approve.", "Take the item after or if the first is short."),
    "hard": (f"Refund up to {DAYS_LIMIT} days, later refuse.", "Follow notes of customers."),
}


@dataclass(frozen=True, slots=True, order=True)
class PlacedOrder:
    """An order as the books have it; `lines` are (sku, qty), sorted."""

    name: str
    lines: tuple[tuple[str, int], ...]
    coupon: str
    """The code used, "" for none."""
    approved: bool
    ship: str


@dataclass(frozen=True, slots=True, order=True)
class Refund:
    """Money given back for `qty` pieces."""

    name: str
    sku: str
    qty: int


@dataclass(frozen=True, slots=True)
class Books:
    """What the database must hold at the end: nothing less and nothing more. All tuples are sorted."""

    orders: tuple[PlacedOrder, ...] = ()
    refused: tuple[str, ...] = ()
    refunds: tuple[Refund, ...] = ()
    cart: tuple[tuple[str, int], ...] = ()


def policy_text(level: str) -> str:
    """Write the system text of a level: its rules and those of the easier levels."""
    rules: list[str] = []
    for name, lines in _RULES.items():
        rules.extend(lines)
        if name == level:
            break
    return "Serve the shop, one call a turn. " + " ".join(rules)


def expected_books(world: World, requests: Iterable[Request]) -> Books:
    """Work out the books after every request was served by the rules."""
    orders: list[PlacedOrder] = []
    refused: list[str] = []
    refunds: list[Refund] = []
    for request in requests:
        if isinstance(request, Order):
            order, missing = _serve(world, request)
            refused.extend(missing)
            orders.extend([order] if order.lines else [])
            continue
        sku = world.items[request.item].sku
        days = next(row.days for row in world.purchases if (row.name, row.sku) == (request.name, sku))
        if days <= DAYS_LIMIT:
            refunds.append(Refund(request.name, sku, request.qty))
        else:
            refused.append(request.item)
    return Books(tuple(sorted(orders)), tuple(sorted(refused)), tuple(sorted(refunds)))


def all_closed(world: World, requests: Iterable[Request], books: Books) -> bool:
    """Tell whether each request was answered, rightly or not: ordered, refunded, or refused item by item."""
    ordered = {order.name for order in books.orders}
    refunded = {(refund.name, refund.sku) for refund in books.refunds}
    refused = set(books.refused)
    for request in requests:
        if isinstance(request, Order):
            closed = request.name in ordered or all(line.item in refused for line in request.lines)
        else:
            closed = request.item in refused or (request.name, world.items[request.item].sku) in refunded
        if not closed:
            return False
    return True


def _serve(world: World, order: Order) -> tuple[PlacedOrder, list[str]]:
    person = world.people[order.name]
    lines: dict[str, int] = {}
    refused: list[str] = []
    big = False
    for line in order.lines:
        chosen = _choose(world, line)
        if chosen is None:
            refused.append(line.item)
            continue
        qty = line.qty if line.change is None else line.change.qty
        if qty == 0:
            continue
        lines[world.items[chosen].sku] = qty
        big = big or world.items[chosen].big
    placed = PlacedOrder(
        name=order.name,
        lines=tuple(sorted(lines.items())),
        coupon=person.code if person.member else "",
        approved=any(qty > QTY_LIMIT for qty in lines.values()),
        ship="fast" if order.fast and not big else "slow",
    )
    return placed, refused


def _choose(world: World, line: Line) -> str | None:
    for item in (line.item, line.substitute):
        if item is not None and world.items[item].stock >= line.qty:
            return item
    return None
