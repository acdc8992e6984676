"""What an error of Monty means: evidence for the verdict, and the place in the source.

What the interpreter cannot do is nobody's fault, and must not be a way out for what the model did wrong: a program that
raises the same words itself is told apart by where the error arose.
"""

import ast
import builtins
import re
import sys
from typing import Any, NamedTuple

from .embedded import spans
from .protocol import ErrorSpan

__all__ = ["Failure", "read"]

_EXIT_1 = 1 << 8  # the wait status of a program that ends by an exception
_UNPARSED = "The monty syntax parser does not yet support"
_NO_MEMORY = re.compile(r"memory limit exceeded: \d+ bytes > \d+ bytes")
_NO_TIME = re.compile(r"(feed time|turn time|sleep) limit exceeded: ")
_NO_NAME = re.compile(r"name '(\w+)' is not defined")
_NO_MODULE = re.compile(r"No module named '(\w+)[\w.]*'")
_NO_ATTRIBUTE = re.compile(r"module '(\w+)' has no attribute '(\w+)'")


class Failure(NamedTuple):
    """Fields of the evidence, and the span of the error where there is one."""

    evidence: dict[str, Any]
    span: ErrorSpan | None


def read(error: Any, source: str) -> Failure:
    """Read a `MontySyntaxError` or `MontyRuntimeError` that `source` ended with."""
    inner, frames = error.exception(), error.traceback()
    kind, message = type(inner).__name__, str(inner)
    span = _span(kind, message, frames, source)
    raised = bool(frames) and _says_raise(frames[-1], span, source)
    if kind == "SyntaxError" and type(error).__name__ == "MontySyntaxError":
        return Failure({"wait_status": _EXIT_1, "reported": "syntax_error"}, span)
    if not raised and _is_missing(kind, message, frames):
        return Failure({"unsupported": True, "detail": message[:500]}, None)
    if kind == "TimeoutError" and not raised and _NO_TIME.match(message):
        return Failure({"stopped": "wall", "detail": message[:500]}, None)
    if kind == "MemoryError" and not raised and _NO_MEMORY.match(message):
        return Failure({"wait_status": _EXIT_1, "oom_kills": 1, "detail": message[:500]}, None)
    return Failure({"wait_status": _EXIT_1, "reported": "exception"}, span)


def _is_missing(kind: str, message: str, frames: list[Any]) -> bool:
    """Whether CPython has what the program asked for, and Monty has not."""
    if kind == "NotImplementedError":  # the parser's errors have no function, the program's own have
        return message.startswith(_UNPARSED) and all(frame.function_name is None for frame in frames)
    if kind == "RuntimeError":
        return message.startswith("Internal error in monty") and not frames
    if kind == "ModuleNotFoundError" and (found := _NO_MODULE.fullmatch(message)):
        return found[1] in sys.stdlib_module_names
    if kind == "NameError" and (found := _NO_NAME.fullmatch(message)):
        return hasattr(builtins, found[1])
    if kind == "AttributeError" and (found := _NO_ATTRIBUTE.fullmatch(message)):
        return found[1] in sys.stdlib_module_names and hasattr(sys.modules.get(found[1]), found[2])
    return False


def _says_raise(frame: Any, span: ErrorSpan | None, source: str) -> bool:
    """Whether the error is the program's own: from a `raise`, or from where it cannot be told."""
    if frame.function_name is None:
        return False
    if span is None or span.line != frame.line or frame.source_line is None:  # code that the program made up
        return True
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(isinstance(n, ast.Raise) and n.lineno <= frame.line <= (n.end_lineno or 0) for n in ast.walk(tree))


def _span(kind: str, message: str, frames: list[Any], source: str) -> ErrorSpan | None:
    """Return the place of the innermost frame that lies in this source and not in that of an earlier cell."""
    lines = source.split("\n")
    for frame in reversed(frames):
        shown = frame.source_line
        if shown is not None and 0 < frame.line <= len(lines) and lines[frame.line - 1].rstrip("\r") == shown:
            place = [frame.line, frame.end_line, frame.column - 1, frame.end_column - 1]
            return spans.to_span({"error": kind, "message": message, "place": place, "bytes": False}, source)
    return None
