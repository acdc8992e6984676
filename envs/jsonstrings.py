"""JSON strings with the place of every decoded character.

Escapes make a decoded string shorter than its raw form; an error at a character of the one must be charged to the
characters of the other. Raw control characters are read as they are and lone surrogates become U+FFFD, each noted as a
repair.
"""

import re

__all__ = ["JsonFault", "decode_string", "narrow", "string_offsets"]

_PLAIN = re.compile(r'[^"\\]*')
_CONTROL = re.compile(r"[\x00-\x1f]")
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class JsonFault(ValueError):
    """The text is not JSON at character `position`; `resume` is the first character that may lie outside the value."""

    def __init__(self, message: str, position: int, resume: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.resume = position if resume is None else resume


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


def _without_surrogates(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
