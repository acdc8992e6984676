"""Runs submitted code as `__main__` in the process that is already walled off, then reports and ends that process.

It behaves like `python program.py`: traceback on standard error, exit code of `sys.exit`, non-daemon threads awaited,
exit functions called. Standard library only; nothing the program does here is trusted.
"""

import atexit
import linecache
import os
import sys
import traceback
import types
from typing import Any, NoReturn, TextIO

from .page import ReportPage
from .spans import FILENAME, locate
from .telling import describe, exit_status, place_of_syntax_error, print_traceback


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
    module = fresh_main(text)
    try:
        code = compile(text, FILENAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        traceback.print_exception(type(error), error, None)
        return 1, describe("syntax_error", error, place_of_syntax_error(error), in_bytes=False)
    except BaseException as error:  # nesting too deep for the compiler
        traceback.print_exception(type(error), error, None)
        return 1, describe("exception", error, None, in_bytes=False)
    try:
        exec(code, module.__dict__)
    except SystemExit as error:
        return exit_status(error.code), {"ended": "exit"}
    except BaseException as error:
        place = locate(error.__traceback__)
        print_traceback(error)
        return 1, describe("exception", error, place, in_bytes=True)
    return 0, None


def hide_own_modules() -> None:
    """Take the slot's own modules out of what programs can import. Done before the forks, each of which would pay."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "accredit"]:
        del sys.modules[name]


def fresh_main(text: str) -> types.ModuleType:
    """Set up the interpreter as a fresh one: `__main__`, arguments, streams, source lines for tracebacks."""
    module = types.ModuleType("__main__")
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


def _finish() -> None:
    """Do what the interpreter does at its end, whatever state the program left it in."""
    for step in (_await_threads, atexit._run_exitfuncs, flush):
        try:
            step()
        except BaseException:  # the program's leftovers; its outcome is already decided
            continue


def _await_threads() -> None:
    """Wait for the threads that are no daemons. The slot imports no `threading`: it would cost a tenth of a fork."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()


def flush() -> None:
    """Write out what the program has printed."""
    sys.stdout.flush()
    sys.stderr.flush()
