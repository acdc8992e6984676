"""The live interpreter: a chain of processes, each of which is the state of all names between two cells.

A *state* is a process of one thread that waits for a cell. It then forks its *undo* copy, which waits in its place,
and runs the cell itself. If the cell ends well or by an exception, it forks the *next* state, without the threads and
timers of the cell, and exits; if the cell dies, only the undo copy is left. All of it is behind the walls and in the
program's own memory, so nothing here is trusted; the supervisor's side is in `cells`.
"""

import ast
import linecache
import os
import signal
import socket
import struct
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn

from . import kernel, program, rlimits
from .page import ReportPage
from .spans import locate
from .telling import describe, exit_status, place_of_syntax_error, print_traceback

HELLO = struct.Struct("<cI")
"""What a state says first: the letter S, and its process id as seen from inside."""

CELL = struct.Struct("<I16sdI?")
"""What a state is told: the cell's number and nonce, its limits of processor time (s) and memory (MiB), and whether a
control group bounds the memory. Descriptors come with it: source, standard output and error, undo's and next's
socket."""


def serve(control: socket.socket, page: ReportPage) -> NoReturn:
    """Be the first state, and whatever this process becomes through the cells."""
    names = program.fresh_main("").__dict__
    while True:
        control.send(HELLO.pack(b"S", os.getpid()))
        message, fds, _, _ = socket.recv_fds(control, CELL.size, 5, socket.MSG_CMSG_CLOEXEC)
        if len(message) != CELL.size or len(fds) != 5:
            os._exit(0)  # the session is closed
        kernel.prctl(kernel.PR_SET_PDEATHSIG, kernel.SIGKILL)  # by now the parent is the init, who stays
        number, nonce, cpu_s, memory_mb, bounded = CELL.unpack(message)
        source, stdout, stderr, undo, following = fds
        if _fork() == 0:
            for fd in (source, stdout, stderr, following):
                os.close(fd)
            control.close()
            control = socket.socket(fileno=undo)
            continue
        os.close(undo)
        own = os.getpid()
        page.renew(nonce)
        with os.fdopen(source, "rb") as file:
            text = file.read().decode("utf-8", "surrogatepass")
        for fd, target in ((stdout, 1), (stderr, 2)):
            os.dup2(fd, target)
            os.close(fd)
        rlimits.lower(cpu_s, memory_mb, memory_bounded=bounded)
        status, report = _run_cell(text, f"<cell {number}>", names)
        program.flush()
        if os.getpid() != own:
            os._exit(status & 255)  # a process that the cell has forked
        if report["ended"] != "exit" and _fork() == 0:
            control.close()
            control = socket.socket(fileno=following)
            _leave_streams()
            continue
        page.write(page.encode(report))
        os._exit(status & 255)


def _run_cell(text: str, name: str, names: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Run a cell among the names and print the value of a last expression; return the exit status and a report."""
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        tree = ast.parse(text, name)
        last = tree.body[-1] if tree.body else None
        value = None
        if isinstance(last, ast.Expr):
            tree.body.pop()
            value = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
        code = compile(tree, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        traceback.print_exception(type(error), error, None)
        return 1, describe("syntax_error", error, place_of_syntax_error(error), in_bytes=False)
    except BaseException as error:  # nesting too deep for the compiler
        traceback.print_exception(type(error), error, None)
        return 1, describe("exception", error, None, in_bytes=False)
    try:
        exec(code, names)
        if value is not None:
            sys.displayhook(eval(value, names))
    except SystemExit as error:
        return exit_status(error.code), {"ended": "exit"}
    except BaseException as error:
        place = locate(error.__traceback__, name)
        print_traceback(error, name)
        return 1, describe("exception", error, place, in_bytes=True)
    return 0, {"ended": "end"}


def _fork() -> int:
    """Fork without letting the copy's `random` differ: it reseeds itself after a fork, and a state must not."""
    random = sys.modules.get("random")
    kept = None
    with suppress(Exception):  # the cells may have broken it
        kept = random.getstate() if random is not None else None
    pid = os.fork()
    if pid == 0 and kept is not None and random is not None:
        with suppress(Exception):
            random.setstate(kept)
    return pid


def _leave_streams() -> None:
    """Let go of the ended cell's output and of what it set off later."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    signal.set_wakeup_fd(-1)
