"""Expressions as token lists: drawing them, and taking them apart one operation at a time.

A drawn expression has whole numbers all the way: every intermediate result is a whole number from 0 to a limit, and
every division comes out even; and its order matters: read from left to right, past all brackets, it gives another
number. Nothing here talks to a policy.
"""

from fractions import Fraction

import numpy as np

__all__ = ["LARGEST", "Tokens", "draw_expression", "next_step", "reduce_step", "without_brackets"]

Tokens = list[str]

LARGEST = 99

_SIGNS = "++++++------*****//"
"""Signs as often as they are drawn: division seldom comes out even."""

_PRECEDENCE = {"*": 2, "/": 2, "+": 1, "-": 1}


def draw_expression(rng: np.random.Generator, operations: int) -> Tokens:
    """Draw an expression of `operations` operations, bracketed where its order of reading needs it."""
    while True:
        tokens = _draw(rng, operations, 0)
        value = _whole_value(tokens)
        if value is not None and _left_to_right(tokens) != value:
            return tokens


def _draw(rng: np.random.Generator, operations: int, parent: int) -> Tokens:
    if operations == 0:
        return [str(int(rng.integers(1, 10)))]
    sign = _SIGNS[int(rng.integers(len(_SIGNS)))]
    left = int(rng.integers(operations))
    own = _PRECEDENCE[sign]
    tokens = [*_draw(rng, left, own - 1), sign, *_draw(rng, operations - 1 - left, own)]
    return ["(", *tokens, ")"] if own <= parent else tokens


def _whole_value(tokens: Tokens) -> int | None:
    """Compute the expression; None if any result on the way is not a whole number in the limits."""
    while len(tokens) > 1:
        at = next_step(tokens)
        value = _apply(tokens[at], Fraction(tokens[at - 1]), Fraction(tokens[at + 1]))
        if value is None or value.denominator != 1 or not 0 <= value <= LARGEST:
            return None
        tokens = reduce_step(tokens, at, str(value))
    return int(tokens[0])


def _left_to_right(tokens: Tokens) -> Fraction | None:
    """Compute without brackets and precedence; None where that divides by zero."""
    bare, _ = without_brackets(tokens)
    value: Fraction | None = Fraction(bare[0])
    for sign, number in zip(bare[1::2], bare[2::2], strict=True):
        value = None if value is None else _apply(sign, value, Fraction(number))
    return value


def _apply(sign: str, left: Fraction, right: Fraction) -> Fraction | None:
    if sign == "/":
        return left / right if right else None
    return left + right if sign == "+" else left - right if sign == "-" else left * right


def next_step(tokens: Tokens) -> int:
    """Return the index of the sign to compute first: in the first innermost bracket, by precedence, from the left."""
    start, end = 0, len(tokens)
    if ")" in tokens:
        end = tokens.index(")")
        start = end - 1 - tokens[:end][::-1].index("(") + 1
    signs = [at for at in range(start, end) if tokens[at] in _PRECEDENCE]
    return max(signs, key=lambda at: (_PRECEDENCE[tokens[at]], -at))


def reduce_step(tokens: Tokens, at: int, result: str) -> Tokens:
    """Put the result of the operation at `at` in its place, and drop brackets around a lone number."""
    before, after = tokens[: at - 1], tokens[at + 2 :]
    while before and after and before[-1] == "(" and after[0] == ")":
        before, after = before[:-1], after[1:]
    return [*before, result, *after]


def without_brackets(tokens: Tokens) -> tuple[Tokens, int]:
    """Return the tokens with no brackets, and the index of the first sign: what a careless reader computes first."""
    bare = [token for token in tokens if token not in "()"]
    return bare, 1
