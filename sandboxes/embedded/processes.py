"""The two processes of a run, made in advance: the *init* and the *program*, which waits for what to run.

The init is the first process of the run's process namespace: it reaps orphans, passes the program's raw wait status
on, and with its own end the kernel ends all the others. Forking is what a run costs most, so a slot keeps one pair
ready behind all its walls, with an empty `/tmp`. Only the limits come with what is to run: source or a command.
"""

import fcntl
import json
import os
import select
import signal
import socket
import struct
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from accredit.sandboxes.protocol import Limits

from . import command, kernel, namespaces, program
from .confine import Plan, limit, wall_in
from .namespaces import Way
from .page import ReportPage

READY, FAILED, TRIAL = b"R", b"F", b"T"
"""First byte of what a run's setup says: its walls stand, or why not, or the result of a trial."""

INIT_STATUS = struct.Struct("<i?")
"""What the init passes on: the program's raw wait status, and whether its disk was full."""

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
class Pair:
    """A run's processes as the supervisor holds them: descriptors to read from, and one to feed."""

    pid: int
    pidfd: int | None
    stdout: int
    stderr: int
    setup: int
    status: int
    feed: socket.socket
    page: ReportPage
    scratch: str
    disk_mb: int

    @property
    def end(self) -> int:
        """A descriptor that is readable once the init ends: where there is no pidfd, what only the init writes to."""
        return self.status if self.pidfd is None else self.pidfd

    def kill(self) -> None:
        """Kill the init, and with it all processes of its namespace. Its number is its own until it is waited for."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        if self.pidfd is not None:
            os.close(self.pidfd)

    def ended(self) -> bool:
        """Whether it is of no use any more."""
        poll = select.poll()
        poll.register(self.end, select.POLLIN)
        return bool(poll.poll(0))

    def start(self, order: Order) -> None:
        """Hand over what to run. If the pair is dead that shows in its end, not here."""
        facts = {"limits": asdict(order.limits), "trial": order.trial, "argv": order.argv, "beside": order.beside}
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
            self.feed.close()


def make_pair(plan: Plan, own_processes: int | None, disk_mb: int) -> Pair:
    """Fork an init and a waiting program; `own_processes` is the supervisor's process namespace, if it has one."""
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(4)]
    feed, fed = socket.socketpair()
    theirs = [writer for _, writer in pipes] + [fed.detach()]
    ours = [reader for reader, _ in pipes]
    page, supervisor = ReportPage(), os.getpid()
    scratch = "/tmp" if plan.way is not Way.NONE else tempfile.mkdtemp(dir=plan.place)
    try:
        pid = fork_init(own_processes)
        if pid == 0:
            feed.close()  # who holds this end waits for its end for ever
            for fd in ours:
                os.close(fd)
            _be_init(plan, theirs, page, scratch, disk_mb, 0 if own_processes is not None else supervisor)
    except OSError:
        feed.close()
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    stdout, stderr, setup, status = ours
    return Pair(pid, kernel.pidfd_open(pid), stdout, stderr, setup, status, feed, page, scratch, disk_mb)


def fork_init(own_processes: int | None) -> int:
    """Fork the first process of a new process namespace, where there are any; the supervisor stays in its own."""
    if own_processes is None:
        return os.fork()
    kernel.unshare(kernel.NEWPID)
    try:
        pid = os.fork()
    except OSError:
        kernel.setns(own_processes, kernel.NEWPID)
        raise
    if pid != 0:
        kernel.setns(own_processes, kernel.NEWPID)
    return pid


def _be_init(plan: Plan, ends: list[int], page: ReportPage, scratch: str, disk_mb: int, parent: int) -> NoReturn:
    stdout, stderr, setup, status, feed = ends
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a first process ignores what it has no handler for
        kernel.die_with_parent(parent)
        if plan.way is not Way.NONE:
            namespaces.enter_run(disk_mb)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        own = os.getpid()
        child = os.fork()
        if child == 0:
            _be_program(own, plan, stdout, stderr, setup, feed, page, scratch)
        os.dup2(status, 3)
        os.closerange(4, 1 << 16)
        while True:
            pid, ended = os.wait()
            if pid == child:
                break
        os.write(3, INIT_STATUS.pack(ended, disk_full(plan, scratch)))
    except BaseException as error:
        say(setup, FAILED + repr(error).encode())
    os._exit(0)


def settle(
    init: int, plan: Plan, stdout: int, stderr: int, scratch: str, expendable: int = _FIRST_TO_GO
) -> dict[str, str]:
    """Make this process a program's: streams, folder, environment, walls. Returns the walls that failed, and why.

    When memory is used up, the kernel takes the most `expendable` process first: never the slot, and rather a run than
    the live interpreter beside it.
    """
    kernel.die_with_parent(init)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    with suppress(PermissionError):  # a program may have locked the folder, which is its own loss only while it runs
        os.chmod(plan.folder.path, 0o700)
    os.chdir(plan.folder.path)
    os.environ.update(HOME=scratch, TMPDIR=scratch)
    os.setsid()
    if "uid_drop" in plan.layers:
        for fd in (1, 2):
            with suppress(PermissionError):  # gVisor's pipes have no owner
                os.fchown(fd, plan.uid, plan.uid)  # else `/dev/stderr` could not be opened
        if plan.way is Way.NONE:
            os.chown(scratch, plan.uid, plan.uid)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(expendable))
    return wall_in(plan, scratch)


def _be_program(
    init: int, plan: Plan, stdout: int, stderr: int, setup: int, feed: int, page: ReportPage, scratch: str
) -> NoReturn:
    try:
        failures = settle(init, plan, stdout, stderr, scratch)
        order, source, stdin = _receive(feed)
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
        os._exit(1)  # whatever happens, this process never comes back as a second init


def _receive(feed: int) -> tuple[dict[str, Any], bytes, int | None]:
    sock = socket.socket(fileno=feed)
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


def disk_full(plan: Plan, scratch: str) -> bool:
    """Say whether a file system that is the sandbox's alone is full; a full disk of the host is nobody's doing."""
    paths = [scratch] if plan.way is not Way.NONE or plan.contained else []
    paths += [plan.folder.path] if plan.folder.bounded else []
    rooms = [os.statvfs(path) for path in paths]
    return any(not room.f_bavail or (room.f_files > 0 and not room.f_favail) for room in rooms)


def say(fd: int, text: bytes) -> None:
    """Write to a pipe that nobody may read any more."""
    try:
        os.write(fd, text)
    except OSError:
        pass
