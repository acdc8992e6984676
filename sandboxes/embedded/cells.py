"""The supervisor's side of a live interpreter: who is the current state of each session, and how a cell ended.

Which process a state is, the kernel says (it vouches for the sender of a message on a socket); how a cell's process
ended, the interpreter's init says, which is ours. What the interpreter itself writes decides nothing that has a price.

Sessions that are branches of each other share an interpreter, each with its current state. A state that several
sessions hold lives on as the undo copy when one of them runs a cell.
"""

import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from accredit.sandboxes.protocol import Limits

from . import interpreter, kernel, namespaces
from .confine import Plan, limit
from .folder import remove_tree
from .interpreter import CELL, HELLO
from .namespaces import Way
from .page import ReportPage
from .place import new_folder
from .processes import FAILED, disk_full, new_processes, say, sealed, settle
from .wire import SETUP_S

_ENDED = struct.Struct("<IidI?")
"""What the init says of each process it has buried: its id inside, raw wait status, processor time (s), most memory
(KiB), and whether the disk was full then."""

_CREDENTIALS = struct.Struct("iII")
_LAST_TO_GO = 100
_ROOM_FOR_STATES = 64
_HEAR_S = 10.0  # for a state that was forked before its parent's end to say so, on the busiest machine


@dataclass(slots=True)
class State:
    """A process that waits for a cell, and the socket on which it is told. `pid` is its number here."""

    sock: socket.socket
    pid: int = 0
    pid_inside: int = 0
    pidfd: int | None = None

    def hear(self) -> bool:
        """Read the first message; False if nobody is left to send one, or it makes no sense."""
        try:
            text, extra, _, _ = self.sock.recvmsg(HELLO.size, socket.CMSG_SPACE(_CREDENTIALS.size), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if len(text) != HELLO.size or not extra:
            return False
        pid, _, _ = _CREDENTIALS.unpack(extra[0][2][: _CREDENTIALS.size])
        if pid <= 0:
            return False
        self.pid, self.pid_inside = pid, HELLO.unpack(text)[1]
        with suppress(OSError):
            self.pidfd = kernel.pidfd_open(pid)
        return True

    @property
    def heard(self) -> bool:
        """Whether the process has said who it is."""
        return self.pid > 0

    def dead(self) -> bool:
        """Whether its process has ended."""
        poll = select.poll()
        poll.register(self.sock if self.pidfd is None else self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def kill(self) -> None:
        """End its process, if it is known."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send its process a signal, if it is known and there."""
        with suppress(OSError):
            if self.pidfd is not None:
                signal.pidfd_send_signal(self.pidfd, number)
            elif self.heard:
                os.kill(self.pid, number)

    def close(self) -> None:
        """Close what belongs to it here."""
        self.sock.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


@dataclass(slots=True)
class Burial:
    """What the init said of a process that ended."""

    wait_status: int
    cpu_s: float
    peak_mb: float
    disk_full: bool


@dataclass(slots=True)
class Interpreter:
    """One live interpreter: its init, the page for reports, and the current state of each session."""

    pid: int
    status: int
    page: ReportPage
    scratch: str | None
    states: dict[int, State] = field(default_factory=dict)
    buried: dict[int, Burial] = field(default_factory=dict)
    cells: int = 0

    def begin(self, session: int, source: bytes, limits: Limits, bounded: bool) -> "Cell":
        """Tell a session's state to run a cell; it may be dead, which shows in the cell's end."""
        self.cells += 1
        self.page.renew()
        self.buried.clear()
        runner = self.states[session]
        runner.signal(signal.SIGCONT)
        undo, undo_end = _socket_pair()
        following, following_end = _socket_pair()
        stdout, stdout_end = os.pipe2(os.O_CLOEXEC)
        stderr, stderr_end = os.pipe2(os.O_CLOEXEC)
        text = sealed(source)
        message = CELL.pack(self.cells, self.page.nonce, limits.cpu_s, limits.memory_mb, bounded)
        try:
            fds = [text, stdout_end, stderr_end, undo_end.fileno(), following_end.fileno()]
            runner.sock.setblocking(False)
            with suppress(OSError):
                socket.send_fds(runner.sock, [message], fds)
        finally:
            for fd in (text, stdout_end, stderr_end):
                os.close(fd)
            undo_end.close()
            following_end.close()
        return Cell(runner, State(undo), State(following), stdout, stderr)

    def hear_init(self) -> None:
        """Read what the init has said since."""
        with suppress(BlockingIOError):
            while part := os.read(self.status, _ENDED.size * 64):
                for pid, ended, cpu_s, peak_kb, full in _ENDED.iter_unpack(part):
                    self.buried[pid] = Burial(ended, cpu_s, peak_kb / 1024, full)

    def burial(self, state: State) -> Burial | None:
        """Wait a moment for what the init says of a process that has ended."""
        until = time.monotonic() + _HEAR_S
        self.hear_init()
        while state.pid_inside not in self.buried and time.monotonic() < until:
            poll = select.poll()
            poll.register(self.status, select.POLLIN)
            if any(event & ~select.POLLIN for _, event in poll.poll(50)):
                break
            self.hear_init()
        return self.buried.get(state.pid_inside)

    def settle(self, session: int, cell: "Cell", keep: bool) -> bool:
        """Make the cell's next state, or else its undo copy, the session's; False if that one is gone."""
        _await_word([cell.following, cell.undo] if keep else [cell.undo])
        others = [number for number, state in self.states.items() if state is cell.runner and number != session]
        keep = keep and cell.following.heard
        del self.states[session]
        for number in others:
            del self.states[number]
        if cell.undo.heard:
            self.states.update(dict.fromkeys(others if keep else [session, *others], cell.undo))
        if keep:
            self.states[session] = cell.following
        held = self.states.values()
        for state in (cell.runner, cell.undo, cell.following):
            if not any(state is other for other in held):
                state.kill()
                state.close()
        return session in self.states

    def drop(self, session: int) -> None:
        """Let a session's state go, unless another holds it."""
        state = self.states.pop(session, None)
        if state is not None and not any(state is other for other in self.states.values()):
            state.kill()
            state.close()

    @property
    def living(self) -> set[int]:
        """The processes that are to live between cells, as numbered here."""
        return {self.pid, *(state.pid for state in self.states.values() if not state.dead())}

    def rest(self) -> None:
        """Stop the states until their next cells: a thread that a fork has set off must not run beside other runs."""
        for state in self.states.values():
            state.signal(signal.SIGSTOP)

    def kill_states(self) -> None:
        """Kill the states; they stay known, so that each session's next cell finds its own dead."""
        for state in self.states.values():
            state.kill()

    def end(self) -> None:
        """Kill the states and the init, and with it all processes of its namespace."""
        for session in list(self.states):
            self.drop(session)
        with suppress(ChildProcessError, ProcessLookupError):  # a run may have reaped it, had it died
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.status)
        self.page.close()
        if self.scratch is not None:
            remove_tree(self.scratch)


@dataclass(slots=True)
class Cell:
    """One cell in progress: the state that runs it, those to come after it, and its output's descriptors."""

    runner: State
    undo: State
    following: State
    stdout: int
    stderr: int


def start(plan: Plan, own_processes: int | None, session: int, limits: Limits) -> Interpreter:
    """Start an interpreter within a session's limits; raise `OSError` if its walls do not stand."""
    scratch = None if plan.way is not Way.NONE else new_folder(plan.place)
    status, status_end = os.pipe2(os.O_CLOEXEC)
    setup, setup_end = os.pipe2(os.O_CLOEXEC)
    control, control_end = _socket_pair()
    page, supervisor = ReportPage(), os.getpid()
    with new_processes(own_processes):
        pid = os.fork()
        if pid == 0:
            ends = (status_end, setup_end, control_end)
            _be_init(plan, ends, page, scratch or "/tmp", limits, 0 if own_processes is not None else supervisor)
    for fd in (status_end, setup_end):
        os.close(fd)
    control_end.close()
    os.set_blocking(status, False)
    first = State(control)
    host = Interpreter(pid, status, page, scratch, {session: first})
    try:
        _await_word([first], SETUP_S)
        if not first.heard:
            os.set_blocking(setup, False)
            with suppress(BlockingIOError):
                reason = os.read(setup, 1 << 12).removeprefix(FAILED).decode("utf-8", "replace")
                raise OSError(reason or "the interpreter ended before it said a word")
            raise OSError(f"the interpreter said nothing within {SETUP_S:g} s")
    except OSError:
        host.end()
        raise
    finally:
        os.close(setup)
    return host


def _be_init(
    plan: Plan,
    ends: tuple[int, int, socket.socket],
    page: ReportPage,
    scratch: str,
    limits: Limits,
    parent: int,
) -> NoReturn:
    status, setup, control = ends
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        kernel.die_with_parent(parent)
        if plan.way is not Way.NONE:
            namespaces.enter_run(limits.disk_mb)
        else:
            with suppress(OSError):  # gVisor leaves orphans to the first process
                kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        own = os.getpid()
        if os.fork() == 0:
            _be_first_state(own, plan, setup, control, page, scratch, limits)
        os.dup2(status, 3)
        os.closerange(4, 1 << 16)
        while True:
            try:
                pid, ended, used = os.wait4(-1, 0)
            except ChildProcessError:
                signal.pause()
                continue
            cpu_s, full = used.ru_utime + used.ru_stime, disk_full(plan, scratch)
            os.write(3, _ENDED.pack(pid, ended, cpu_s, used.ru_maxrss, full))
    except BaseException as error:
        say(setup, FAILED + repr(error).encode())
    os._exit(0)


def _be_first_state(
    init: int, plan: Plan, setup: int, control: socket.socket, page: ReportPage, scratch: str, limits: Limits
) -> NoReturn:
    try:
        null = os.open("/dev/null", os.O_WRONLY)
        failures = settle(init, plan, null, null, scratch, _LAST_TO_GO)
        failures |= limit(plan, limits, _ROOM_FOR_STATES)
        if failures:
            raise OSError(f"walls failed that stood before: {failures}")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(control.detach(), 3)
        os.closerange(4, 1 << 16)
    except BaseException as error:
        say(setup, FAILED + repr(error).encode())
        os._exit(1)
    os.set_inheritable(3, False)
    interpreter.serve(socket.socket(fileno=3), page)


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return our end, which the kernel tells who sends, and theirs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


def _await_word(states: Iterable[State], within_s: float = _HEAR_S) -> None:
    """Wait until each state has said who it is, or nobody is left to say so."""
    until = time.monotonic() + within_s
    for state in states:
        while not state.heard and (left := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(state.sock, select.POLLIN)
            if not poll.poll(left * 1000) or not state.hear():
                break
