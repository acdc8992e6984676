"""Calls in a message: where they are, what they ask, and what is wrong with them.

Pure text in, half-open character ranges out. Bad text of a model never raises: a broken call becomes a `ParsedCall`
with a fault and its neighbours stay as they are. This module runs no tool and knows no schema.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from accredit.credit import CallStatus

from .errors import ParseError

__all__ = ["CALL_FORMATS", "CallFault", "CharRange", "ParsedCall", "ParsedMessage", "parse_calls"]

CharRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CallFault:
    """What is wrong with a call before it runs, and the characters [start, end) to charge for it."""

    status: CallStatus
    message: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """One call of a message; all ranges are characters of the message.

    Attributes:
        start, end: the call with its markers.
        id: unique in the message ("call_0", "call_1", ...).
        name: the tool asked for, "" if unreadable.
        name_range: the name's value with its quotes, None if unreadable.
        arguments: None if unreadable; a call without arguments has {}.
        argument_ranges: range of each value by JSON path ("$.item", "$.lines[0].qty"); strings include their quotes.
        fault: None if the call may run.
        repairs: what had to be read generously ("duplicate_key $.item"); empty for a call that is right as it stands.

    """

    start: int
    end: int
    id: str
    name: str
    name_range: CharRange | None
    arguments: dict[str, Any] | None
    argument_ranges: Mapping[str, CharRange] = field(default_factory=dict)
    fault: CallFault | None = None
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A message and its calls in order. `content` is the text outside the calls, stripped."""

    text: str
    content: str
    calls: tuple[ParsedCall, ...]


CALL_FORMATS: dict[str, Callable[[str], ParsedMessage]] = {}
"""Parsers by name. A parser takes any text and never raises for it."""


def parse_calls(text: str, call_format: str = "hermes") -> ParsedMessage:
    """Find the calls of an assistant's message.

    Raises:
        ParseError: the format is unknown. Never for the text.

    """
    parse = CALL_FORMATS.get(call_format)
    if parse is None:
        near = get_close_matches(call_format, CALL_FORMATS, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(CALL_FORMATS))}"
        raise ParseError(f"unknown call format '{call_format}': {hint}")
    return parse(text)
