"""One run, from order to evidence, as the slot's supervisor sees it.

The supervisor waits for the program to die, never for the end of a pipe, which an orphan could hold open. It keeps the
clock, counts the output and reads the kernel's counters; what the program's process reports is passed on unread.
"""

import json
import os
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

from accredit.sandboxes.protocol import Limits
from accredit.sandboxes.verdict import Status, Stopped

from . import kernel, wire
from .cells import Interpreter
from .confine import Plan
from .folder import remove_tree
from .namespaces import Way
from .orphans import kill_descendants, kill_user
from .processes import FAILED, READY, TRIAL, Burial, Order, Pair, disk_full, make_pair
from .wire import SETUP_S

_COUNT_S = 0.02


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


@dataclass(slots=True)
class Supervisor:
    """The slot's end of things that every run needs, and the pair of processes that waits for the next one."""

    plan: Plan
    control: socket.socket
    trainer: int | None
    own_processes: int | None
    child_ends: int | None = None
    spare: Pair | None = None
    interpreters: dict[int, Interpreter] = field(default_factory=dict)

    def prepare(self, disk_mb: int) -> None:
        """Make the processes of the next run in advance, unless they are there; if that fails, the run will say so."""
        if self.spare is None:
            with suppress(OSError):
                self.spare = make_pair(self.plan, self.own_processes, disk_mb, self.child_ends)

    def try_walls(self, limits: Limits) -> dict[str, str]:
        """Build every wall of the plan around an empty process; return the ones that failed, with the reason."""
        result = self.run(0, Order(limits, trial=True))
        if not result.setup.startswith(TRIAL):
            raise OSError(result.evidence.get("detail") or "the first process ended before its walls stood")
        return json.loads(result.setup[1:])

    def run(self, run_id: int, order: Order) -> Result:
        """Run a program or command; raise `TrainerGone` if the client goes away, `OSError` if no process can be."""
        group, limits = self.plan.cgroup, order.limits
        oom_before = refused_before = 0
        if group is not None:
            group.set_limits(limits.memory_mb + self._at_rest_mb(), limits.pids + order.beside)
            group.reset_peak()
            oom_before, refused_before = group.oom_kills(), group.pids_refused() or 0
        pair = self._take_pair(limits.disk_mb)
        watch = Watch(pair, run_id, limits.wall_s, Output(limits.output_bytes))
        try:
            pair.start(order)
            watch.until_end(self.control, self.trainer, self._most_tasks(order))
            if watch.stopped is Stopped.PROCESSES and "uid_drop" in self.plan.layers:
                kill_user(self.plan.uid)
        finally:
            watch.kill(self.plan)
            buried = pair.bury()
            if self.plan.way is Way.NONE:
                kill_descendants(self.plan.contained, self.living())
                remove_tree(pair.scratch)
            watch.drain()
        evidence = watch.evidence(buried)
        evidence.update(cpu_s=buried.cpu_s, cpu_limit_s=limits.cpu_s, command=order.argv is not None)
        peak_mb: float | None = buried.peak_mb
        if group is not None:
            evidence["oom_kills"] = group.oom_kills() - oom_before
            refused = group.pids_refused()
            evidence["pids_refused"] = None if refused is None else refused - refused_before
            peak_mb = group.peak_mb() or peak_mb
        usage = {"wall_s": evidence["wall_s"], "cpu_s": evidence["cpu_s"], "peak_memory_mb": peak_mb}
        report = pair.page.read()
        pair.close()
        return Result(evidence, usage, watch.output, report, bytes(watch.setup_text))

    def discard_spare(self) -> None:
        """End the waiting pair, if there is one, and remove its folder."""
        pair, self.spare = self.spare, None
        if pair is None:
            return
        pair.kill()
        pair.bury()
        for fd in (pair.stdout, pair.stderr):
            os.close(fd)
        pair.close()
        if self.plan.way is Way.NONE:
            kill_descendants(self.plan.contained, self.living())
            remove_tree(pair.scratch)

    def _most_tasks(self, order: Order) -> int | None:
        """Return how many tasks there may be, where they are only bounded by being counted: gVisor bounds none."""
        if not self.plan.contained or self.plan.cgroup is not None:
            return None
        return kernel.tasks() + order.limits.pids

    def living(self) -> set[int]:
        """Return the processes of live interpreters that are to outlive the next run."""
        hosts = self.interpreters.values()
        return set[int]().union(*(host.living for host in hosts))

    def _at_rest_mb(self) -> int:
        """Return the memory that the session's files and interpreters hold, which is not the next run's own."""
        used_mb = self.plan.folder.used_mb()
        if self.interpreters and self.plan.cgroup is not None:
            used_mb = self.plan.cgroup.usage_mb()
        return ceil(used_mb) if used_mb >= 1 else 0

    def _take_pair(self, disk_mb: int) -> Pair:
        if self.spare is not None and (self.spare.disk_mb != disk_mb or self.spare.ended() or self.spare.init_gone()):
            self.discard_spare()  # its `/tmp` has another size, or a cell has used up the memory that both share
        pair, self.spare = self.spare, None
        return pair or make_pair(self.plan, self.own_processes, disk_mb, self.child_ends)


