"""What a message of the assistant turns out to say: its calls, where each part of them stands, and what is wrong.

Data only; all ranges are half-open character ranges of the message.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accredit.credit import CallStatus

__all__ = ["CallFault", "CharRange", "ParsedCall", "ParsedMessage"]

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
