"""The shop's books in an in-memory SQLite database, one an episode.

It answers and writes; it does not judge. What is impossible (an unknown item, nothing in the cart) raises `ToolError`
with the argument at fault; what is merely against the rules is written, and shows only in the final books.
"""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Self

from accredit.envs.errors import ToolError

from .rules import Books, PlacedOrder, Refund
from .world import Order, Request, World

__all__ = ["ShopDatabase"]

_SCHEMA = """
create table items (name text primary key, sku text unique, price integer, stock integer, big integer);
create table people (name text primary key, member integer, code text unique);
create table purchases (name text, sku text, qty integer, days integer, primary key (name, sku));
create table cart (sku text primary key, qty integer);
create table cart_terms (coupon text, approved integer);
insert into cart_terms values ('', 0);
create table orders (id integer primary key, name text unique, coupon text, approved integer, ship text);
create table order_lines (order_id integer, sku text, qty integer);
create table refused (item text primary key);
create table notes (sku text primary key, item text, text text);
create table told (item text primary key);
create table refunds (name text, sku text, qty integer, primary key (name, sku));
"""

_MAX_QTY = 99


class ShopDatabase:
    """Reads and writes of one episode. Copies are independent databases."""

    def __init__(self, world: World, requests: Sequence[Request]) -> None:
        self._connection = _connect()
        self._connection.executescript(_SCHEMA)
        many = self._connection.executemany
        many(
            "insert into items values (?, ?, ?, ?, ?)",
            [(i.name, i.sku, i.price, i.stock, i.big) for i in world.items.values()],
        )
        many("insert into people values (?, ?, ?)", [(p.name, p.member, p.code) for p in world.people.values()])
        many("insert into purchases values (?, ?, ?, ?)", [(p.name, p.sku, p.qty, p.days) for p in world.purchases])

        many("insert into notes values (?, ?, ?)", list(_notes(world, requests)))

    def find(self, item: str) -> dict[str, Any]:
        """Look up number, price, stock and size of an item."""
        row = self._one("select sku, price, stock, big from items where name = ?", item)
        if row is None:
            raise ToolError(f"no item {item!r}", argument="item")
        return {"sku": row[0], "price": row[1], "stock": row[2], "big": bool(row[3])}

    def customer(self, name: str) -> dict[str, Any]:
        """Look up whether a customer is a member, and the code that members may use."""
        row = self._one("select member, code from people where name = ?", name)
        if row is None:
            raise ToolError(f"no customer {name!r}", argument="name")
        return {"member": bool(row[0]), "code": row[1]}

    def history(self, name: str) -> list[dict[str, Any]]:
        """List past purchases of a customer, newest first."""
        self.customer(name)
        rows = self._all("select sku, qty, days from purchases where name = ? order by days, sku", name)
        return [{"sku": sku, "qty": qty, "days": days} for sku, qty, days in rows]

    def add(self, sku: str, qty: int) -> str | None:
        """Put pieces into the cart, beyond stock if asked to; return the customer's note if there is a new one."""
        self._check_sku(sku)
        _check_qty(qty)
        self._write("insert into cart values (?, ?) on conflict (sku) do update set qty = qty + excluded.qty", sku, qty)
        note = self._one("select item, text from notes where sku = ? and item not in (select item from told)", sku)
        if note is None:
            return None
        self._write("insert into told values (?)", note[0])
        return str(note[1])

    def remove(self, sku: str) -> None:
        """Take an item out of the cart, all its pieces."""
        if self._write("delete from cart where sku = ?", sku) == 0:
            raise ToolError(f"{sku!r} is not in the cart", argument="sku")

    def coupon(self, code: str) -> None:
        """Use somebody's code for this cart; a second code replaces the first."""
        if self._one("select 1 from people where code = ?", code) is None:
            raise ToolError(f"no coupon {code!r}", argument="code")
        self._write("update cart_terms set coupon = ?", code)

    def approve(self) -> None:
        """Approve this cart; a second time changes nothing."""
        self._write("update cart_terms set approved = 1")

    def checkout(self, name: str, ship: str) -> int:
        """Turn the cart into an order of `name`, empty it, and return the price."""
        self.customer(name)
        if ship not in ("fast", "slow"):
            raise ToolError(f"ship is {ship!r}: expected fast or slow", argument="ship")
        lines = self._all("select sku, qty from cart order by sku")
        if not lines:
            raise ToolError("the cart is empty")
        if self._one("select 1 from orders where name = ?", name) is not None:
            raise ToolError(f"{name} has ordered already", argument="name")
        total = self._one("select sum(price * qty) from cart join items using (sku)")[0]
        self._write(
            "insert into orders (name, coupon, approved, ship) select ?, coupon, approved, ? from cart_terms",
            name,
            ship,
        )
        number = self._one("select id from orders where name = ?", name)[0]
        self._write("insert into order_lines select ?, sku, qty from cart", number)
        self._write("update items set stock = max(0, stock - cart.qty) from cart where cart.sku = items.sku")
        self._write("delete from cart")
        self._write("update cart_terms set coupon = '', approved = 0")
        return int(total)

    def refuse(self, item: str) -> None:
        """Note that an item will not be served."""
        self.find(item)
        self._write("insert or ignore into refused values (?)", item)

    def refund(self, name: str, sku: str, qty: int) -> None:
        """Give money back for pieces that the customer once bought."""
        self.customer(name)
        self._check_sku(sku)
        _check_qty(qty)
        bought = self._one("select qty from purchases where name = ? and sku = ?", name, sku)
        if bought is None:
            raise ToolError(f"{name} never bought {sku!r}", argument="sku")
        given = self._one("select qty from refunds where name = ? and sku = ?", name, sku)
        left = bought[0] - (given[0] if given else 0)
        if qty > left:
            raise ToolError(f"qty is {qty}: {name} can return {left}", argument="qty")
        self._write(
            "insert into refunds values (?, ?, ?) on conflict (name, sku) do update set qty = qty + excluded.qty",
            name,
            sku,
            qty,
        )

    def books(self) -> Books:
        """Read what the final check compares."""
        orders = []
        for number, name, coupon, approved, ship in self._all("select id, name, coupon, approved, ship from orders"):
            lines = self._all("select sku, qty from order_lines where order_id = ? order by sku", number)
            orders.append(PlacedOrder(name, tuple(lines), coupon, bool(approved), ship))
        return Books(
            tuple(sorted(orders)),
            tuple(item for (item,) in self._all("select item from refused order by item")),
            tuple(Refund(*row) for row in self._all("select name, sku, qty from refunds order by name, sku")),
            tuple(self._all("select sku, qty from cart order by sku")),
        )

    def canonical(self) -> str:
        """Write all that calls can change as one line of JSON that does not depend on the order of the calls."""
        books = self.books()
        terms = self._one("select coupon, approved from cart_terms")
        orders = [[o.name, o.lines, o.coupon, o.approved, o.ship] for o in books.orders]
        refunds = [[r.name, r.sku, r.qty] for r in books.refunds]
        told = self._all("select item from told order by item")
        return json.dumps([orders, books.refused, refunds, books.cart, terms, told])

    def _check_sku(self, sku: str) -> None:
        if self._one("select 1 from items where sku = ?", sku) is None:
            raise ToolError(f"no sku {sku!r}", argument="sku")

    def _one(self, query: str, *values: Any) -> Any:
        return self._connection.execute(query, values).fetchone()

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._connection.execute(query, values).fetchall()

    def _write(self, query: str, *values: Any) -> int:
        return self._connection.execute(query, values).rowcount

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = type(self).__new__(type(self))
        copy.__setstate__(self.__getstate__())
        return copy

    def __getstate__(self) -> bytes:
        return self._connection.serialize()

    def __setstate__(self, state: bytes) -> None:
        self._connection = _connect()
        self._connection.deserialize(state)


def _connect() -> sqlite3.Connection:
    """Tools may run in a worker thread, one at a time; every statement commits itself."""
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _notes(world: World, requests: Sequence[Request]) -> Iterator[tuple[str, str, str]]:
    """Each change of mind, told once, whichever of the line's items is added first."""
    for request in requests:
        for line in request.lines if isinstance(request, Order) else ():
            if line.change is None:
                continue
            text = f"make it {line.change.qty}" if line.change.qty else "drop it"
            for item in (line.item, line.substitute):
                if item is not None:
                    yield world.items[item].sku, line.item, text


def _check_qty(qty: int) -> None:
    if not 1 <= qty <= _MAX_QTY:
        raise ToolError(f"qty is {qty}: expected 1 to {_MAX_QTY}", argument="qty")
