"""Medium problems: loops, conditions and strings, in a function of a few lines."""

from collections.abc import Callable

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES, WORDS

from .problem import Arguments, Draft

__all__ = ["draw_medium"]

_LETTERS = "aeilnorst"
_MARKS = "-+/_:"


def draw_medium(rng: np.random.Generator) -> Draft:
    """Draw one of the problems below with numbers and letters of its own."""
    return _KINDS[int(rng.integers(len(_KINDS)))](rng)


def _range(rng: np.random.Generator) -> Draft:
    by = int(rng.integers(3, 10))
    rest = int(rng.integers(0, by))
    said, gain = [("Sum", "i"), ("Count", "1"), ("Sum the squares of", "i * i")][int(rng.integers(3))]
    return Draft(
        f"f(n): {said} the numbers from 1 to n that leave the rest {rest} by {by}.",
        "def f(n):\n    total = 0\n    for i in range(1, n + 1):\n"
        f"        if i % {by} == {rest}:\n            total += {gain}\n    return total",
        _whole(10, 60),
        slips=(("n + 1", "n"), ("==", "!="), (f"% {by}", f"% {by + 1}"), ("total = 0", "total = 1")),
        edges=((0,), (by,)),
    )


def _steps(rng: np.random.Generator) -> Draft:
    below, less = int(rng.integers(2, 9)), int(rng.integers(1, 6))
    return Draft(
        f"f(n): Until n is below {below}: halve it if it is even, else subtract {less}. Count the steps.",
        f"def f(n):\n    steps = 0\n    while n >= {below}:\n        if n % 2 == 0:\n            n //= 2\n"
        f"        else:\n            n -= {less}\n        steps += 1\n    return steps",
        _whole(8, 200),
        slips=((f">= {below}", f"> {below}"), ("== 0", "== 1"), ("steps = 0", "steps = 1")),
        edges=((below,), (below - 1,)),
    )


def _letters(rng: np.random.Generator) -> Draft:
    wanted = _some_letters(rng, 3)
    return Draft(
        f"f(s): Count the letters of s that are in {wanted!r}.",
        f"def f(s):\n    count = 0\n    for letter in s:\n        if letter in {wanted!r}:\n"
        "            count += 1\n    return count",
        _text(1, 3),
        slips=((" in '", " not in '"), ("count = 0", "count = 1"), (repr(wanted), repr(wanted[:-1]))),
        edges=(("",), (wanted * 2,)),
    )


def _without(rng: np.random.Generator) -> Draft:
    dropped = _some_letters(rng, 2)
    said, ending, slip = [
        (", backwards", "[::-1]", ""),
        (", in upper case", ".upper()", ".lower()"),
        (", twice", " * 2", " * 3"),
    ][int(rng.integers(3))]
    return Draft(
        f"f(s): s without the letters {dropped[0]} and {dropped[1]}{said}.",
        f"def f(s):\n    kept = ''\n    for letter in s:\n        if letter not in {dropped!r}:\n"
        f"            kept += letter\n    return kept{ending}",
        _text(1, 2),
        slips=((f"return kept{ending}", f"return kept{slip}"), ("not in", "in"), (repr(dropped), repr(dropped[0]))),
        edges=(("",), (dropped,)),
    )


def _words(rng: np.random.Generator) -> Draft:
    length, mark = int(rng.integers(4, 7)), _MARKS[int(rng.integers(len(_MARKS)))]
    said, sign = [("more than", ">"), ("fewer than", "<")][int(rng.integers(2))]
    return Draft(
        f"f(s): Join the words of s that have {said} {length} letters with {mark!r}.",
        f"def f(s):\n    kept = []\n    for word in s.split():\n        if len(word) {sign} {length}:\n"
        f"            kept.append(word)\n    return {mark!r}.join(kept)",
        _text(3, 6),
        slips=((f" {sign} ", f" {sign}= "), (f" {sign} ", " != "), (repr(mark), "' '")),
        edges=(("",),),
    )


