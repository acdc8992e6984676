"""Where an error arose in the submitted source, as characters.

The program's process can only report lines and columns; the host turns them into a range here and clamps it to the
source, so a forged report can at worst point at another place of the same source.
"""

import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from accredit.sandboxes.protocol import ErrorSpan

FILENAME = "<program>"
"""The file name under which submitted code is compiled."""

_MOST_MESSAGE = 500
_LINE_END = re.compile(r"\r\n|\r|\n")


def locate(
    trace: TracebackType | None, filename: str = FILENAME
) -> tuple[int | None, int | None, int | None, int | None] | None:
    """Return (line, end line, column, end column) of the source's innermost frame; columns in UTF-8 bytes."""
    found = None
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == filename and trace.tb_lasti >= 0:
            found = list(code.co_positions())[trace.tb_lasti // 2]
        trace = trace.tb_next
    return found


def to_span(report: Mapping[str, Any], source: str) -> ErrorSpan | None:
    """Turn a report into a span inside `source`, or `None` if it names no usable place.

    `report` has `error`, `message` and `place` (line, end line, column, end column); with `bytes` true the columns
    count UTF-8 bytes from 0, else characters from 0.
    """
    place = report.get("place")
    if not isinstance(place, list) or len(place) != 4 or not source:
        return None
    line, end_line, column, end_column = (value if isinstance(value, int) else None for value in place)
    if line is None:
        return None
    starts = _line_starts(source)
    in_bytes = report.get("bytes") is True
    start = _offset(source, starts, line, column, in_bytes, at_end=False)
    end = _offset(source, starts, line if end_line is None else end_line, end_column, in_bytes, at_end=True)
    if end <= start:
        end = start + 1
    if end > len(source):
        start, end = min(start, len(source) - 1), len(source)
    return ErrorSpan(
        start=start,
        end=end,
        line=_line_of(starts, start),
        error=str(report.get("error", ""))[:_MOST_MESSAGE],
        message=str(report.get("message", ""))[:_MOST_MESSAGE],
    )


def _line_starts(source: str) -> list[int]:
    return [0, *(match.end() for match in _LINE_END.finditer(source))]


def _line_of(starts: list[int], offset: int) -> int:
    return sum(start <= offset for start in starts)


def _offset(source: str, starts: list[int], line: int, column: int | None, in_bytes: bool, at_end: bool) -> int:
    """Return the character offset of a line and column, clamped to the source; no column means the whole line."""
    if line < 1:
        return 0
    if line > len(starts):
        return len(source)
    begin = starts[line - 1]
    stop = starts[line] if line < len(starts) else len(source)
    text = source[begin:stop].rstrip("\r\n")
    if column is None:
        return begin + (len(text) if at_end else len(text) - len(text.lstrip()))
    if in_bytes:
        column = len(text.encode("utf-8", "surrogatepass")[: max(column, 0)].decode("utf-8", "ignore"))
    return begin + min(max(column, 0), len(text))
