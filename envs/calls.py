"""Calls in a message: where they are, what they ask, and what is wrong with them.

Pure text in, half-open character ranges out. Bad text of a model never raises: a broken call becomes a `ParsedCall`
with a fault and its neighbours stay as they are. This module runs no tool and knows no schema; a new format is a
function from text to `ParsedMessage`, added to `CALL_FORMATS` by name.
"""

from collections.abc import Callable
from difflib import get_close_matches

from . import hermes
from .errors import ParseError
from .jsonstrings import narrow, string_offsets
from .parsed import CallFault, CharRange, ParsedCall, ParsedMessage

__all__ = [
    "CALL_FORMATS",
    "CallFault",
    "CharRange",
    "ParsedCall",
    "ParsedMessage",
    "narrow",
    "parse_calls",
    "string_offsets",
]

CALL_FORMATS: dict[str, Callable[[str], ParsedMessage]] = {"hermes": hermes.parse}
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
