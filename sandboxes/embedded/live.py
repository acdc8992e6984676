"""One cell, from order to evidence, as the slot's supervisor sees it.

The end of a cell is the end of the process that ran it. The cell is kept if that process exited by itself, within all
limits, and left a next state; else the session goes on from the undo copy.
"""

import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from typing import Any

from accredit.sandboxes.protocol import Limits
from accredit.sandboxes.verdict import Stopped

from . import cells, kernel, wire
from .cells import Cell, Interpreter
from .folder import Refused, remove_tree
from .namespaces import Way
from .orphans import SurvivorsLeft, kill_below
from .runs import Output, Result, Supervisor, TrainerGone

_CLOCK_OF_PROCESS = 2  # CPUCLOCK_SCHED of a whole process, in the kernel's encoding
_LOST = "the interpreter is gone, and the names with it: the next cell starts a new one"
_COUNT_S = 0.02
_MOST_BRANCHES = 32


def run_cell(supervisor: Supervisor, run_id: int, session: int, source: bytes, limits: Limits, most: Limits) -> Result:
    """Run a cell in a session's interpreter, which starts with the first; `most` are the session's own limits."""
    host = supervisor.interpreters.get(session)
    if host is None:
        host = cells.start(supervisor.plan, supervisor.own_processes, session, most)
        supervisor.interpreters[session] = host
    elif session not in host.states or host.states[session].dead():
        forget(supervisor, session)  # by a run that used up the memory, or a cell of another branch
        facts = {"wait_status": int(signal.SIGKILL), "detail": f"before this cell, {_LOST}"}
        return Result(facts, {}, Output(limits.output_bytes), b"", b"")
    plan = supervisor.plan
    with _counted(supervisor, host, limits) as facts:
        bounded = plan.cgroup is not None and plan.cgroup.bounds(limits.memory_mb)
        began = time.monotonic()
        cell = host.begin(session, source, limits, bounded)
        watch = _Watch(host, cell, run_id, limits, Output(limits.output_bytes), began)
        try:
            watch.until_end(supervisor)
        finally:
            watch.stop()
        buried = host.burial(cell.runner)
        watch.drain()
    facts |= {"stopped": watch.stopped, "cancelled": watch.cancelled, "wall_s": watch.wall_used_s}
    keep = not (watch.stopped or watch.cancelled or facts.get("oom_kills"))
    if buried is None:  # no kernel told its init of it; a next state shows that it came to its end
        status = 0 if b'"end"' in host.page.read()[:20] else 1 << 8
        buried = cells.Burial(status if keep and cell.following.heard else int(signal.SIGKILL), 0.0, 0.0, False)
    keep = keep and os.WIFEXITED(buried.wait_status) and os.WEXITSTATUS(buried.wait_status) in (0, 1)
    report = host.page.read()
    settled = host.settle(session, cell, keep)
    if keep and not cell.following.heard:
        report, facts["detail"] = b"", "the cell ended, but its names did not live on: it is undone"
    if not settled:
        facts["detail"] = _LOST
        forget(supervisor, session)
    _clear(supervisor, host)
    if plan.contained or plan.way is not Way.NONE:  # elsewhere a killed slot ends its states by hanging up on them
        host.rest()
    if not watch.cancelled:
        facts |= {"wait_status": buried.wait_status, "disk_full": buried.disk_full}
    facts |= {"cpu_s": buried.cpu_s, "cpu_limit_s": limits.cpu_s}
    peak_mb = facts.pop("peak_mb", None) or buried.peak_mb
    usage = {"wall_s": watch.wall_used_s, "cpu_s": buried.cpu_s, "peak_memory_mb": peak_mb}
    return Result(facts, usage, watch.output, report, b"")


def branch(supervisor: Supervisor, session: int) -> int | None:
    """Let another session hold the same state; `None` if the session has no live interpreter."""
    host = supervisor.interpreters.get(session)
    if host is None:
        return None
    state = host.states.get(session)
    if state is None or state.dead():
        forget(supervisor, session)
        raise Refused(_LOST)
    if len(supervisor.interpreters) >= _MOST_BRANCHES:
        raise Refused(f"expected at most {_MOST_BRANCHES} open branches of one interpreter: close some")
    number = max(supervisor.interpreters) + 1
    supervisor.interpreters[number] = host
    host.states[number] = state
    return number


def forget(supervisor: Supervisor, session: int) -> None:
    """Let a session's interpreter go; it ends with the last session that holds it."""
    host = supervisor.interpreters.pop(session, None)
    if host is not None:
        host.drop(session)
        if host not in supervisor.interpreters.values():
            host.end()


def silence(supervisor: Supervisor) -> None:
    """End the states of all live interpreters, and what they have left; each session is told at its next cell.

    For a machine without process namespaces, where they can stop what starts beside them, and fill the `/tmp` of both.
    """
    hosts = {host.pid: host for host in supervisor.interpreters.values()}
    for host in hosts.values():
        host.kill_states()
    for pid, host in hosts.items():
        kill_below(pid, supervisor.plan.contained, hosts.keys())
        if host.scratch is not None:
            remove_tree(host.scratch)