@dataclass(slots=True)
class Watch:
    """What the supervisor sees of a run in progress."""

    pair: Pair
    run_id: int
    wall_s: float
    output: Output
    setup_text: bytearray = field(default_factory=bytearray)
    began: float | None = None
    wall_used_s: float = 0.0
    stopped: Stopped | None = None
    cancelled: bool = False
    setup_late: bool = False
    ended: bool = False
    init_gone: bool = False
    disk_full: bool = False

    def until_end(self, control: socket.socket, trainer: int | None, most_tasks: int | None) -> None:
        """Wait until the program is dead or the run has to be stopped, also for having more than `most_tasks`."""
        pair, poll = self.pair, select.poll()
        for fd in (pair.stdout, pair.stderr, pair.setup, pair.end, control.fileno(), trainer):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + SETUP_S
        while True:
            left = deadline - time.monotonic()
            pause = left if most_tasks is None else min(left, _COUNT_S)
            ready = {fd for fd, _ in poll.poll(ceil(pause * 1000))} if left > 0 else set[int]()
            if most_tasks is not None and kernel.tasks() > most_tasks:
                self.stopped = Stopped.PROCESSES
                return
            if not ready and pause < left:
                continue
            if not ready:
                self.setup_late = self.began is None
                self.stopped = None if self.setup_late else Stopped.WALL
                return
            if trainer in ready:
                raise TrainerGone
            if control.fileno() in ready and self._cancelled_by(control):
                self.cancelled = True
                return
            if pair.setup in ready:
                if not self._hear_setup():
                    poll.unregister(pair.setup)
                elif self.setup_text.startswith(READY) and self.began is None:
                    self.began = time.monotonic()
                    deadline = self.began + self.wall_s
            for which, fd in enumerate((pair.stdout, pair.stderr)):
                if fd in ready:
                    part = os.read(fd, 1 << 16)
                    self.output.add(which, part)
                    if not part:
                        poll.unregister(fd)
            if self.output.full:
                self.stopped = Stopped.OUTPUT
                return
            if pair.end in ready and pair.ended():
                return

    def _hear_setup(self) -> bool:
        part = os.read(self.pair.setup, 1 << 16)
        self.setup_text += part
        return bool(part)

    def _cancelled_by(self, control: socket.socket) -> bool:
        try:
            frame = wire.receive(control, 5.0)
        except (OSError, ValueError) as error:
            raise TrainerGone from error
        if frame is None:
            raise TrainerGone
        return frame.header.get("cancel") == self.run_id

    def kill(self, plan: Plan) -> None:
        """Note how the program has left things, if it has ended, then kill the init, and with it all that is left."""
        self.wall_used_s = 0.0 if self.began is None else time.monotonic() - self.began
        self.ended = self.pair.ended()
        if self.ended:
            self.init_gone = self.pair.init_gone()
            with self.pair.scratch_left() as scratch:
                self.disk_full = disk_full(plan, scratch)
        self.pair.kill()

    def drain(self) -> None:
        """Read what the dead program left in its pipes, up to the cap."""
        for which, fd in enumerate((self.pair.stdout, self.pair.stderr)):
            os.set_blocking(fd, False)
            try:
                while not self.output.full and (part := os.read(fd, 1 << 16)):
                    self.output.add(which, part)
            except BlockingIOError:
                pass
            os.close(fd)
        if self.output.full and self.stopped is None:
            self.stopped = Stopped.OUTPUT

    def evidence(self, buried: Burial) -> dict[str, Any]:
        """Return the run's evidence as JSON fields, the kernel's counters aside."""
        os.set_blocking(self.pair.setup, False)
        try:
            while self._hear_setup():
                pass
        except BlockingIOError:
            pass
        facts: dict[str, Any] = {"stopped": self.stopped, "cancelled": self.cancelled, "wall_s": self.wall_used_s}
        if self.cancelled:
            return facts
        if not self.setup_text.startswith((READY, TRIAL)):
            reason = self.setup_text.removeprefix(FAILED).decode("utf-8", "replace")
            reason = reason or ("its walls took too long" if self.setup_late else "it ended before the program began")
            return facts | {"fault": Status.START_FAILED, "detail": reason}
        if self.init_gone and self.stopped is None:
            facts |= {"fault": Status.LOST, "detail": "the run's init ended before the program"}
        elif self.ended:
            facts |= {"wait_status": buried.wait_status, "disk_full": self.disk_full}
        return facts
