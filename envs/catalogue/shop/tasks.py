"""Drawing a Shop task: requests, their text, and the world around them.

A task's identity is what is asked (who, what, how many, how shipped), not its seed, wording or world. The side of the
split is a hash of the identity, so no held-out task is ever seen in training, whatever the seeds are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES

from .rules import DAYS_LIMIT, QTY_LIMIT
from .world import Change, Line, Order, Request, Return, World, make_world

__all__ = ["LEVELS", "ShopTask", "draw_task", "identity", "request_text"]

_ORDER_TEXTS = (
    "Order {lines} for {name}, ship {ship}.",
    "{name} wants {lines}, ship {ship}.",
    "Please send {lines} to {name}, ship {ship}.",
    "{name}: {lines}, ship {ship}.",
)
_RETURN_TEXTS = ("Return {qty} {item} for {name}.", "{name} returns {qty} {item}.")


@dataclass(frozen=True, slots=True)
class ShopTask:
    """One drawn task. `world`, if given, is used instead of the one that `world_seed` stands for."""

    level: str
    requests: tuple[Request, ...]
    prompt: str
    world_seed: int = 0
    world: World | None = None

    def make_world(self) -> World:
        """Build the task's world, the same at every call."""
        if self.world is not None:
            return self.world
        return make_world(
            np.random.default_rng(self.world_seed),
            self.requests,
            short_rate=0.3,
            zero_only=self.level == "easy",
            limit=QTY_LIMIT,
            days_limit=DAYS_LIMIT,
        )


def draw_task(rng: np.random.Generator, level: str) -> ShopTask:
    """Draw one task of a level."""
    requests = LEVELS[level](rng)
    prompt = " ".join(request_text(rng, request) for request in requests)
    return ShopTask(level, requests, prompt, world_seed=int(rng.integers(2**53)))


def identity(requests: Sequence[Request]) -> str:
    """Write what is asked as one canonical line, independent of the order of requests and lines."""
    parts: list[str] = []
    for request in requests:
        if isinstance(request, Return):
            parts.append(f"{request.name}<{request.qty} {request.item}")
            continue
        lines = sorted(f"{line.qty} {line.item}/{line.substitute or ''}" for line in request.lines)
        parts.append(f"{request.name}>{','.join(lines)}>{'fast' if request.fast else 'slow'}")
    return "; ".join(sorted(parts))


def request_text(rng: np.random.Generator, request: Request) -> str:
    """Put a request into a customer's words, one of a few phrasings."""
    if isinstance(request, Return):
        text = _RETURN_TEXTS[int(rng.integers(len(_RETURN_TEXTS)))]
        return text.format(name=request.name, qty=request.qty, item=request.item)
    lines = ", ".join(
        f"{line.qty} {line.item}" + (f" or {line.substitute}" if line.substitute else "") for line in request.lines
    )
    text = _ORDER_TEXTS[int(rng.integers(len(_ORDER_TEXTS)))]
    return text.format(lines=lines, name=request.name, ship="fast" if request.fast else "slow")


def _take(rng: np.random.Generator, words: Sequence[str], count: int) -> list[str]:
    return [words[int(index)] for index in rng.choice(len(words), size=count, replace=False)]


def _easy(rng: np.random.Generator) -> tuple[Request, ...]:
    (name,), (item,) = _take(rng, NAMES, 1), _take(rng, ITEMS, 1)
    return (Order(name, (Line(item, int(rng.integers(1, QTY_LIMIT + 1))),), fast=bool(rng.random() < 0.7)),)


def _order(rng: np.random.Generator, name: str, items: list[str], *, substitutes: int, change: bool) -> Order:
    """Draw an order of 2 or 3 lines; its items are taken from the end of `items`."""
    count = int(rng.integers(2, 4))
    with_substitute = set(_take(rng, [str(number) for number in range(count)], int(rng.integers(0, substitutes + 1))))
    changed = int(rng.integers(count)) if change and rng.random() < 0.7 else None
    lines: list[Line] = []
    for number in range(count):
        qty = int(rng.integers(1, 10))
        substitute = items.pop() if str(number) in with_substitute else None
        new = _change(rng, qty, may_drop=number > 0) if number == changed else None
        lines.append(Line(items.pop(), qty, substitute, new))
    return Order(name, tuple(lines), fast=bool(rng.random() < 0.7))


def _change(rng: np.random.Generator, qty: int, *, may_drop: bool) -> Change:
    if may_drop and rng.random() < 0.3:
        return Change(0)
    return Change(int(rng.choice([other for other in range(1, 10) if other != qty])))


def _medium(rng: np.random.Generator) -> tuple[Request, ...]:
    (name,) = _take(rng, NAMES, 1)
    return (_order(rng, name, _take(rng, ITEMS, 6), substitutes=2, change=False),)


def _hard(rng: np.random.Generator) -> tuple[Request, ...]:
    kinds = ("oo", "oor", "orr")[int(rng.integers(3))]
    names, items = _take(rng, NAMES, len(kinds)), _take(rng, ITEMS, 14)
    requests: list[Request] = []
    for name, kind in zip(names, kinds, strict=True):
        if kind == "o":
            requests.append(_order(rng, name, items, substitutes=1, change=True))
        else:
            requests.append(Return(name, items.pop(), int(rng.integers(1, 8))))
    return tuple(requests[int(index)] for index in rng.permutation(len(requests)))


LEVELS: dict[str, Callable[[np.random.Generator], tuple[Request, ...]]] = {
    "easy": _easy,
    "medium": _medium,
    "hard": _hard,
}
