"""A JSON scanner that remembers where everything stands.

Reads one JSON value of a text and gives, by JSON path, the characters of each value and of each key. Reads generously
only what has one meaning (a repeated key, NaN, a raw line break in a string) and lists each as a repair; everything
else is a `JsonFault` with its position. It knows nothing of calls.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from .jsonstrings import JsonFault, decode_string, narrow, string_offsets

__all__ = ["JsonFault", "JsonScan", "child_path", "narrow", "scan_json", "string_offsets"]

MAX_DEPTH = 64
MAX_DIGITS = 4000
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(slots=True)
class JsonScan:
    """A value read from a text up to `end`; `ranges` and `keys` are half-open character ranges by JSON path.

    With a `fault` there is no value, and the ranges hold what had been read before it.
    """

    value: Any = None
    end: int = 0
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)
    fault: JsonFault | None = None


def child_path(path: str, key: str | int) -> str:
    """Return the JSON path of a member: `$.name`, `$["odd name"]`, `$.lines[0]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _IDENTIFIER.fullmatch(key) else f"{path}[{json.dumps(key, ensure_ascii=False)}]"


def scan_json(text: str, start: int = 0) -> JsonScan:
    """Read the JSON value that begins at or after `start`; never raises for the text.

    A value nested deeper than 64 levels, or a number of more than 4000 digits, is a fault too.
    """
    scan = JsonScan()
    try:
        scan.value, scan.end = _value(text, _skip(text, start), "$", 0, scan)
    except JsonFault as fault:
        scan.fault = fault
    return scan


def _value(text: str, at: int, path: str, depth: int, scan: JsonScan) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise JsonFault(f"nested deeper than {MAX_DEPTH} levels", at)
    letter = text[at : at + 1]
    if letter == '"':
        value, _, end, repairs = decode_string(text, at)
        scan.repairs.extend(f"{repair} {path}" for repair in repairs)
    elif letter == "{":
        value, end = _object(text, at, path, depth, scan)
    elif letter == "[":
        value, end = _array(text, at, path, depth, scan)
    else:
        value, end = _scalar(text, at, path, scan)
    scan.ranges[path] = (at, end)
    return value, end


def _object(text: str, at: int, path: str, depth: int, scan: JsonScan) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}
    at = _skip(text, at + 1)
    if text.startswith("}", at):
        return members, at + 1
    while True:
        if not text.startswith('"', at):
            raise JsonFault(f"expected a key in double quotes, found {_found(text, at)}", at)
        key, _, end, repairs = decode_string(text, at)
        inner = child_path(path, key)
        scan.repairs.extend(f"{repair} {inner}" for repair in repairs)
        if key in members:
            scan.repairs.append(f"duplicate_key {inner}")
            _forget(scan, inner)
        scan.keys[inner] = (at, end)
        colon = _skip(text, end)
        if not text.startswith(":", colon):
            raise JsonFault(f"expected ':' after a key, found {_found(text, colon)}", colon)
        members[key], end = _value(text, _skip(text, colon + 1), inner, depth + 1, scan)
        at = _skip(text, end)
        if text.startswith("}", at):
            return members, at + 1
        if not text.startswith(",", at):
            raise JsonFault(f"expected ',' or '}}', found {_found(text, at)}", at)
        at = _skip(text, at + 1)


def _array(text: str, at: int, path: str, depth: int, scan: JsonScan) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = _skip(text, at + 1)
    if text.startswith("]", at):
        return items, at + 1
    while True:
        item, end = _value(text, at, child_path(path, len(items)), depth + 1, scan)
        items.append(item)
        at = _skip(text, end)
        if text.startswith("]", at):
            return items, at + 1
        if not text.startswith(",", at):
            raise JsonFault(f"expected ',' or ']', found {_found(text, at)}", at)
        at = _skip(text, at + 1)


def _scalar(text: str, at: int, path: str, scan: JsonScan) -> tuple[Any, int]:
    for word, value in _WORDS.items():
        if text.startswith(word, at):
            return value, at + len(word)
    for word, value in _NOT_FINITE.items():
        if text.startswith(word, at):
            scan.repairs.append(f"not_finite {path}")
            return value, at + len(word)
    number = _NUMBER.match(text, at)
    if number is None:
        raise JsonFault(f"expected a JSON value, found {_found(text, at)}", at)
    if len(number.group()) > MAX_DIGITS:
        raise JsonFault(f"a number has more than {MAX_DIGITS} digits", at, resume=number.end())
    if number.group(1) is None and number.group(2) is None:
        return int(number.group()), number.end()
    value = float(number.group())
    if value in (float("inf"), float("-inf")):
        scan.repairs.append(f"not_finite {path}")
    return value, number.end()


def _forget(scan: JsonScan, path: str) -> None:
    inside = (f"{path}.", f"{path}[")
    for known in [p for p in scan.ranges if p == path or p.startswith(inside)]:
        del scan.ranges[known]
        scan.keys.pop(known, None)


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def _found(text: str, at: int) -> str:
    return repr(text[at : at + 12]) if at < len(text) else "the end of the text"
