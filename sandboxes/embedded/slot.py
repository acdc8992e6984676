"""The slot: a fresh interpreter that walls itself off and then forks one process per run.

Three processes: the *outer* one stays in the host's namespaces, makes the control group and removes it at the end;
the *door* enters the namespaces; the *supervisor* is the first process inside and serves the client. Each dies with
the one before it, and the supervisor ends when the client's socket closes or the client's process is gone.

The slot is executed with an empty environment, never forked from the trainer, whose memory it must not inherit.
"""

import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import NoReturn

from accredit.sandboxes.protocol import LAYERS, Layer, Limits

from . import cgroup, kernel, live, namespaces, program, rlimits, seccomp, service, wire
from .cgroup import Cgroup
from .confine import Plan, uid_for
from .folder import Folder
from .namespaces import Way
from .orphans import SurvivorsLeft
from .place import leave_place, make_place
from .runs import Supervisor, TrainerGone

_LEAVE_S = 3.0


@dataclass(frozen=True, slots=True)
class _Start:
    """What the outer process hands down: sockets, limits, and why layers are off that it knows of."""

    control: socket.socket
    trainer: int | None
    limits: Limits
    group: Cgroup | None
    uid: int
    off: dict[str, str]
    folder: str | None
    contained: bool


def main(control_fd: int, trainer_pid: int, options: str) -> None:
    """Serve one client; `options` is JSON with `limits`, `without` (layers to leave out) and perhaps `folder`.

    `folder` is a ready and empty one for the session's files, for a slot without namespaces that a container bounds.
    `contained` says that there is one, which the slot has to itself; `uid` is then its programs' user id, since the
    kernel counts a user's processes over all containers.

    A `trainer_pid` of 0 says that the client's process cannot be seen from here: the end of the stream ends the slot.
    """
    kernel.be_fresh()
    trainer = os.pidfd_open(trainer_pid) if trainer_pid else None
    if trainer_pid and os.getppid() != trainer_pid:
        return  # it died before we could watch it
    asked = json.loads(options)
    off = dict.fromkeys(asked["without"], "left out on request")
    limits = Limits(**asked["limits"])
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    group: Cgroup | None = None
    if "cgroup" not in off:
        try:
            make = cgroup.watch if asked.get("contained") else cgroup.create
            group = make(limits.memory_mb, limits.pids)
        except OSError as error:
            off["cgroup"] = str(error)
    uid, contained = asked.get("uid") or uid_for(os.getpid()), bool(asked.get("contained"))
    start = _Start(control, trainer, limits, group, uid, off, asked.get("folder"), contained)
    try:
        _serve_by_strongest_way(start)
    finally:
        if group is not None:
            group.remove()


def _serve_by_strongest_way(start: _Start) -> None:
    """Try each way into namespaces in a child, because a failed attempt cannot be taken back."""
    ways = [Way.NONE] if "namespaces" in start.off or start.contained else list(Way)
    refusals: list[str] = []
    outer = os.getpid()
    for way in ways:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _in_child(lambda way=way, writer=writer: _be_door(start, outer, way, writer, refusals))
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            refusal = file.read().decode()
        if refusal == "ok":
            start.control.close()  # else the client would not see the end of the supervisor
            os.waitpid(pid, 0)
            return
        os.waitpid(pid, 0)
        refusals.append(f"{way.value}: {refusal or 'ended without a word'}")
    wire.send(start.control, {"refused": "; ".join(refusals)})


def _be_door(start: _Start, outer: int, way: Way, answer: int, refusals: list[str]) -> None:
    try:
        namespaces.enter(way)
        kernel.die_with_parent(outer)
    except OSError as error:
        os.write(answer, str(error).encode())
        return
    door = os.getpid() if way is Way.NONE else 0
    pid = os.fork()
    if pid == 0:
        _in_child(lambda: _be_supervisor(start, door, way, answer, refusals))
    os.close(answer)
    start.control.close()
    os.waitpid(pid, 0)


