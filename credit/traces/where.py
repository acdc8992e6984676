"""The filter of stored episodes, a few words: `reward<0 error:timeout tool:python`, `reward < 0 and not unscored`.

It is one language: that of `--where`, of `episodes(where=...)`, and of the field on the replay page (`page/query.js`
reads it there), which also searches the text for whatever is no condition.

A condition is a field, a sign and a value, with or without spaces between; a value with spaces stands in double
quotes. Conditions stand beside each other or are joined by `and`, and all must hold; `not` or `!` before one turns it
around. There is no `or`, no bracket, and nothing is evaluated as code.

    numbers    step reward turns tokens charges charged credit advantage
    texts      id split group env task stop
    lists      tool error

Signs: `<` `<=` `>` `>=` `=` (also `==`) `!=`; `:` is equality of numbers and containment in texts and lists, whatever
the case, where `=` is the whole text in its case. `credit<-0.5` holds if a decision token has such a credit; `charged`
is the sum of the charges' amounts, in reward; `error` has the statuses of calls that did not run, and the reasons of
charges. `unscored`, which stands alone, or `reward:none` finds unscored episodes: no other condition on their reward
holds, since unscored is not 0. A number is decimal, such as `-0.5`, `1e-3`, `10_000`, or `inf`.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Never

import numpy as np

from accredit.credit.errors import TraceError
from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Trajectory

from .schema import IndexRow
from .summary import summary_of

__all__ = ["FIELDS", "Condition", "parse_where"]

_IN_INDEX = {
    **{name: name for name in ("step", "reward", "turns", "tokens", "charges", "split", "group", "stop")},
    "id": "episode_id",
    "env": "env_id",
    "task": "task_id",
}
_IN_SUMMARY = {"charged": "charged", "tool": "tools", "error": "errors"}
_NUMBERS = ("step", "reward", "turns", "tokens", "charges", "charged", "credit", "advantage")
_TEXTS = ("id", "split", "group", "env", "task", "stop")
_LISTS = ("tool", "error")
FIELDS = (*_NUMBERS, *_TEXTS, *_LISTS)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
_SIGN = re.compile(r"<=|>=|==|!=|[<>=:]")
_WORD = re.compile(r"[A-Za-z_]+")
_AND = re.compile(r"and(?![A-Za-z_])\s*")
_NOT = re.compile(r"(?:not(?![A-Za-z_])|!(?!=))\s*")
_VALUE = re.compile(r'"([^"]*)"|([^\s"]+)')
_DIGITS = "[0-9](?:_?[0-9])*"
_NUMBER = re.compile(rf"[+-]?(?:(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?|inf)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. `value` is a number for fields that are numbers (None: unscored), else a text."""

    field: str
    sign: str
    value: float | str | None
    negated: bool = False

    @property
    def is_number(self) -> bool:
        """Whether its field is a number."""
        return self.field in _NUMBERS

    @property
    def column(self) -> str | None:
        """The column of the index, or of its summary, that answers it; None where only the episode does."""
        if self.field == "credit" and self.sign[0] in "<>":
            return "credit_low" if self.sign[0] == "<" else "credit_high"
        return _IN_INDEX.get(self.field) or _IN_SUMMARY.get(self.field)

    def of_value(self, value: Any) -> bool:
        """Whether it holds for a value of its column."""
        return self._settled_by_any(value) if self.field in _LISTS else self._settled(value)

    def of_index(self, row: IndexRow) -> bool | None:
        """Whether it holds for an index row; None: the row does not say, read the episode."""
        holder = row if self.field in _IN_INDEX else row.summary
        return None if holder is None or self.column is None else self.of_value(getattr(holder, self.column))

    def of_episode(self, trajectory: Trajectory, credit: Credit | None) -> bool:
        """Whether it holds for an episode, where its index row does not say."""
        if self.field in _IN_SUMMARY:
            return self.of_value(getattr(summary_of(trajectory, credit), _IN_SUMMARY[self.field]))
        if credit is None:
            return self.negated
        total_T = (credit.credit if self.field == "credit" else credit.advantage).total
        return bool(np.any(_COMPARE[self.sign](total_T[trajectory.credit_mask], self.value))) is not self.negated

    def _settled(self, found: Any) -> bool:
        if isinstance(self.value, str) and self.sign == ":":
            holds = self.value.lower() in str(found).lower()
        elif self.value is None or found is None:
            holds = (found is self.value) is not (self.sign == "!=") if self.value is None else False
        else:
            holds = bool(_COMPARE[self.sign](found, self.value))
        return holds is not self.negated

    def _settled_by_any(self, words: Sequence[str]) -> bool:
        wanted = str(self.value)
        if self.sign == ":":
            holds = any(wanted.lower() in word.lower() for word in words)
        else:
            holds = (wanted in words) is not (self.sign == "!=")
        return holds is not self.negated


