"""Where in a query's text its error lies: SQLite's own position where it gives one, else the name that it names.

A small scanner of SQL's tokens; it parses nothing. Places are half-open ranges of characters.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["keyword_place", "place_of", "second_statement", "unusable"]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+ | --[^\n]* | /\*.*?(?:\*/|\Z))
  | (?P<text>'(?:[^']|'')*(?:'|\Z))
  | (?P<quoted>"(?:[^"]|"")*(?:"|\Z) | `(?:[^`]|``)*(?:`|\Z) | \[[^\]]*(?:\]|\Z))
  | (?P<blob>[xX]'[^']*(?:'|\Z))
  | (?P<number>0[xX][0-9a-fA-F]+ | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<variable>\?\d* | [:@$][^\W]\w*)
  | (?P<word>[^\W\d][\w$]*)
  | (?P<sign>\|\| | <= | >= | <> | != | == | << | >> | ->> | -> | .)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMED = re.compile(
    r"(?:no such (?:table|column|function|collation sequence|window): |cannot join using column |"
    r"not authorized to use function: |access to |no such table-valued function: )(?P<name>[^\s]+)"
)


class Token(NamedTuple):
    """One token, `[start, end)`; `kind` is a group of the scanner."""

    start: int
    end: int
    kind: str
    text: str


def place_of(sql: str, message: str, offset: int) -> tuple[int, int] | None:
    """Return the token that an error of SQLite is about, None if that cannot be told.

    Args:
        sql: the query.
        message: what SQLite says.
        offset: the byte of the query where SQLite saw the error, -1 for none.

    """
    tokens = list(_tokens(sql))
    if not tokens:
        return None
    if offset >= 0:
        at = len(sql.encode("utf-8", "replace")[:offset].decode("utf-8", "ignore"))
        index = next((number for number, token in enumerate(tokens) if token.end > at), len(tokens) - 1)
        return _whole_name(tokens, index, message)
    if message == "incomplete input":
        return tokens[-1].start, tokens[-1].end
    named = _NAMED.search(message)
    if named is None:
        return None
    wanted = named["name"].casefold().split(".")
    for part in (wanted[0],) if "prohibited" in message else (wanted[-1], wanted[0]):  # a table is, not its column
        for token in tokens:
            if token.kind in ("word", "quoted") and _bare(token.text) == part:
                return token.start, token.end
    return None


def keyword_place(sql: str) -> tuple[int, int, str]:
    """Return the place of the first token, and the token in capitals; "" where the text holds none."""
    first = next(_tokens(sql), None)
    return (0, 0, "") if first is None else (first.start, first.end, first.text.upper())


def second_statement(sql: str) -> tuple[int, int] | None:
    """Return the first token after the first statement's end, None if there is none."""
    ended = False
    for token in _tokens(sql):
        if ended and token.text != ";":
            return token.start, token.end
        ended = ended or token.text == ";"
    return None


def unusable(sql: str) -> tuple[int, int] | None:
    """Return the first token that no query here may hold: a placeholder, which nothing fills, or a null character."""
    for token in _tokens(sql):
        if token.kind == "variable" or "\0" in token.text:
            return token.start, token.end
    return None


def _tokens(sql: str) -> Iterator[Token]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup or "sign"
        if kind != "space":
            yield Token(found.start(), found.end(), kind, found.group())


def _whole_name(tokens: list[Token], index: int, message: str) -> tuple[int, int]:
    """Return the token at `index`, with the rest of a name like `orders.total` where the message is about all of it."""
    named, last = _NAMED.search(message), index
    if named is not None:
        for _ in range(named["name"].count(".")):
            if [token.text for token in tokens[last + 1 : last + 2]] == ["."] and last + 2 < len(tokens):
                last += 2
    return tokens[index].start, tokens[last].end


def _bare(name: str) -> str:
    return name.strip('"`[]').casefold()