def _be_supervisor(start: _Start, door: int, way: Way, answer: int, refusals: list[str]) -> None:
    kernel.die_with_parent(door)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        supervisor, layers = _build(start, way, refusals)
    except OSError as error:
        os.write(answer, str(error).encode())
        return
    os.write(answer, b"ok")
    os.close(answer)
    program.hide_own_modules()
    gc.collect()
    gc.freeze()  # keeps the forks from copying pages that only the collector touches
    start.control.settimeout(service.SEND_S)
    wire.send(start.control, {"layers": [asdict(layer) for layer in layers]})
    try:
        supervisor.prepare(start.limits.disk_mb)
        while service.serve_one(supervisor):
            supervisor.prepare(start.limits.disk_mb)
    except (TrainerGone, SurvivorsLeft, OSError):
        pass
    for session in list(supervisor.interpreters):
        live.forget(supervisor, session)
    supervisor.discard_spare()
    if supervisor.plan.place is not None:
        _leave(supervisor.plan.place)


def _build(start: _Start, way: Way, refusals: list[str]) -> tuple[Supervisor, list[Layer]]:
    """Build the root, try the walls of a run once, and return the supervisor with the layers as found."""
    own_processes, child_ends, tasks = None, None, 0
    if way is Way.NONE:
        with suppress(OSError) if start.contained else nullcontext():  # gVisor leaves orphans to the first process
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        tasks = rlimits.tasks_of_user(os.getuid())
        if start.contained:
            _close_shared_folders()
        if (own := kernel.pidfd_open(os.getpid())) is None:
            child_ends = kernel.signalfd(signal.SIGCHLD)
        else:
            os.close(own)
    else:
        own_processes = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        namespaces.make_root(start.limits.disk_mb)
    place = make_place() if way is Way.NONE and start.folder is None else None
    folder = _session_folder(start, way, place)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    off = dict(start.off)
    if way is Way.NONE and not start.contained:
        off.setdefault("namespaces", "; ".join(refusals))
    if way is Way.USER:
        off.setdefault("uid_drop", "only the user's own id exists in the user namespace")
    elif os.geteuid() != 0:
        off.setdefault("uid_drop", "not root")
    with suppress(OSError):
        seccomp.assemble(kernel.MACHINE)
    while True:
        folder.give_to(None if "uid_drop" in off else start.uid)
        plan = Plan(way, frozenset(LAYERS) - off.keys(), start.group, start.uid, tasks, folder, start.contained, place)
        supervisor = Supervisor(plan, start.control, start.trainer, own_processes, child_ends)
        failures = supervisor.try_walls(start.limits)
        if not failures:
            return supervisor, [Layer(name, name not in off, off.get(name, "")) for name in LAYERS]
        off.update(failures)


def _close_shared_folders() -> None:
    """Let programs keep nothing where the next one would find it; gVisor has no Landlock to forbid that."""
    for path in ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"):
        with suppress(OSError):
            os.chmod(path, 0o711)


def _session_folder(start: _Start, way: Way, place: str | None) -> Folder:
    """Return the session's folder: memory of its own size with namespaces, else a ready one or one of the host's."""
    size_mb = start.limits.disk_mb
    if way is not Way.NONE:
        return Folder(namespaces.WORK, size_mb, bounded=True)
    if start.folder is not None:
        own = os.stat(start.folder).st_dev != os.stat(os.path.dirname(start.folder)).st_dev
        return Folder(start.folder, size_mb, bounded=own)
    os.mkdir(f"{place}/work")
    return Folder(f"{place}/work", size_mb, bounded=False)


def _leave(place: str) -> None:
    """Remove the slot's folders in a process that outlives this one: nobody has to wait for a deep tree to be gone."""
    pid, until = os.fork(), time.monotonic() + _LEAVE_S
    if pid == 0:
        _in_child(lambda: leave_place(place))
    while os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() < until:
        time.sleep(0.005)


def _in_child(work: Callable[[], None]) -> NoReturn:
    """Do the work of a forked process and end it there, whatever happens."""
    status = 0
    try:
        work()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        status = 1
    os._exit(status)
