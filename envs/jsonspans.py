"""A JSON scanner that remembers where everything stands.

Reads one JSON value of a text and gives, by JSON path, the characters of each value and of each key. Reads generously
only what has one meaning (a repeated key, NaN, a raw line break in a string) and lists each as a repair; everything
else raises `JsonFault` with its position. It knows nothing of calls.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

__all__ = ["JsonFault", "JsonScan", "child_path", "decode_string", "narrow", "scan_json", "string_offsets"]

MAX_DEPTH = 64
MAX_DIGITS = 4000
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_PLAIN = re.compile(r'[^"\\]*')
_CONTROL = re.compile(r"[\x00-\x1f]")
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(slots=True)
class JsonScan:
    """A value read from a text: `ranges` and `keys` are half-open character ranges by JSON path."""

    value: Any = None
    end: int = 0
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    repairs: list[str] = field(default_factory=list)


class JsonFault(ValueError):
    """The text is not JSON at character `position`.

    `resume` is the first character that may lie outside the value; `partial` is what had been read before.
    """

    def __init__(self, message: str, position: int, resume: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.resume = position if resume is None else resume
        self.partial = JsonScan()


def child_path(path: str, key: str | int) -> str:
    """Return the JSON path of a member: `$.name`, `$["odd name"]`, `$.lines[0]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if _IDENTIFIER.fullmatch(key) else f"{path}[{json.dumps(key, ensure_ascii=False)}]"


def scan_json(text: str, start: int = 0) -> JsonScan:
    """Read the JSON value that begins at or after `start`; `end` is the character after it.

    Raises:
        JsonFault: the text is not JSON there, is nested deeper than 64 or has a number of more than 4000 digits.

    """
    scan = JsonScan()
    try:
        scan.value, scan.end = _value(text, _skip(text, start), "$", 0, scan)
    except JsonFault as fault:
        fault.partial = scan
        raise
    return scan


def decode_string(text: str, start: int) -> tuple[str, list[int], int, list[str]]:
    """Read the JSON string whose opening quote is `text[start]`.

    Returns:
        The decoded string; for each of its characters where its raw form begins, and last where the closing quote
        stands; the character after the closing quote; and what had to be repaired.

    Raises:
        JsonFault: no closing quote, or an escape that JSON does not have.

    """
    parts: list[str] = []
    offsets: list[int] = []
    repairs: list[str] = []
    at = start + 1
    while True:
        run = _PLAIN.match(text, at)
        assert run is not None
        if run.end() > at:
            plain = run.group()
            if _CONTROL.search(plain):
                repairs.append("control_character")
            if not plain.isascii() and any("\ud800" <= letter <= "\udfff" for letter in plain):
                plain = _without_surrogates(plain)
                repairs.append("lone_surrogate")
            parts.append(plain)
            offsets.extend(range(at, run.end()))
            at = run.end()
        if at >= len(text):
            raise JsonFault("a string has no closing quote", at, resume=start)
        if text[at] == '"':
            offsets.append(at)
            return "".join(parts), offsets, at + 1, list(dict.fromkeys(repairs))
        letter, after = _escape(text, at)
        if "\ud800" <= letter <= "\udfff":
            letter = "\ufffd"
            repairs.append("lone_surrogate")
        parts.append(letter)
        offsets.append(at)
        at = after


def string_offsets(text: str, chars: tuple[int, int]) -> list[int]:
    r"""Return where each character of a string argument's decoded value begins in `text`.

    `chars` is an argument's range, quotes included. One entry a character, and a last one for the closing quote, so
    that the decoded [a, b) are the raw [offsets[a], offsets[b]). A string inside double-encoded arguments (its quotes
    written `\"`) is decoded twice.

    Raises:
        JsonFault: the range does not hold a JSON string.

    """
    start, end = chars
    if text.startswith('"', start):
        return decode_string(text[:end], start)[1]
    outer, outer_offsets, _, _ = decode_string(f'"{text[start:end]}"', 0)
    if not outer.startswith('"'):
        raise JsonFault(f"expected a JSON string, found {text[start:end][:20]!r}", start)
    inner_offsets = decode_string(outer, 0)[1]
    return [start - 1 + outer_offsets[at] for at in inner_offsets]


def narrow(text: str, chars: tuple[int, int], part: tuple[int, int]) -> tuple[int, int]:
    """Return the raw characters of `part` of a string argument's decoded value, or `chars` if there are none.

    `part` is clipped to the value.
    """
    try:
        offsets = string_offsets(text, chars)
    except JsonFault:
        return chars
    length = len(offsets) - 1
    first, last = min(max(part[0], 0), length), min(max(part[1], 0), length)
    return (offsets[first], offsets[last]) if first < last else chars


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


def _escape(text: str, at: int) -> tuple[str, int]:
    letter = text[at + 1 : at + 2]
    if letter in _ESCAPES and letter:
        return _ESCAPES[letter], at + 2
    if letter != "u":
        shown = "\\" + letter
        raise JsonFault(f"{shown!r} is no JSON escape", at)
    first = _HEX4.match(text, at + 2)
    if first is None:
        raise JsonFault("'\\u' needs four hexadecimal digits", at)
    code = int(first.group(), 16)
    if 0xD800 <= code < 0xDC00 and text.startswith("\\u", at + 6):
        second = _HEX4.match(text, at + 8)
        if second is not None and 0xDC00 <= int(second.group(), 16) < 0xE000:
            low = int(second.group(), 16)
            return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), at + 12
    return chr(code), at + 6


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


def _without_surrogates(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
