"""Questions in words with the query that answers them, drawn level by level.

Beside the right query a question has *rivals*, what a careless writer would write, and *twins*, other readings that are
as right. Rows are drawn until every rival is wrong on them and every twin is right: a reward then tells them apart, and
no tie makes a right reading wrong. A question's identity is what it asks, not the names or rows it is asked about.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES

from .world import CITIES, KINDS, Names, Wanted

__all__ = ["LEVELS", "Question"]


@dataclass(frozen=True, slots=True)
class Question:
    """One question. `ordered` says that the order of rows is asked for."""

    identity: str
    text: str
    sql: str
    wanted: Wanted
    rivals: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    ordered: bool = False


Maker = Callable[[np.random.Generator, Names], Question]


def _pick(rng: np.random.Generator, words: Sequence[str]) -> str:
    return words[int(rng.integers(len(words)))]


def _two(rng: np.random.Generator, words: tuple[str, ...]) -> tuple[str, str]:
    first, second = rng.choice(len(words), size=2, replace=False).tolist()
    return words[first], words[second]


def _people(rng: np.random.Generator, n: Names) -> Question:
    city, counted = _pick(rng, CITIES), bool(rng.random() < 0.5)
    what = "COUNT(*)" if counted else n.name
    sql = f"SELECT {what} FROM {n.customers} WHERE {n.city} = '{city}'"
    text = (
        f"How many {n.customers} have {n.city} {city}?"
        if counted
        else f"List {n.name} of {n.customers} with {n.city} {city}."
    )
    rivals = (f"SELECT {what} FROM {n.customers}", f"SELECT {what} FROM {n.customers} WHERE {n.city} <> '{city}'")
    return Question(f"people {what == 'COUNT(*)'} {city}", text, sql, Wanted(cities=[city]), rivals)


def _price(rng: np.random.Generator, n: Names) -> Question:
    item = _pick(rng, ITEMS)
    sql = f"SELECT {n.price} FROM {n.items} WHERE {n.name} = '{item}'"
    return Question(f"price {item}", f"What is the {n.price} of {item}?", sql, Wanted(items=[item]))


def _extreme(rng: np.random.Generator, n: Names) -> Question:
    kind = _pick(rng, KINDS)
    word, function = (("highest", "MAX"), ("lowest", "MIN"), ("summed", "SUM"))[int(rng.integers(3))]
    made = [f"SELECT {f}({n.price}) FROM {n.items} WHERE {n.kind} = '{kind}'" for f in ("MAX", "MIN", "SUM")]
    sql = f"SELECT {function}({n.price}) FROM {n.items} WHERE {n.kind} = '{kind}'"
    rivals = (*(other for other in made if other != sql), f"SELECT {function}({n.price}) FROM {n.items}")
    text = f"What is the {word} {n.price} of {n.items} with {n.kind} {kind}?"
    return Question(f"extreme {function} {kind}", text, sql, Wanted(kinds=[kind]), rivals)


def _cheap(rng: np.random.Generator, n: Names) -> Question:
    kind, limit, counted = _pick(rng, KINDS), int(rng.integers(8, 33)), bool(rng.random() < 0.5)
    word, sign, other = (("below", "<", ">"), ("above", ">", "<"))[int(rng.integers(2))]
    what = "COUNT(*)" if counted else n.name
    sql = f"SELECT {what} FROM {n.items} WHERE {n.kind} = '{kind}' AND {n.price} {sign} {limit}"
    rivals = (sql.replace(f" {sign} ", f" {other} "), sql.replace(" AND ", " OR "), sql.split(" AND ")[0])
    start = "How many" if counted else f"List {n.name} of"
    text = f"{start} {n.items} with {n.kind} {kind} and {n.price} {word} {limit}{'?' if counted else '.'}"
    return Question(f"cheap {counted} {kind} {word} {limit}", text, sql, Wanted(kinds=[kind]), rivals)


def _orders_of(rng: np.random.Generator, n: Names) -> Question:
    name = _pick(rng, NAMES)
    joined = f"FROM {n.orders} o JOIN {n.customers} c ON c.id = o.{n.customer_id} WHERE c.{n.name} = '{name}'"
    return Question(
        f"orders of {name}",
        f"How many {n.orders} did {name} place?",
        f"SELECT COUNT(*) {joined}",
        Wanted(names=[name]),
        (f"SELECT COUNT(*) FROM {n.orders}",),
    )


def _spent(rng: np.random.Generator, n: Names) -> Question:
    name, kind = _pick(rng, NAMES), _pick(rng, KINDS)
    joined = f"FROM {_all_joined(n)} WHERE c.{n.name} = '{name}' AND i.{n.kind} = '{kind}'"
    return Question(
        f"spent {name} {kind}",
        f"What did {name} pay for {n.items} with {n.kind} {kind}? Count {n.qty} times {n.price}.",
        f"SELECT SUM(l.{n.qty} * i.{n.price}) {joined}",
        Wanted(names=[name], kinds=[kind]),
        (
            f"SELECT SUM(i.{n.price}) {joined}",
            f"SELECT SUM(l.{n.qty}) {joined}",
            f"SELECT SUM(l.{n.qty} * i.{n.price}) {joined.split(' AND ')[0]}",
        ),
    )


def _never_sold(rng: np.random.Generator, n: Names) -> Question:
    kind = _pick(rng, KINDS)
    start = f"SELECT {n.name} FROM {n.items} WHERE {n.kind} = '{kind}'"
    return Question(
        f"never sold {kind}",
        f"List {n.name} of {n.items} with {n.kind} {kind} that are in no {n.orders}.",
        f"{start} AND id NOT IN (SELECT {n.item_id} FROM {n.lines})",
        Wanted(kinds=[kind]),
        (start, f"{start} AND id IN (SELECT {n.item_id} FROM {n.lines})"),
    )


def _buyers_of(rng: np.random.Generator, n: Names) -> Question:
    item = _pick(rng, ITEMS)
    rest = f"c.{n.name} FROM {_all_joined(n)} WHERE i.{n.name} = '{item}'"
    return Question(
        f"buyers of {item}",
        f"Which {n.customers} bought {item}? List each {n.name} once.",
        f"SELECT DISTINCT {rest}",
        Wanted(items=[item]),
        (f"SELECT {rest}", f"SELECT {n.name} FROM {n.customers}"),
    )


def _pieces_by_kind(rng: np.random.Generator, n: Names) -> Question:
    city = _pick(rng, CITIES)
    start, end = f"FROM {_all_joined(n)}", f"GROUP BY i.{n.kind}"
    return Question(
        f"pieces by kind {city}",
        f"For {n.customers} with {n.city} {city}: list each {n.kind} they bought and its summed {n.qty}.",
        f"SELECT i.{n.kind}, SUM(l.{n.qty}) {start} WHERE c.{n.city} = '{city}' {end}",
        Wanted(cities=[city]),
        (
            f"SELECT i.{n.kind}, SUM(l.{n.qty}) {start} {end}",
            f"SELECT i.{n.kind}, COUNT(*) {start} WHERE c.{n.city} = '{city}' {end}",
        ),
    )


def _dearest(rng: np.random.Generator, n: Names) -> Question:
    kind, count = _pick(rng, KINDS), int(rng.integers(2, 4))
    start = f"SELECT {n.name}, {n.price} FROM {n.items} WHERE {n.kind} = '{kind}' ORDER BY {n.price}"
    return Question(
        f"dearest {count} {kind}",
        f"List {n.name} and {n.price} of the {count} {n.items} with {n.kind} {kind} and the highest {n.price}, "
        "highest first.",
        f"{start} DESC LIMIT {count}",
        Wanted(kinds=[kind]),
        (f"{start} LIMIT {count}", f"{start} DESC"),
        ordered=True,
    )


def _one_not_other(rng: np.random.Generator, n: Names) -> Question:
    bought, missed = _two(rng, ITEMS)
    picked = f"SELECT c.{n.name} FROM {_all_joined(n)} WHERE i.{n.name} = "
    return Question(
        f"bought {bought} not {missed}",
        f"Which {n.customers} bought {bought} but never {missed}? List each {n.name} once.",
        f"{picked}'{bought}' EXCEPT {picked}'{missed}'",
        Wanted(items=[bought, missed]),
        (
            f"{picked}'{bought}' AND i.{n.name} <> '{missed}' GROUP BY c.id",
            f"{picked}'{missed}' EXCEPT {picked}'{bought}'",
        ),
    )


def _above_average(rng: np.random.Generator, n: Names) -> Question:
    kind = _pick(rng, KINDS)
    bought = f"FROM {_all_joined(n)} WHERE i.{n.kind} = '{kind}'"
    sums = f"SELECT c.{n.name} AS who, SUM(l.{n.qty}) AS pieces {bought} GROUP BY c.id"
    lines = f"SELECT AVG(l.{n.qty}) FROM {n.lines} l"
    return Question(
        f"above average {kind}",
        f"Sum {n.qty} of {n.items} with {n.kind} {kind} for each of the {n.customers} who bought any. "
        f"List {n.name} of those above the average of these sums.",
        f"WITH s AS ({sums}) SELECT who FROM s WHERE pieces > (SELECT AVG(pieces) FROM s)",
        Wanted(kinds=[kind]),
        (f"SELECT who FROM ({sums})", f"SELECT who FROM ({sums}) WHERE pieces > ({lines})"),
    )


def _best_of_each(rng: np.random.Generator, n: Names) -> Question:
    place, rank = (("highest", 1), ("second highest", 2))[int(rng.integers(2))]
    kind = _pick(rng, KINDS)
    sums = (
        f"SELECT c.{n.city} AS place, c.{n.name} AS who, SUM(l.{n.qty} * i.{n.price}) AS paid FROM {_all_joined(n)} "
        f"WHERE i.{n.kind} <> '{kind}' AND c.{n.city} IS NOT NULL GROUP BY c.id"
    )

    def ranked(function: str, order: str = " DESC") -> str:
        window = f"{function}() OVER (PARTITION BY place ORDER BY paid{order})"
        return f"SELECT place, who FROM (SELECT place, who, {window} AS r FROM ({sums})) WHERE r = {rank}"

    return Question(
        f"best of each {rank} {kind}",
        f"Leave out {n.items} with {n.kind} {kind}. For each {n.city}, list {n.city} and {n.name} of the {n.customers} "
        f"who paid the {place} sum of {n.qty} times {n.price} there.",
        ranked("RANK"),
        Wanted(kinds=[kind]),
        (ranked("RANK", ""), ranked("RANK").replace(f" AND c.{n.city} IS NOT NULL", "").replace("<>", "=")),
        (ranked("ROW_NUMBER"),),
    )


def _so_far(rng: np.random.Generator, n: Names) -> Question:
    name = _pick(rng, NAMES)
    mine = f"FROM {_all_joined(n)} WHERE c.{n.name} = '{name}'"
    sums = f"SELECT o.{n.day} AS at, SUM(l.{n.qty}) AS pieces {mine} GROUP BY o.id"
    return Question(
        f"so far {name}",
        f"For each of the {n.orders} of {name}, earliest {n.day} first: list {n.day} and the {n.qty} summed up to it.",
        f"SELECT at, SUM(pieces) OVER (ORDER BY at) FROM ({sums}) ORDER BY at",
        Wanted(names=[name]),
        (f"{sums} ORDER BY at", f"SELECT at, SUM(pieces) OVER (ORDER BY at) FROM ({sums}) ORDER BY at DESC"),
        ordered=True,
    )


def _busy_cities(rng: np.random.Generator, n: Names) -> Question:
    kind, least = _pick(rng, KINDS), int(rng.integers(3, 9))
    picked = f"WHERE i.{n.kind} = '{kind}' AND c.{n.city} IS NOT NULL"
    start = f"SELECT c.{n.city}, SUM(l.{n.qty}) FROM {_all_joined(n)} {picked}"
    grouped = f"{start} GROUP BY c.{n.city}"
    return Question(
        f"busy cities {kind} {least}",
        f"List each {n.city} whose {n.customers} bought {least} or more {n.items} with {n.kind} {kind} "
        f"(summed {n.qty}), and that sum.",
        f"{grouped} HAVING SUM(l.{n.qty}) >= {least}",
        Wanted(kinds=[kind]),
        (grouped, f"{start} AND l.{n.qty} >= {least} GROUP BY c.{n.city}"),
    )


def _share(rng: np.random.Generator, n: Names) -> Question:
    name, kind = _pick(rng, NAMES), _pick(rng, KINDS)
    paid = f"l.{n.qty} * i.{n.price}"
    part = f"SUM(CASE WHEN i.{n.kind} = '{kind}' THEN {paid} ELSE 0 END)"
    rest = f"FROM {_all_joined(n)} WHERE c.{n.name} = '{name}'"
    return Question(
        f"share {name} {kind}",
        f"Of all that {name} paid ({n.qty} times {n.price}), how many percent, not rounded, were for {n.kind} {kind}?",
        f"SELECT 100.0 * {part} / SUM({paid}) {rest}",
        Wanted(names=[name], kinds=[kind]),
        (f"SELECT 100 * {part} / SUM({paid}) {rest}", f"SELECT 1.0 * {part} / SUM({paid}) {rest}"),
    )


def _all_joined(n: Names) -> str:
    return (
        f"{n.customers} c JOIN {n.orders} o ON o.{n.customer_id} = c.id JOIN {n.lines} l ON l.{n.order_id} = o.id "
        f"JOIN {n.items} i ON i.id = l.{n.item_id}"
    )


LEVELS: dict[str, tuple[Maker, ...]] = {
    "easy": (_people, _price, _extreme, _cheap),
    "medium": (_orders_of, _spent, _never_sold, _buyers_of, _pieces_by_kind, _dearest),
    "hard": (_one_not_other, _above_average, _best_of_each, _so_far, _busy_cities, _share),
}
"""What makes the questions of a level."""
