"""The scripted shop assistant: writes one call a turn and reads what the shop answers.

It knows the requests (the customer's words) and the rules. Numbers, stock, membership, codes, days and notes it reads
from the results, as a policy has to. Wherever a rule asks something of it, `right` is asked first: the expert always
answers True; the sloppy assistant lets the rule go now and then, or forgets to send the cart, and serves on as if there
were no such rule, with the same syntax and the same copying.
"""

from collections.abc import Callable, Iterator
from typing import Any

from accredit.envs.catalogue.scripted import format_call

from .rules import DAYS_LIMIT, QTY_LIMIT
from .world import Line, Order, Request, Return

__all__ = ["Script"]


class Script:
    """One pass over the requests.

    `read` gives the last call's result, decoded if it is JSON; `right` says at each
    decision whether the rule is followed.
    """

    def __init__(
        self,
        requests: tuple[Request, ...],
        read: Callable[[], Any],
        right: Callable[[], bool] = lambda: True,
        *,
        approvals: bool = True,
    ) -> None:
        self._requests = requests
        self._read = read
        self._right = right
        self._approvals = approvals
        self._big = False
        self._large = False

    def __iter__(self) -> Iterator[str]:
        for request in self._requests:
            yield from self._order(request) if isinstance(request, Order) else self._return(request)
        yield "Done."

    def _order(self, order: Order) -> Iterator[str]:
        yield format_call("customer", name=order.name)
        person = self._read()
        added = 0
        self._big = self._large = False
        for line in order.lines:
            found = yield from self._choose(line)
            if found is None:
                yield format_call("refuse", item=line.item)
                continue
            added += yield from self._add(found, line.qty)
        if not added:
            return
        if self._approvals and self._large and self._right():
            yield format_call("approve")
        if person["member"] and self._right():
            yield format_call("coupon", code=person["code"])
        if not self._right():
            return  # he forgets to send it
        small = not (self._big and self._right())
        yield format_call("checkout", name=order.name, ship="fast" if order.fast and small else "slow")

    def _choose(self, line: Line) -> Iterator[str]:
        """Find the line's item, else its substitute; None when neither is to be had."""
        for item in (line.item, line.substitute):
            if item is None:
                continue
            yield format_call("find", item=item)
            found = self._read()
            if found["stock"] >= line.qty or not self._right():
                return found
        return None

    def _add(self, found: dict[str, Any], qty: int) -> Iterator[str]:
        """Add a line and follow the note that may come back; 1 if the line stays, else 0."""
        sku = found["sku"]
        yield format_call("add", sku=sku, qty=qty)
        result = self._read()
        if result != "ok" and self._right():
            yield format_call("remove", sku=sku)
            note = result["note"]
            qty = 0 if note == "drop it" else int(note.split()[-1])
            if qty:
                yield format_call("add", sku=sku, qty=qty)
        self._big = self._big or (qty > 0 and found["big"])
        self._large = self._large or qty > QTY_LIMIT
        return int(qty > 0)

    def _return(self, request: Return) -> Iterator[str]:
        yield format_call("find", item=request.item)
        sku = self._read()["sku"]
        yield format_call("history", name=request.name)
        days = next(row["days"] for row in self._read() if row["sku"] == sku)
        if days <= DAYS_LIMIT or not self._right():
            yield format_call("refund", name=request.name, sku=sku, qty=request.qty)
        else:
            yield format_call("refuse", item=request.item)
