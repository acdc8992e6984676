"""What became of a turn's calls: results, charges on characters, and the text that the model reads.

Ranges are half-open ranges of characters of the assistant's message; `RecordCredit` maps them to tokens.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accredit.credit import CallStatus

from .calls import ParsedMessage
from .errors import EnvError

__all__ = ["CallResult", "CharCharge", "TurnReport", "cut_middle", "error_text", "result_text"]

LONGEST_ERROR = 400
_LINK = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+")
_PATH = re.compile(r"(?<![\w/.])/(?:[\w.+-]+/)+(?=[\w.+-])")


@dataclass(frozen=True, slots=True)
class CharCharge:
    """A charge of `amount` (> 0, in units of reward) on the characters [start, end) of the message."""

    start: int
    end: int
    amount: float
    reason: str


@dataclass(frozen=True, slots=True)
class CallResult:
    """How one call ended.

    Attributes:
        index: the call's index in `ParsedMessage.calls`.
        text: what the model reads.
        started_s: seconds from the start of the episode; None if the call never ran.
        charges: the failure's own charge first, then those that the tool declared with `charge_now`.

    """

    index: int
    status: CallStatus
    text: str
    truncated: bool = False
    started_s: float | None = None
    duration_s: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    charges: tuple[CharCharge, ...] = ()

    @property
    def charge(self) -> CharCharge | None:
        """The first charge, None if there is none."""
        return self.charges[0] if self.charges else None


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn: the message as it was parsed, and a result for each of its calls, in call order."""

    parsed: ParsedMessage
    results: tuple[CallResult, ...]


def result_text(value: Any, returns_nothing: bool = False) -> str:
    """Return a tool's result as text: text as it is, anything else as compact JSON.

    Raises:
        EnvError: the value is neither text nor JSON.

    """
    if isinstance(value, str):
        return value
    if value is None and returns_nothing:
        return "ok"
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return json.dumps(to_jsonable_python(value), ensure_ascii=False)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise EnvError(
            f"a {type(value).__qualname__} is neither text nor JSON: return text, numbers, lists, mappings, "
            f"dataclasses or pydantic models ({str(error).splitlines()[0]})"
        ) from error


def cut_middle(text: str, limit: int) -> tuple[str, bool]:
    """Cut `text` to at most `limit` characters by leaving out its middle, and say how long it was.

    Half characters (lone surrogates), which no tokenizer can encode, become "?".
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= limit:
        return text, False
    note = f"\n[... {len(text)} characters, the middle was left out ...]\n"
    room = max(limit - len(note), 0)
    if not room:
        return text[:limit], True
    head = (room + 1) // 2
    return text[:head] + note + text[len(text) - (room - head) :], True


def error_text(error: BaseException) -> str:
    """Return an exception as one short line without tracebacks, links or paths of this machine."""
    from pydantic_core import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else ""
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    text = _PATH.sub("", _LINK.sub("", text)).strip()
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 3] + "..."
