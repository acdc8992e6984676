"""Puts one process behind every wall that its slot has, in the only order that works.

Building reports failures rather than raising. When a slot starts, a trial finds the walls that cannot be built; they
are left out of its plan from then on. Every wall of the plan is mandatory: a run that misses one does not start.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from accredit.sandboxes.protocol import Limits

from . import kernel, landlock, namespaces, rlimits, seccomp
from .cgroup import Cgroup
from .folder import Folder
from .namespaces import Way

_FIRST_UID, _UIDS = 1_900_000_000, 1 << 22  # given to no user, service or container; one for every process id there is
_SMALL_FIRST_UID, _SMALL_UIDS = 60578, 606  # the same, where a user namespace maps no more than 65,536
_SLOT_PROCESSES = 4  # of the slot itself, where they count as the same user's


@dataclass(frozen=True, slots=True)
class Plan:
    """The walls of one slot. `layers` are those that every run must get; `tasks_of_user` had run before it started.

    `folder` is the session's. A `contained` slot has the namespaces, the control group and the file systems of a
    container to itself. `place` is the folder of the host in which a slot without namespaces keeps its own.
    """

    way: Way
    layers: frozenset[str]
    cgroup: Cgroup | None
    uid: int
    tasks_of_user: int
    folder: Folder
    contained: bool = False
    place: str | None = None


def uid_for(slot_pid: int) -> int:
    """Return the user id of a slot's programs; distinct per slot, since the kernel counts processes per user."""
    with open("/proc/self/uid_map") as file:
        mapped = [(int(first), int(count)) for first, _, count in (line.split() for line in file)]
    if any(first <= _FIRST_UID and _FIRST_UID + _UIDS <= first + count for first, count in mapped):
        return _FIRST_UID + slot_pid % _UIDS
    return _SMALL_FIRST_UID + slot_pid % _SMALL_UIDS


def is_programs_uid(uid: int) -> bool:
    """Whether a user id is one that `uid_for` gives to programs."""
    return 0 <= uid - _FIRST_UID < _UIDS or 0 <= uid - _SMALL_FIRST_UID < _SMALL_UIDS


def wall_in(plan: Plan, scratch: str) -> dict[str, str]:
    """Build all walls of the plan that do not depend on a run's limits; return the ones that failed, and why."""
    failures: dict[str, str] = {}
    if plan.cgroup is not None:
        _attempt("cgroup", plan, failures, plan.cgroup.join)
    _attempt("uid_drop", plan, failures, lambda: _drop_uid(plan.uid))
    _give_up_privileges()
    allowed = ("/",) if plan.contained else namespaces.readable_paths(plan.way)
    _attempt("landlock", plan, failures, lambda: landlock.apply(allowed, [scratch, plan.folder.path, "/dev/null"]))
    _attempt("seccomp", plan, failures, _filter_calls)
    return failures


def limit(plan: Plan, limits: Limits, beside: int = 0) -> dict[str, str]:
    """Bind this process to a run's limits and open it to itself; return the failure, if any. It needs no privileges.

    `beside` counts the processes of the session that live next to it as the same user's.
    """
    failures: dict[str, str] = {}
    bounded = "cgroup" in plan.layers and (plan.cgroup is None or plan.cgroup.bounds(limits.memory_mb))
    if "uid_drop" in plan.layers:
        most = limits.pids + beside
    elif plan.way is not Way.NONE:
        most = limits.pids + _SLOT_PROCESSES + beside
    else:
        most = None if bounded else limits.pids + plan.tasks_of_user + beside
    apply = partial(rlimits.apply, limits, memory_bounded=bounded, most_processes=most)
    _attempt("rlimits", plan, failures, apply)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # so that a program may read its own /proc/self; nobody's while it waits
    return failures


def _attempt(name: str, plan: Plan, failures: dict[str, str], step: Callable[[], None]) -> None:
    if name in plan.layers:
        try:
            step()
        except OSError as error:
            failures[name] = str(error)


def _drop_uid(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    try:
        os.close(os.open(os.__file__, os.O_RDONLY))
    except OSError as error:
        raise OSError(error.errno, f"another user cannot read the interpreter's library at {os.__file__}") from error


def _give_up_privileges() -> None:
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.die_with_parent(os.getppid())  # the change of user has undone it


def _filter_calls() -> None:
    seccomp.apply()
    try:
        socket.socket().close()
    except PermissionError:
        return
    raise OSError("the filter was accepted but does not deny sockets")
