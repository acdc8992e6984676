"""Runs submitted code as `__main__` in the process that is already walled off, then reports and ends that process.

It behaves like `python program.py`: traceback on standard error, exit code of `sys.exit`, non-daemon threads awaited,
exit functions called. Standard library only; nothing the program does here is trusted.
"""

import atexit
import linecache
import os
import sys
import threading
import traceback
import types
from typing import Any, NoReturn, TextIO

from .page import ReportPage
from .spans import FILENAME, locate


def run(source: bytes, page: ReportPage) -> NoReturn:
    """Run the program and end this process; a child that the program forks ends here too, without a report."""
    own, leave = os.getpid(), os._exit
    ended = page.encode({"ended": "end"})
    status = 1
    try:
        status, report = _execute(source)
        if report is not None:
            ended = page.encode(report)
    except BaseException:  # the program may have broken what the report is made with; its exit code still counts
        ended = b""
    _finish()
    if os.getpid() == own:
        page.write(ended)
    leave(status & 255)


def _execute(source: bytes) -> tuple[int, dict[str, Any] | None]:
    """Return the exit status and a report; no report means that the last statement ran."""
    text = source.decode("utf-8", "surrogatepass")
    module = _fresh_main(text)
    try:
        code = compile(text, FILENAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        traceback.print_exception(type(error), error, None)
        return 1, _describe("syntax_error", error, _place_of_syntax_error(error), in_bytes=False)
    except BaseException as error:  # nesting too deep for the compiler
        traceback.print_exception(type(error), error, None)
        return 1, _describe("exception", error, None, in_bytes=False)
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        return _exit_status(error.code), {"ended": "exit"}
    except BaseException as error:
        place = locate(error.__traceback__)
        _print_traceback(error)
        return 1, _describe("exception", error, place, in_bytes=True)
    return 0, None


def _fresh_main(text: str) -> types.ModuleType:
    """Set up the interpreter as a fresh one: `__main__`, arguments, streams, source lines for tracebacks."""
    module = types.ModuleType("__main__")
    for name in [name for name in sys.modules if name.partition(".")[0] == "accredit"]:
        del sys.modules[name]
    sys.modules["__main__"] = module
    sys.argv = [FILENAME]
    sys.path.insert(0, os.getcwd())  # modules in the session's folder, as beside any program
    linecache.cache[FILENAME] = (len(text), None, text.splitlines(keepends=True), FILENAME)
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = _writer(1)
    sys.stderr = sys.__stderr__ = _writer(2)
    return module


def _writer(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _print_traceback(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != FILENAME:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _place_of_syntax_error(error: Exception) -> list[int | None] | None:
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return None
    column = error.offset - 1 if error.offset else None
    end_column = error.end_offset - 1 if error.end_offset and error.end_offset > 0 else None
    if column is not None and end_column is None:
        end_column = column + 1
    return [error.lineno, error.end_lineno or error.lineno, column, end_column]


def _describe(kind: str, error: BaseException, place: Any, in_bytes: bool) -> dict[str, Any]:
    try:
        message = str(error)[:500]
    except Exception:
        message = ""
    return {"ended": kind, "error": type(error).__name__, "message": message, "place": place, "bytes": in_bytes}


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _finish() -> None:
    """Do what the interpreter does at its end, whatever state the program left it in."""
    for step in (threading._shutdown, atexit._run_exitfuncs, _flush):  # pyright: ignore[reportAttributeAccessIssue]
        try:
            step()
        except BaseException:  # the program's leftovers; its outcome is already decided
            continue


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