@contextmanager
def _counted(supervisor: Supervisor, host: Interpreter, limits: Limits) -> Iterator[dict[str, Any]]:
    """Set the control group to a cell's limits, and put what it counted meanwhile into the facts."""
    group, facts = supervisor.plan.cgroup, dict[str, Any]()
    if group is None:
        yield facts
        return
    states = len({state.pid for state in host.states.values()})
    beside = supervisor.plan.folder.used_mb()
    if states > 1 or len(set(map(id, supervisor.interpreters.values()))) > 1:
        beside = group.usage_mb()
    group.set_limits(
        limits.memory_mb + (ceil(beside) if beside >= 1 else 0), limits.pids + len(supervisor.living()) + 2
    )
    group.reset_peak()
    oom_before, refused_before = group.oom_kills(), group.pids_refused() or 0
    yield facts
    facts["oom_kills"] = group.oom_kills() - oom_before
    refused = group.pids_refused()
    facts["pids_refused"] = None if refused is None else refused - refused_before
    facts["peak_mb"] = group.peak_mb()


def _clear(supervisor: Supervisor, host: Interpreter) -> None:
    """End what the cell has left running: nothing but the states lives between cells."""
    plan = supervisor.plan
    try:
        kill_below(host.pid, plan.contained, supervisor.living())
    except SurvivorsLeft:
        if plan.way is Way.NONE:
            raise
        for session in [number for number, other in supervisor.interpreters.items() if other is host]:
            forget(supervisor, session)  # with its init all of them end


@dataclass(slots=True)
class _Watch:
    """What the supervisor sees of a cell in progress."""

    host: Interpreter
    cell: Cell
    run_id: int
    limits: Limits
    output: Output
    began: float
    wall_used_s: float = 0.0
    stopped: Stopped | None = None
    cancelled: bool = False

    def until_end(self, supervisor: Supervisor) -> None:
        """Wait until the cell's process is dead or has to be stopped."""
        cell, poll = self.cell, select.poll()
        end = cell.runner.sock.fileno() if cell.runner.pidfd is None else cell.runner.pidfd
        poll.register(end, select.POLLIN if cell.runner.pidfd is not None else 0)
        words = {state.sock.fileno(): state for state in (cell.undo, cell.following)}
        pipes = {cell.stdout: 0, cell.stderr: 1}
        control, trainer = supervisor.control.fileno(), supervisor.trainer
        for fd in (*words, *pipes, self.host.status, control, trainer):
            if fd is not None:
                poll.register(fd, select.POLLIN)
        most_tasks = (
            kernel.tasks() + self.limits.pids if supervisor.plan.contained and not supervisor.plan.cgroup else None
        )
        deadline = self.began + self.limits.wall_s
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                self.stopped = Stopped.WALL
                return
            pause = min(left, self._cpu_left(), left if most_tasks is None else _COUNT_S)
            if pause <= 0:
                self.stopped = Stopped.CPU
                return
            ready = {fd for fd, _ in poll.poll(ceil(pause * 1000))}
            if most_tasks is not None and kernel.tasks() > most_tasks:
                self.stopped = Stopped.PROCESSES
                return
            if trainer in ready:
                raise TrainerGone
            if control in ready and _cancelled(supervisor.control, self.run_id):
                self.cancelled = True
                return
            for fd in ready & words.keys():
                if words[fd].heard or not words[fd].hear() or words[fd].heard:
                    poll.unregister(fd)
            if self.host.status in ready:
                self.host.hear_init()
            for fd in ready & pipes.keys():
                part = os.read(fd, 1 << 16)
                self.output.add(pipes[fd], part)
                if not part:
                    poll.unregister(fd)
            if self.output.full:
                self.stopped = Stopped.OUTPUT
                return
            if end in ready:
                return

    def _cpu_left(self) -> float:
        """Return how long the cell cannot yet have used up its processor time, in seconds; its children aside."""
        try:
            used_s = time.clock_gettime((~self.cell.runner.pid << 3) | _CLOCK_OF_PROCESS)
        except OSError:
            return self.limits.wall_s
        left_s = self.limits.cpu_s - used_s
        return max(left_s / (os.cpu_count() or 1), 0.01) if left_s > 0 else 0.0

    def stop(self) -> None:
        """End the cell's process, if it has not ended."""
        self.wall_used_s = time.monotonic() - self.began
        self.cell.runner.kill()

    def drain(self) -> None:
        """Read what the dead cell left in its pipes, up to the cap."""
        for which, fd in enumerate((self.cell.stdout, self.cell.stderr)):
            os.set_blocking(fd, False)
            with suppress(BlockingIOError):
                while not self.output.full and (part := os.read(fd, 1 << 16)):
                    self.output.add(which, part)
            os.close(fd)
        if self.output.full and self.stopped is None:
            self.stopped = Stopped.OUTPUT


def _cancelled(control: socket.socket, run_id: int) -> bool:
    try:
        frame = wire.receive(control, 5.0)
    except (OSError, ValueError) as error:
        raise TrainerGone from error
    if frame is None:
        raise TrainerGone
    return frame.header.get("cancel") == run_id
