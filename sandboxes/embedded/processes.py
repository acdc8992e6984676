"""The two processes of a run, made in advance: the *init* and the *program*, which waits for what to run.

The init is the first process of the run's process namespace: it reaps orphans, passes the program's raw wait status
on, and with its own end the kernel ends all the others. Forking is what a run costs most, so a slot keeps one pair
ready behind all its walls, with an empty `/tmp`. Only the limits come with the program to run.
"""

import json
import os
import signal
import struct
import tempfile
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from accredit.sandboxes.protocol import Limits

from . import kernel, namespaces, program
from .confine import Plan, limit, wall_in
from .namespaces import Way
from .page import ReportPage

READY, FAILED, TRIAL = b"R", b"F", b"T"
"""First byte of what a run's setup says: its walls stand, or why not, or the result of a trial."""

INIT_STATUS = struct.Struct("<i?")
"""What the init passes on: the program's raw wait status, and whether its disk was full."""

_SIZES = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Pair:
    """A run's processes as the supervisor holds them: descriptors to read from, and one to feed."""

    pid: int
    pidfd: int
    stdout: int
    stderr: int
    setup: int
    status: int
    feed: int
    page: ReportPage
    scratch: str
    disk_mb: int

    def start(self, source: bytes, limits: Limits, trial: bool) -> None:
        """Hand over what to run. If the pair is dead that shows in its end, not here."""
        head = json.dumps({"limits": asdict(limits), "trial": trial}).encode()
        left = memoryview(b"".join((_SIZES.pack(len(head), len(source)), head, source)))
        try:
            while left:
                left = left[os.write(self.feed, left) :]
        except BrokenPipeError:
            pass
        os.close(self.feed)


def make_pair(plan: Plan, own_processes: int | None, disk_mb: int) -> Pair:
    """Fork an init and a waiting program; `own_processes` is the supervisor's process namespace, if it has one."""
    pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(5)]
    (stdout, _), (stderr, _), (setup, _), (status, _), (_, feed) = pipes
    theirs = [writer for _, writer in pipes[:4]] + [pipes[4][0]]
    ours = [stdout, stderr, setup, status, feed]
    page, supervisor = ReportPage(), os.getpid()
    scratch = "/tmp" if plan.way is not Way.NONE else tempfile.mkdtemp(prefix="accredit-")
    try:
        if own_processes is not None:
            kernel.unshare(kernel.NEWPID)
        pid = os.fork()
        if pid == 0:
            for fd in ours:
                os.close(fd)  # above all `feed`: who holds its writing end waits for it for ever
            _be_init(plan, theirs, page, scratch, disk_mb, 0 if own_processes is not None else supervisor)
        if own_processes is not None:
            kernel.setns(own_processes, kernel.NEWPID)
    except OSError:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return Pair(pid, os.pidfd_open(pid), stdout, stderr, setup, status, feed, page, scratch, disk_mb)


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
        left = os.statvfs(scratch)
        os.write(3, INIT_STATUS.pack(ended, plan.way is not Way.NONE and not (left.f_bavail and left.f_favail)))
    except BaseException as error:
        _say(setup, FAILED + repr(error).encode())
    os._exit(0)


def _be_program(
    init: int, plan: Plan, stdout: int, stderr: int, setup: int, feed: int, page: ReportPage, scratch: str
) -> NoReturn:
    try:
        kernel.die_with_parent(init)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.chdir(scratch)
        os.environ.update(HOME=scratch, TMPDIR=scratch)
        os.setsid()
        if plan.way is Way.NONE and "uid_drop" in plan.layers:
            os.chown(scratch, plan.uid, plan.uid)
        failures = wall_in(plan, scratch)
        order, source = _receive(feed)
        failures |= limit(plan, Limits(**order["limits"]))
        if order["trial"]:
            os.write(setup, TRIAL + json.dumps(failures).encode())
            os._exit(0)
        if failures:
            raise OSError(f"walls failed that stood before: {failures}")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(setup, READY)
        os.closerange(3, 1 << 16)
    except BaseException as error:
        _say(setup, FAILED + repr(error).encode())
        os._exit(1)
    program.run(source, page)


def _receive(feed: int) -> tuple[dict[str, Any], bytes]:
    data = bytearray()
    while part := os.read(feed, 1 << 16):
        data += part
        if len(data) >= _SIZES.size and len(data) >= _SIZES.size + sum(_SIZES.unpack_from(data)):
            break
    if not data:
        os._exit(0)  # the slot ended and never needed this pair
    head, size = _SIZES.unpack_from(data)
    begin = _SIZES.size + head
    return json.loads(data[_SIZES.size : begin]), bytes(data[begin : begin + size])


def _say(fd: int, text: bytes) -> None:
    try:
        os.write(fd, text)
    except OSError:
        pass
