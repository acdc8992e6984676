"""How a program's own process tells of its end: the traceback for people, the place and kind for the report.

It runs where the program ran, so nothing of it is trusted.
"""

import sys
import traceback
from typing import Any

from .spans import FILENAME


def print_traceback(error: BaseException, filename: str = FILENAME) -> None:
    """Print the traceback from the first frame of the submitted source on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def place_of_syntax_error(error: BaseException) -> list[int | None] | None:
    """Return (line, end line, column, end column) of a syntax error; columns in characters."""
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return None
    column = error.offset - 1 if error.offset else None
    end_column = error.end_offset - 1 if error.end_offset and error.end_offset > 0 else None
    if column is not None and end_column is None:
        end_column = column + 1
    return [error.lineno, error.end_lineno or error.lineno, column, end_column]


def describe(kind: str, error: BaseException, place: Any, in_bytes: bool) -> dict[str, Any]:
    """Return the report of an error."""
    try:
        message = str(error)[:500]
    except Exception:
        message = ""
    return {"ended": kind, "error": type(error).__name__, "message": message, "place": place, "bytes": in_bytes}


def exit_status(code: object) -> int:
    """Return the status of `sys.exit(code)`; text goes to standard error."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1