def parse_where(text: str) -> tuple[Condition, ...]:
    """Return the conditions of a filter; none for an empty text.

    Raises:
        TraceError: it cannot be read, with the position, what was expected, and the nearest field.

    """
    conditions: list[Condition] = []
    at = _skip(text, 0)
    while at < len(text):
        if conditions and (joined := _AND.match(text, at)):
            at = joined.end()
        if negated := (turned := _NOT.match(text, at)) is not None:
            at = turned.end()
        word, after = _word(text, at)
        if word == "unscored":
            conditions.append(Condition("reward", "=", None, negated))
            at = _skip(text, after)
            continue
        if word not in FIELDS:
            _refuse_field(text, at, word)
        at = _skip(text, after)
        sign = _SIGN.match(text, at)
        if sign is None:
            _fail(text, at, f"expected a sign after '{word}' (< <= > >= = != :)")
        if word not in _NUMBERS and sign[0][0] in "<>":
            _fail(text, at, f"expected '=', '!=' or ':' after '{word}', which is a text")
        value, at = _value(text, _skip(text, sign.end()), word, sign[0])
        conditions.append(Condition(word, _named(word, sign[0]), value, negated))
        at = _skip(text, at)
    return tuple(conditions)


def _named(field: str, sign: str) -> str:
    """Return the sign in its one spelling; `:` of a number is equality."""
    return "=" if sign == "==" or (sign == ":" and field in _NUMBERS) else sign


def _value(text: str, at: int, field: str, sign: str) -> tuple[float | str | None, int]:
    found = _VALUE.match(text, at)
    what = "a number" if field in _NUMBERS else "a text"
    if found is None:
        _fail(text, at, f"expected {what} after '{field}{sign}'")
    value = found[2] if found[1] is None else found[1]
    if field not in _NUMBERS:
        return value, found.end()
    if field == "reward" and value.lower() in ("none", "unscored"):
        if sign[0] in "<>":
            _fail(text, at, "expected a number to compare with: an unscored episode has no place in the order")
        return None, found.end()
    if _NUMBER.fullmatch(value) is None:
        _fail(text, at, f"expected a number after '{field}{sign}'")
    return float(value), found.end()


def _word(text: str, at: int) -> tuple[str, int]:
    found = _WORD.match(text, at)
    if found is None:
        searched = " (the text of episodes is searched on the page only)" if text[at : at + 1] in ('"', "/") else ""
        _fail(text, at, f"expected a field, such as reward or tool{searched}")
    return found[0], found.end()


def _refuse_field(text: str, at: int, word: str) -> Never:
    if word == "or":
        _fail(text, at, "expected a field: conditions are joined by 'and' only; filter twice for 'or'")
    near = get_close_matches(word, FIELDS, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"the fields are {', '.join(FIELDS)}"
    _fail(text, at, f"expected a field ({hint})")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _fail(text: str, at: int, expected: str) -> Never:
    rest = text[at:].split()
    found = f"'{rest[0]}'" if rest else "its end"
    raise TraceError(f"the filter {text!r} cannot be read at character {at + 1}: {expected}, found {found}")
