"""The processes of a run, made in advance: the *program*, which waits for what to run, and its *init*.

The program is the supervisor's child, so that the kernel itself says how it ended. Where there are namespaces, the
init is the first process of the run's: with its end the kernel ends all the others. Forking is what a run costs most,
so a slot keeps one pair ready behind all its walls, with an empty `/tmp`. Only the limits come with what is to run:
source or a command.
"""

import fcntl
import json
import os
import select
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from accredit.sandboxes.protocol import Limits

from . import command, init, kernel, namespaces, program
from .confine import Plan, limit, wall_in
from .namespaces import Way
from .page import ReportPage
from .place import new_folder

READY, FAILED, TRIAL = b"R", b"F", b"T"
"""First byte of what a run's setup says: its walls stand, or why not, or the result of a trial."""

_SIZES = struct.Struct("<II")
_FIRST_TO_GO = 1000


@dataclass(frozen=True, slots=True)
class Order:
    """What is to run: Python source, or a command if `argv` is given; a trial runs nothing.

    `beside` counts the session's processes that live next to it.
    """

    limits: Limits
    source: bytes = b""
    argv: list[str] | None = None
    stdin: bytes = b""
    beside: int = 0
    trial: bool = False


@dataclass(frozen=True, slots=True)
class Burial:
    """How the program ended, raw, and what all processes of the run used that have been waited for."""

    wait_status: int
    cpu_s: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Pair:
    """A run's processes as the supervisor holds them: descriptors to read from, and one to feed.

    `end` is readable when the program may have ended; `lifeline` hangs up with the init.
    """

    pid: int
    init: int | None
    end: int
    stdout: int
    stderr: int
    setup: int
    lifeline: int | None
    feed: socket.socket
    page: ReportPage
    scratch: str
    disk_mb: int

    def ended(self) -> bool:
        """Whether the program has ended. It stays a zombie, and its number its own, until `bury`."""
        with suppress(OSError):
            os.read(self.end, 128)  # what told of the end of other children; a pidfd cannot be read
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def init_gone(self) -> bool:
        """Whether the init has ended, which is nothing that the program can do."""
        if self.lifeline is None:
            return False
        poll = select.poll()
        poll.register(self.lifeline, 0)
        return bool(poll.poll(0))

    def kill(self) -> None:
        """Kill the init, and with it all processes of its namespace; without one, the program."""
        with suppress(ProcessLookupError):
            os.kill(self.pid if self.init is None else self.init, signal.SIGKILL)

    def bury(self) -> Burial:
        """Wait for the ends of both, which have been killed; return how the program ended and what both used."""
        _, status, used = os.wait4(self.pid, 0)
        cpu_s, peak_kb = used.ru_utime + used.ru_stime, used.ru_maxrss
        buried = None
        while self.init is not None and buried != self.init:  # the kernel can be asked for siblings of the program
            buried, _, used = os.wait4(-1, 0)
            cpu_s, peak_kb = cpu_s + used.ru_utime + used.ru_stime, max(peak_kb, used.ru_maxrss)
        return Burial(status, cpu_s, peak_kb / 1024)

    @contextmanager
    def scratch_left(self) -> Iterator[str | int]:
        """Give the folder that was the program's `/tmp`: by the descriptor that came before it was told what to run."""
        fds: list[int] = []
        with suppress(OSError):
            _, fds, _, _ = socket.recv_fds(self.feed, 1, 1, socket.MSG_DONTWAIT)
        try:
            yield fds[0] if fds else self.scratch
        finally:
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Close all descriptors but those of the output."""
        for fd in (self.end, self.setup, self.lifeline):
            if fd is not None:
                os.close(fd)
        self.feed.close()
        self.page.close()

    def start(self, order: Order) -> None:
        """Hand over what to run. If the pair is dead that shows in its end, not here."""
        limits = {name: getattr(order.limits, name) for name in Limits.__slots__}
        facts = {"limits": limits, "trial": order.trial, "argv": order.argv, "beside": order.beside}
        head = json.dumps(facts).encode()
        text = b"".join((_SIZES.pack(len(head), len(order.source)), head, order.source))
        stdin = [sealed(order.stdin)] if order.stdin else []
        try:
            sent = socket.send_fds(self.feed, [text], stdin)
            self.feed.sendall(memoryview(text)[sent:])
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            for fd in stdin:
                os.close(fd)


def make_pair(plan: Plan, own_processes: int | None, disk_mb: int, child_ends: int | None) -> Pair:
    """Start an init, where there are namespaces, and fork a waiting program.

    `own_processes` is the supervisor's process namespace, if it has one; `child_ends` tells of children that ended,
    where the kernel has no pidfds.
    """
    scratch = "/tmp" if plan.way is not Way.NONE else new_folder(plan.place)
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(3 if own_processes is None else 4)]
    feed, fed = socket.socketpair()
    ours, theirs = [reader for reader, _ in pipes], [writer for _, writer in pipes]
    page, first, supervisor = ReportPage(), None, os.getpid()
    try:
        with new_processes(own_processes):
            if own_processes is not None:
                first = init.start(theirs[3])
            pid = os.fork()
            if pid == 0:
                parent = 0 if own_processes is not None else supervisor
                _be_program(plan, theirs, (feed, fed), ours[3:], page, scratch, disk_mb, parent)
    except OSError:
        if first is not None:
            os.kill(first, signal.SIGKILL)
            os.waitpid(first, 0)
        feed.close()
        page.close()
        for fd in ours:
            os.close(fd)
        if plan.way is Way.NONE:
            os.rmdir(scratch)
        raise
    finally:
        fed.close()
        for fd in theirs:
            os.close(fd)
    end = os.pidfd_open(pid) if child_ends is None else os.dup(child_ends)
    stdout, stderr, setup, *lifeline = ours
    return Pair(pid, first, end, stdout, stderr, setup, lifeline[0] if lifeline else None, feed, page, scratch, disk_mb)


@contextmanager
def new_processes(own: int | None) -> Iterator[None]:
    """Let children start in a new process namespace, where there are any; the supervisor stays in its `own`.

    A child that is forked must not come out of here.
    """
    if own is None:
        yield
        return
    kernel.unshare(kernel.NEWPID)
    try:
        yield
    finally:
        kernel.setns(own, kernel.NEWPID)


def settle(
    parent: int, plan: Plan, stdout: int, stderr: int, scratch: str, expendable: int = _FIRST_TO_GO
) -> dict[str, str]:
    """Make this process a program's: streams, folder, environment, walls. Returns the walls that failed, and why.

    When memory is used up, the kernel takes the most `expendable` process first: never the slot, and rather a run than
    the live interpreter beside it.
    """
    kernel.die_with_parent(parent)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    with suppress(PermissionError):  # a program may have locked the folder, which is its own loss only while it runs
        os.chmod(plan.folder.path, 0o700)
    os.chdir(plan.folder.path)
    if plan.way is Way.NONE:
        os.environ["HOME"] = os.environ["TMPDIR"] = scratch
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.setsid()
    if "uid_drop" in plan.layers:
        for fd in (1, 2):
            with suppress(PermissionError):  # gVisor's pipes have no owner
                os.fchown(fd, plan.uid, plan.uid)  # else `/dev/stderr` could not be opened
        if plan.way is Way.NONE:
            os.chown(scratch, plan.uid, plan.uid)
    with suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"%d" % expendable)
        os.close(fd)
    return wall_in(plan, scratch)


def _be_program(
    plan: Plan,
    ends: list[int],
    feeds: tuple[socket.socket, socket.socket],
    lifeline: list[int],
    page: ReportPage,
    scratch: str,
    disk_mb: int,
    parent: int,
) -> NoReturn:
    stdout, stderr, setup, *others = ends
    feed, fed = feeds
    try:
        feed.close()  # who holds this end waits for its end for ever
        kernel.die_with_parent(parent)
        if plan.way is not Way.NONE:
            namespaces.enter_run(disk_mb)
            socket.send_fds(fed, [b"/"], [os.open(scratch, os.O_PATH | os.O_DIRECTORY)])
        failures = settle(parent, plan, stdout, stderr, scratch)
        for fd in others:
            os.close(fd)  # else the init's end could not be seen
        for fd in lifeline:
            if not os.read(fd, 1):
                raise OSError("the init ended before it had closed itself off")
        order, source, stdin = _receive(fed)
        failures |= limit(plan, Limits(**order["limits"]), order["beside"])
        if order["trial"]:
            os.write(setup, TRIAL + json.dumps(failures).encode())
            os._exit(0)
        if failures:
            raise OSError(f"walls failed that stood before: {failures}")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if stdin is not None:
            os.dup2(stdin, 0)
        os.write(setup, READY)
        os.closerange(3, 1 << 16)
    except BaseException as error:
        say(setup, FAILED + repr(error).encode())
        os._exit(1)
    try:
        if order["argv"] is not None:
            command.run(order["argv"], scratch)
        program.run(source, page)
    finally:
        os._exit(1)  # whatever happens, this process never comes back as a second supervisor


def _receive(sock: socket.socket) -> tuple[dict[str, Any], bytes, int | None]:
    part, fds, _, _ = socket.recv_fds(sock, 1 << 16, 1)
    data = bytearray(part)
    while part:
        if len(data) >= _SIZES.size and len(data) >= _SIZES.size + sum(_SIZES.unpack_from(data)):
            break
        data += (part := sock.recv(1 << 16))
    if not data:
        os._exit(0)  # the slot ended and never needed this pair
    head, size = _SIZES.unpack_from(data)
    begin = _SIZES.size + head
    return json.loads(data[_SIZES.size : begin]), bytes(data[begin : begin + size]), fds[0] if fds else None


def sealed(data: bytes) -> int:
    """Return a descriptor of a file in memory that nobody can change, for a program to read."""
    fd = os.memfd_create("accredit", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    os.lseek(fd, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def disk_full(plan: Plan, scratch: str | int) -> bool:
    """Say whether a file system that is the sandbox's alone is full; a full disk of the host is nobody's doing."""
    paths = list[str | int]([scratch]) if plan.way is not Way.NONE or plan.contained else []
    paths += [plan.folder.path] if plan.folder.bounded else []
    rooms = [os.statvfs(path) for path in paths]
    return any(not room.f_bavail or (room.f_files > 0 and not room.f_favail) for room in rooms)


def say(fd: int, text: bytes) -> None:
    """Write to a pipe that nobody may read any more."""
    try:
        os.write(fd, text)
    except OSError:
        pass
