"""The Hermes call format: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, several in a message.

White space around the JSON is optional, a missing `arguments` is {}. The JSON is read before the closing marker is
looked for, so a marker inside a string ends nothing; a broken call ends where the next one can begin.
"""

import re
from dataclasses import dataclass
from typing import Any

from accredit.credit import CallStatus

from .jsonspans import JsonScan, child_path, scan_json
from .jsonstrings import decode_string
from .parsed import CallFault, CharRange, ParsedCall, ParsedMessage

__all__ = ["CLOSE", "OPEN", "parse"]

OPEN, CLOSE = "<tool_call>", "</tool_call>"
EXPECTED = '{"name": ..., "arguments": {...}}'
KEYS = ("name", "arguments", "id", "type")
_SPACE = re.compile(r"\s*")
_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}


def parse(text: str) -> ParsedMessage:
    """Find the Hermes calls of `text`; never raises for it."""
    calls: list[ParsedCall] = []
    outside: list[str] = []
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        outside.append(text[at:start].strip())
        call = _call(text, start, f"call_{len(calls)}")
        calls.append(call)
        at = call.end
    outside.append(text[at:].strip())
    return ParsedMessage(text, "\n".join(part for part in outside if part), tuple(calls))


def _call(text: str, start: int, call_id: str) -> ParsedCall:
    body = start + len(OPEN)
    scan = scan_json(text, body)
    fault = scan.fault
    if fault is not None:
        end, closed = _broken_end(text, body, fault.resume)
        inside = fault.position < end
        what = f"{fault.message} at character {fault.position - body}" if inside else "a string has no closing quote"
        found = what if closed else _unclosed(what)
        return _unreadable(text, start, end, call_id, found, scan)
    end = _after_space(text, scan.end)
    if text.startswith(CLOSE, end):
        return _readable(text, start, end + len(CLOSE), call_id, scan)
    end, closed = _broken_end(text, scan.end, scan.end)
    found = f"text after the JSON at character {scan.end - body}" if closed else _unclosed("the JSON is whole")
    return _unreadable(text, start, end, call_id, found, scan)


def _broken_end(text: str, body: int, resume: int) -> tuple[int, bool]:
    """Return where a broken call ends and whether a closing marker ends it.

    Strings read before `resume` are trusted unless one of them swallowed the beginning of another call.
    """
    opened = text.find(OPEN, body)
    if 0 <= opened < resume:
        closed = text.find(CLOSE, body, opened)
        return (closed + len(CLOSE), True) if closed >= 0 else (opened, False)
    opened = text.find(OPEN, resume)
    closed = text.find(CLOSE, resume, opened if opened >= 0 else len(text))
    if closed >= 0:
        return closed + len(CLOSE), True
    return (opened if opened >= 0 else len(text)), False


def _unclosed(what: str) -> str:
    return f"the call has no closing {CLOSE} ({what})"


def _unreadable(text: str, start: int, end: int, call_id: str, found: str, scan: JsonScan) -> ParsedCall:
    message = f"invalid call: {found}; expected {EXPECTED}"
    name, name_range = _name(text, scan)
    fault = CallFault(CallStatus.INVALID_JSON, message, start, end)
    return ParsedCall(start, end, call_id, name, name_range, None, fault=fault)


@dataclass(slots=True)
class _Reading:
    """The faults and repairs found while a call is read; the first fault counts."""

    fault: CallFault | None = None
    repairs: tuple[str, ...] = ()

    def blame(self, status: CallStatus, message: str, chars: CharRange) -> None:
        if self.fault is None:
            self.fault = CallFault(status, message, *chars)


def _readable(text: str, start: int, end: int, call_id: str, scan: JsonScan) -> ParsedCall:
    if not isinstance(scan.value, dict):
        return _unreadable(text, start, end, call_id, f"found {_kind(scan.value)}", scan)
    reading = _Reading(repairs=tuple(repair.replace(" $.arguments", " $", 1) for repair in scan.repairs))
    name, name_range = _name(text, scan)
    if not name:
        reading.blame(
            CallStatus.UNKNOWN_TOOL, f"the call names no tool: expected {EXPECTED}", name_range or (start, end)
        )
    for key in scan.value:
        if key not in KEYS:
            _blame_key(reading, scan, key)
    arguments, ranges = _arguments(text, scan, reading)
    return ParsedCall(start, end, call_id, name, name_range, arguments, ranges, reading.fault, reading.repairs)


def _blame_key(reading: _Reading, scan: JsonScan, key: str) -> None:
    path = child_path("$", key)
    message = f"unexpected key '{key}' beside name and arguments: arguments go inside \"arguments\": {{...}}"
    reading.blame(CallStatus.INVALID_ARGUMENTS, message, (scan.keys[path][0], scan.ranges[path][1]))


def _arguments(text: str, scan: JsonScan, reading: _Reading) -> tuple[dict[str, Any] | None, dict[str, CharRange]]:
    if "arguments" not in scan.value:
        return {}, {}
    value, chars = scan.value["arguments"], scan.ranges["$.arguments"]
    if isinstance(value, dict):
        return value, _below(scan.ranges, "$.arguments")
    if value is None:
        reading.repairs += ("null_arguments $",)
        return {}, {}
    if isinstance(value, str):
        inner = _double_encoded(text, value, chars)
        if inner is not None:
            reading.repairs += ("double_encoded $", *inner.repairs)
            return inner.value, _below(inner.ranges, "$")
    message = f"arguments must be a JSON object by parameter name, found {_kind(value)}"
    reading.blame(CallStatus.INVALID_ARGUMENTS, message, chars)
    return None, {}


def _double_encoded(text: str, value: str, chars: CharRange) -> JsonScan | None:
    inner = scan_json(value)
    if inner.fault is not None or not isinstance(inner.value, dict) or value[inner.end :].strip():
        return None
    offsets = decode_string(text, chars[0])[1]
    inner.ranges = {path: (offsets[start], offsets[end]) for path, (start, end) in inner.ranges.items()}
    return inner


def _below(ranges: dict[str, CharRange], root: str) -> dict[str, CharRange]:
    return {f"${path[len(root) :]}": r for path, r in ranges.items() if path.startswith((f"{root}.", f"{root}["))}


def _name(text: str, scan: JsonScan) -> tuple[str, CharRange | None]:
    chars = scan.ranges.get("$.name")
    if chars is None or not text.startswith('"', chars[0]):
        return "", chars
    return decode_string(text, chars[0])[0].strip(), chars


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a number")


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()
