"""A calculator: reads an expression of numbers, + - * / and brackets, and computes it exactly.

A hand-written parser over fractions; nothing is ever given to Python to run. A mistake names its characters, so that a
charge can land on them alone.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from accredit.envs.errors import ToolError

__all__ = ["calculate", "show", "tokenize"]

_TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]+)?)|([-+*/()]))")
_LONGEST = 200
_DIGITS = 12
_DEEPEST = 50
_DECIMALS = 6
_ARGUMENT = "expression"


@dataclass(frozen=True, slots=True)
class Token:
    """A number or a sign, and its half-open characters in the expression."""

    text: str
    start: int
    end: int

    @property
    def is_number(self) -> bool:
        """Whether it is a number."""
        return self.text[0].isdigit()


def tokenize(expression: str) -> list[Token]:
    """Cut an expression into numbers and signs.

    Raises:
        ToolError: a character is neither, or the expression or a number is too long.

    """
    if len(expression) > _LONGEST:
        raise _fault(f"{len(expression)} characters: expected at most {_LONGEST}", _LONGEST, len(expression))
    tokens: list[Token] = []
    at = 0
    while expression[at:].strip():
        found = _TOKEN.match(expression, at)
        if found is None:
            start = at + len(expression[at:]) - len(expression[at:].lstrip())
            raise _fault(f"cannot read {expression[start]!r}", start, start + 1)
        at = found.end()
        text = found[1] or found[2]
        if len(text) > _DIGITS:
            raise _fault(f"a number of {len(text)} characters: expected at most {_DIGITS}", at - len(text), at)
        tokens.append(Token(text, at - len(text), at))
    return tokens


def calculate(expression: str, most_steps: int | None = None) -> Fraction:
    """Compute an expression exactly.

    `most_steps` bounds the number of binary operations.

    Raises:
        ToolError: the expression is not one, divides by zero, or takes more steps; with the range of the mistake.

    """
    reader = _Reader(tokenize(expression), len(expression), most_steps)
    value = reader.sum(0)
    reader.expect_end()
    return value


def show(value: Fraction) -> str:
    """Write a number: whole numbers as such, others with up to six decimals."""
    if value.denominator == 1:
        return str(value.numerator)
    text = f"{float(value):.{_DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _fault(message: str, start: int, end: int) -> ToolError:
    return ToolError(message, argument=_ARGUMENT, source_range=(start, end))


class _Reader:
    """Recursive descent: sums of products of signed numbers and brackets."""

    def __init__(self, tokens: list[Token], length: int, most_steps: int | None) -> None:
        self._tokens = tokens
        self._at = 0
        self._length = length
        self._steps_left = most_steps

    def sum(self, depth: int) -> Fraction:
        value = self._product(depth)
        while (sign := self._take("+-")) is not None:
            self._count(sign)
            other = self._product(depth)
            value = value + other if sign.text == "+" else value - other
        return value

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            token = self._tokens[self._at]
            raise _fault(f"expected a sign before {token.text!r}", token.start, token.end)

    def _product(self, depth: int) -> Fraction:
        value = self._signed(depth)
        while (sign := self._take("*/")) is not None:
            self._count(sign)
            start = self._at
            other = self._signed(depth)
            if sign.text == "*":
                value *= other
            elif other:
                value /= other
            else:
                raise _fault("division by zero", self._tokens[start].start, self._tokens[self._at - 1].end)
        return value

    def _signed(self, depth: int) -> Fraction:
        negative = False
        while (sign := self._take("+-")) is not None:
            negative ^= sign.text == "-"
        value = self._bracket(depth) if self._peek("(") else self._number()
        return -value if negative else value

    def _bracket(self, depth: int) -> Fraction:
        opened = self._tokens[self._at]
        if depth == _DEEPEST:
            raise _fault(f"more than {_DEEPEST} nested brackets", opened.start, opened.end)
        self._at += 1
        value = self.sum(depth + 1)
        if self._take(")") is None:
            raise _fault("this bracket is not closed", opened.start, opened.end)
        return value

    def _number(self) -> Fraction:
        if self._at == len(self._tokens):
            raise _fault("expected a number at the end", max(0, self._length - 1), self._length)
        token = self._tokens[self._at]
        if not token.is_number:
            raise _fault(f"expected a number, found {token.text!r}", token.start, token.end)
        self._at += 1
        return Fraction(token.text)

    def _count(self, sign: Token) -> None:
        if self._steps_left is None:
            return
        if self._steps_left == 0:
            raise _fault("more than one operation in a call", sign.start, sign.end)
        self._steps_left -= 1

    def _peek(self, signs: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].text in signs

    def _take(self, signs: str) -> Token | None:
        if not self._peek(signs):
            return None
        self._at += 1
        return self._tokens[self._at - 1]