def _digits(rng: np.random.Generator) -> Draft:
    above, by = int(rng.integers(1, 7)), int(rng.integers(2, 10))
    return Draft(
        f"f(n): Sum the digits of n that are above {above}, then multiply by {by}.",
        f"def f(n):\n    total = 0\n    for digit in str(n):\n        if int(digit) > {above}:\n"
        f"            total += int(digit)\n    return total * {by}",
        _whole(100, 99999),
        slips=((f"> {above}", f">= {above}"), (f"* {by}", f"+ {by}"), (f"* {by}", f"* {by + 1}")),
        edges=((0,), (int(str(above) * 3),)),
    )


def _bands(rng: np.random.Generator) -> Draft:
    low = int(rng.integers(2, 30))
    high = low + int(rng.integers(5, 40))
    under, over, between = (WORDS[int(at)] for at in rng.choice(len(WORDS), size=3, replace=False))
    return Draft(
        f"f(n): {under!r} if n is below {low}, {over!r} if it is above {high}, else {between!r}.",
        f"def f(n):\n    if n < {low}:\n        return {under!r}\n    if n > {high}:\n        return {over!r}\n"
        f"    return {between!r}",
        _whole(0, 80),
        slips=((f"< {low}", f"> {low}"), (f"> {high}", f"> {low}"), (repr(under), repr(over))),
        edges=((low,), (high,), (low - 1,), (high + 1,)),
    )


def _sequence(rng: np.random.Generator) -> Draft:
    first, second, extra = (int(number) for number in rng.integers(1, 7, 3))
    return Draft(
        f"f(n): The numbers start with {first}, {second}; each next one is the sum of the last two plus {extra}. "
        "Return number n, from 0.",
        f"def f(n):\n    a, b = {first}, {second}\n    for _ in range(n):\n        a, b = b, a + b + {extra}\n"
        "    return a",
        _whole(2, 12),
        slips=(("return a", "return b"), (f" + {extra}", ""), ("range(n)", "range(n - 1)")),
        edges=((0,), (1,)),
    )


def _shift(rng: np.random.Generator) -> Draft:
    by = int(rng.integers(1, 26))
    return Draft(
        f"f(s): Move each letter of s {by} on in the alphabet; after z comes a. Keep spaces.",
        "def f(s):\n    moved = ''\n    for letter in s:\n        if letter == ' ':\n            moved += letter\n"
        f"        else:\n            moved += chr((ord(letter) - 97 + {by}) % 26 + 97)\n    return moved",
        _text(1, 2),
        slips=((" % 26", ""), (f"+ {by}", f"- {by}"), (f"+ {by}", f"+ {by + 1}")),
        edges=(("",), ("z a",)),
    )


def _every(rng: np.random.Generator) -> Draft:
    by, mark = int(rng.integers(2, 5)), _MARKS[int(rng.integers(len(_MARKS)))]
    start = int(rng.integers(0, by))
    return Draft(
        f"f(s): Take every letter of s whose index leaves the rest {start} by {by}, joined with {mark!r}.",
        f"def f(s):\n    taken = []\n    for index in range(len(s)):\n        if index % {by} == {start}:\n"
        f"            taken.append(s[index])\n    return {mark!r}.join(taken)",
        _text(1, 2),
        slips=((f"% {by}", f"% {by + 1}"), (f"== {start}", f"== {(start + 1) % by}"), (repr(mark), "''")),
        edges=(("",), ("a",)),
    )


def _whole(low: int, high: int) -> Callable[[np.random.Generator], Arguments]:
    return lambda rng: (int(rng.integers(low, high)),)


def _text(fewest: int, most: int) -> Callable[[np.random.Generator], Arguments]:
    pool = (*ITEMS, *NAMES, *WORDS)

    def draw(rng: np.random.Generator) -> Arguments:
        return (" ".join(pool[int(at)] for at in rng.integers(0, len(pool), int(rng.integers(fewest, most + 1)))),)

    return draw


def _some_letters(rng: np.random.Generator, count: int) -> str:
    return "".join(sorted(_LETTERS[int(at)] for at in rng.choice(len(_LETTERS), size=count, replace=False)))


_KINDS: tuple[Callable[[np.random.Generator], Draft], ...] = (
    _range,
    _steps,
    _letters,
    _without,
    _words,
    _digits,
    _bands,
    _sequence,
    _shift,
    _every,
)
