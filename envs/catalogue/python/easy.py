"""Easy problems: one expression in one or two whole numbers, said as steps in the order in which they are done."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .problem import Arguments, Draft

__all__ = ["draw_easy"]


class _Part(NamedTuple):
    """An expression, and how loosely it is bound: 0 an atom, 1 a product, 2 a sum."""

    text: str
    loose: int


_Step = Callable[[_Part, str], _Part]


def _bound(part: _Part, most: int) -> str:
    return f"({part.text})" if part.loose > most else part.text


_STEPS: dict[str, _Step] = {
    "add {}": lambda part, by: _Part(f"{_bound(part, 2)} + {by}", 2),
    "subtract {}": lambda part, by: _Part(f"{_bound(part, 2)} - {by}", 2),
    "multiply by {}": lambda part, by: _Part(f"{_bound(part, 1)} * {by}", 1),
    "take the rest by {}": lambda part, by: _Part(f"{_bound(part, 1)} % {by}", 1),
    "make it at least {}": lambda part, by: _Part(f"max({part.text}, {by})", 0),
    "make it at most {}": lambda part, by: _Part(f"min({part.text}, {by})", 0),
}
_WITH_Y = ("add {}", "subtract {}", "multiply by {}")
_SWAPS = ((" + ", " - "), (" - ", " + "), (" * ", " + "), (" % ", " // "), ("max(", "min("), ("min(", "max("))


def draw_easy(rng: np.random.Generator) -> Draft:
    """Draw two different steps; one of them uses `y` now and then."""
    names = list(_STEPS)
    first, second = (names[int(at)] for at in rng.choice(len(names), size=2, replace=False))
    numbers = [str(int(number)) for number in rng.integers(2, 10, 2)]
    two = rng.random() < 0.3
    if two:
        at = int(rng.integers(2))
        numbers[at] = "y"
        if (first, second)[at] not in _WITH_Y:
            other = (second, first)[at]
            plain = [step for step in _WITH_Y if step != other]
            chosen = plain[int(rng.integers(len(plain)))]
            first, second = (chosen, second) if at == 0 else (first, chosen)
    part = _Part("x", 0)
    for step, number in zip((first, second), numbers, strict=True):
        part = _STEPS[step](part, number)
    head = "f(x, y)" if two else "f(x)"
    steps = f"{first.format(numbers[0])}, {second.format(numbers[1])}"
    return Draft(
        text=f"{head}: take x, {steps}.",
        source=f"def {head}: return {part.text}",
        draw=lambda drawing: _arguments(drawing, 1 + two),
        slips=_slips(part.text),
    )


def _arguments(rng: np.random.Generator, count: int) -> Arguments:
    return tuple(int(number) for number in rng.integers(0, 20, count))


def _slips(text: str) -> tuple[tuple[str, str], ...]:
    """Brackets forgotten, an operation taken for its opposite."""
    bare = ((text, text.replace("(x", "x").replace(") *", " *").replace(") %", " %")),) if text.startswith("(") else ()
    return (*bare, *((old, new) for old, new in _SWAPS if old in text))
