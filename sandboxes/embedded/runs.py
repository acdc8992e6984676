"""One run, from fork to evidence, as the slot's supervisor sees it.

Three processes: the supervisor; an *init*, first in the run's process namespace, which reaps orphans and passes on
the program's raw wait status; and the *program*. The supervisor waits for the init to die, never for the end of a
pipe, which an orphan could hold open. When the init is dead, the kernel has killed all that the program started.
"""

import json
import os
import select
import shutil
import signal
import socket
import struct
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from accredit.sandboxes.protocol import Limits
from accredit.sandboxes.verdict import Status, Stopped

from . import kernel, namespaces, program, wire
from .confine import Plan, confine
from .namespaces import Way
from .orphans import kill_descendants
from .page import ReportPage
from .wire import SETUP_S

_READY, _FAILED, _TRIAL = b"R", b"F", b"T"
_INIT_STATUS = struct.Struct("<i?")


class TrainerGone(Exception):
    """Nobody is left to report to: the slot ends."""


class Result(NamedTuple):
    """What one run left: evidence and usage as JSON fields, output, the program's unparsed report, words of setup."""

    evidence: dict[str, Any]
    usage: dict[str, Any]
    output: "Output"
    report: bytes
    setup: bytes


@dataclass(slots=True)
class Output:
    """Standard output (0) and standard error (1), kept up to a common cap and counted beyond it."""

    cap: int
    kept: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    sizes: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, which: int, part: bytes) -> None:
        """Count a part and keep what fits."""
        room = self.cap - len(self.kept[0]) - len(self.kept[1])
        self.kept[which].extend(part[:room])
        self.sizes[which] += len(part)

    @property
    def full(self) -> bool:
        """Whether more was written than may be."""
        return sum(self.sizes) > self.cap


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The slot's end of things that every run needs."""

    plan: Plan
    control: socket.socket
    trainer: int
    own_processes: int | None

    def try_walls(self, limits: Limits) -> dict[str, str]:
        """Build every wall of the plan around an empty process; return the ones that failed, with the reason."""
        result = self.run(0, b"", limits, trial=True)
        if not result.setup.startswith(_TRIAL):
            raise OSError(result.evidence.get("detail") or "the first process ended before its walls stood")
        return json.loads(result.setup[1:])

    def run(self, run_id: int, source: bytes, limits: Limits, trial: bool = False) -> Result:
        """Run one program; raise `TrainerGone` if the client goes away, `OSError` if no process could be made."""
        group = self.plan.cgroup
        oom_before = refused_before = 0
        if group is not None:
            group.set_limits(limits.memory_mb, limits.pids)
            group.reset_peak()
            oom_before, refused_before = group.oom_kills(), group.pids_refused() or 0
        page, output = ReportPage(), Output(limits.output_bytes)
        scratch = "/tmp" if self.plan.way is not Way.NONE else tempfile.mkdtemp(prefix="accredit-")
        watch = self._fork(run_id, source, limits, page, output, scratch, trial)
        try:
            watch.until_end(self.control, self.trainer)
        finally:
            watch.kill()
            _, init_status, used = os.wait4(watch.pid, 0)
            if self.plan.way is Way.NONE:
                kill_descendants()
                shutil.rmtree(scratch, ignore_errors=True)
            watch.drain()
        evidence = watch.evidence(init_status)
        evidence.update(cpu_s=used.ru_utime + used.ru_stime, cpu_limit_s=limits.cpu_s)
        peak_mb: float | None = used.ru_maxrss / 1024
        if group is not None:
            evidence["oom_kills"] = group.oom_kills() - oom_before
            refused = group.pids_refused()
            evidence["pids_refused"] = None if refused is None else refused - refused_before
            peak_mb = group.peak_mb() or peak_mb
        usage = {"wall_s": evidence["wall_s"], "cpu_s": evidence["cpu_s"], "peak_memory_mb": peak_mb}
        report = page.read()
        page.close()
        return Result(evidence, usage, output, report, bytes(watch.setup_text))

    def _fork(
        self, run_id: int, source: bytes, limits: Limits, page: ReportPage, output: Output, scratch: str, trial: bool
    ) -> "Watch":
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(4)]
        writers = [writer for _, writer in pipes]
        try:
            if self.own_processes is not None:
                kernel.unshare(kernel.NEWPID)
            pid = os.fork()
            if pid == 0:
                _be_init(self.plan, writers, source, limits, page, scratch, trial)
            if self.own_processes is not None:
                kernel.setns(self.own_processes, kernel.NEWPID)
        except OSError:
            for reader, _ in pipes:
                os.close(reader)
            raise
        finally:
            for writer in writers:
                os.close(writer)
        stdout, stderr, setup, status = (reader for reader, _ in pipes)
        return Watch(run_id, pid, os.pidfd_open(pid), stdout, stderr, setup, status, output, limits.wall_s)


@dataclass(slots=True)
class Watch:
    """What the supervisor holds of a run in progress."""

    run_id: int
    pid: int
    pidfd: int
    stdout: int
    stderr: int
    setup: int
    status: int
    output: Output
    wall_s: float
    setup_text: bytearray = field(default_factory=bytearray)
    began: float | None = None
    wall_used_s: float = 0.0
    stopped: Stopped | None = None
    cancelled: bool = False
    setup_late: bool = False

    def until_end(self, control: socket.socket, trainer: int) -> None:
        """Wait until the init is dead or the run has to be stopped."""
        poll = select.poll()
        for fd in (self.stdout, self.stderr, self.setup, self.pidfd, control.fileno(), trainer):
            poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + SETUP_S
        while True:
            left = deadline - time.monotonic()
            events = poll.poll(left * 1000) if left > 0 else []
            if not events:
                self.setup_late = self.began is None
                self.stopped = None if self.setup_late else Stopped.WALL
                return
            ready = {fd for fd, _ in events}
            if trainer in ready:
                raise TrainerGone
            if control.fileno() in ready and self._cancelled_by(control):
                self.cancelled = True
                return
            if self.setup in ready:
                part = os.read(self.setup, 65536)
                self.setup_text += part
                if not part:
                    poll.unregister(self.setup)
                elif self.setup_text.startswith(_READY) and self.began is None:
                    self.began = time.monotonic()
                    deadline = self.began + self.wall_s
            for which, fd in enumerate((self.stdout, self.stderr)):
                if fd in ready:
                    part = os.read(fd, 65536)
                    self.output.add(which, part)
                    if not part:
                        poll.unregister(fd)
            if self.output.full:
                self.stopped = Stopped.OUTPUT
                return
            if self.pidfd in ready:
                return

    def _cancelled_by(self, control: socket.socket) -> bool:
        try:
            frame = wire.receive(control, 5.0)
        except (OSError, ValueError) as error:
            raise TrainerGone from error
        if frame is None:
            raise TrainerGone
        return frame.header.get("cancel") == self.run_id

    def kill(self) -> None:
        """Kill the init, and with it all processes of its namespace."""
        self.wall_used_s = 0.0 if self.began is None else time.monotonic() - self.began
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(self.pidfd)

    def drain(self) -> None:
        """Read what the dead program left in its pipes, up to the cap."""
        for which, fd in enumerate((self.stdout, self.stderr)):
            os.set_blocking(fd, False)
            try:
                while not self.output.full and (part := os.read(fd, 65536)):
                    self.output.add(which, part)
            except BlockingIOError:
                pass
            os.close(fd)
        if self.output.full and self.stopped is None:
            self.stopped = Stopped.OUTPUT

    def evidence(self, init_status: int) -> dict[str, Any]:
        """Return the run's evidence as JSON fields, counters aside."""
        os.set_blocking(self.setup, False)
        os.set_blocking(self.status, False)
        facts: dict[str, Any] = {"stopped": self.stopped, "cancelled": self.cancelled, "wall_s": self.wall_used_s}
        try:
            while part := os.read(self.setup, 65536):
                self.setup_text += part
            passed_on = os.read(self.status, _INIT_STATUS.size)
        except BlockingIOError:
            passed_on = b""
        os.close(self.setup)
        os.close(self.status)
        if self.cancelled:
            return facts
        if not self.setup_text.startswith((_READY, _TRIAL)):
            reason = self.setup_text.removeprefix(_FAILED).decode("utf-8", "replace")
            reason = reason or ("its walls took too long" if self.setup_late else "it ended before the program began")
            return facts | {"fault": Status.START_FAILED, "detail": reason}
        if len(passed_on) == _INIT_STATUS.size:
            facts["wait_status"], facts["disk_full"] = _INIT_STATUS.unpack(passed_on)
        elif self.stopped is None:
            facts |= {"fault": Status.LOST, "detail": f"the run's init ended with wait status {init_status}"}
        return facts


def _be_init(
    plan: Plan, writers: list[int], source: bytes, limits: Limits, page: ReportPage, scratch: str, trial: bool
) -> NoReturn:
    """Be the first process of the run: start the program, reap until it ends, pass its wait status on."""
    stdout, stderr, setup, status = writers
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a first process ignores what it has no handler for
        kernel.die_with_parent()
        if plan.way is not Way.NONE:
            namespaces.enter_run(limits.disk_mb)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        child = os.fork()
        if child == 0:
            _be_program(plan, (stdout, stderr, setup), source, limits, page, scratch, trial)
        os.dup2(status, 3)
        os.closerange(4, 1 << 16)
        while True:
            pid, ended = os.wait()
            if pid == child:
                break
        left = os.statvfs(scratch)
        os.write(3, _INIT_STATUS.pack(ended, plan.way is not Way.NONE and not (left.f_bavail and left.f_favail)))
    except BaseException as error:
        _say(setup, _FAILED + repr(error).encode())
    os._exit(0)


def _be_program(
    plan: Plan,
    writers: tuple[int, int, int],
    source: bytes,
    limits: Limits,
    page: ReportPage,
    scratch: str,
    trial: bool,
) -> NoReturn:
    stdout, stderr, setup = writers
    try:
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        if plan.way is Way.NONE and "uid_drop" in plan.layers:
            os.chown(scratch, plan.uid, plan.uid)
        os.chdir(scratch)
        os.environ.update(HOME=scratch, TMPDIR=scratch)
        os.setsid()
        failures = confine(plan, limits, scratch, trial)
        if trial:
            os.write(setup, _TRIAL + json.dumps(failures).encode())
            os._exit(0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(setup, _READY)
        os.closerange(3, 1 << 16)
    except BaseException as error:
        _say(setup, _FAILED + repr(error).encode())
        os._exit(1)
    program.run(source, page)


def _say(fd: int, text: bytes) -> None:
    try:
        os.write(fd, text)
    except OSError:
        pass
