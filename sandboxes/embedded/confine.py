"""Puts one process behind every wall that its slot has, in the only order that works.

Once as a trial, when the slot starts: each wall that cannot be built is named and left out from then on. After that
every wall of the plan is mandatory: a run that misses one does not start.
"""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from accredit.sandboxes.protocol import Limits

from . import kernel, landlock, namespaces, rlimits, seccomp
from .cgroup import Cgroup
from .namespaces import Way

_FIRST_UID, _UIDS = 60578, 606  # a range that no user or service of a distribution is given
_SLOT_PROCESSES = 4  # of the slot itself, where they count as the same user's


@dataclass(frozen=True, slots=True)
class Plan:
    """The walls of one slot. `layers` are those that every run must get."""

    way: Way
    layers: frozenset[str]
    cgroup: Cgroup | None
    uid: int


def uid_for(slot_pid: int) -> int:
    """Return the user id of a slot's programs; distinct per slot, since the kernel counts processes per user."""
    return _FIRST_UID + slot_pid % _UIDS


def confine(plan: Plan, limits: Limits, scratch: str, trial: bool) -> dict[str, str]:
    """Build the plan's walls around this process; return the failures of a trial, raise `OSError` otherwise."""
    steps: dict[str, Callable[[], None]] = {
        "cgroup": lambda: _join(plan),
        "rlimits": lambda: _limit(plan, limits),
        "uid_drop": lambda: _drop_uid(plan.uid),
        "landlock": lambda: landlock.apply(namespaces.readable_paths(plan.way), [scratch, "/dev/null"]),
        "seccomp": _filter_calls,
    }
    failures: dict[str, str] = {}
    for name, step in steps.items():
        if name == "landlock":  # between the last step that needs privileges and the first that forbids gaining any
            _give_up_privileges()
        if name not in plan.layers:
            continue
        try:
            step()
        except OSError as error:
            if not trial:
                raise OSError(error.errno, f"{name}: {error}") from error
            failures[name] = str(error)
    return failures


def _join(plan: Plan) -> None:
    if plan.cgroup is not None:
        plan.cgroup.join()


def _limit(plan: Plan, limits: Limits) -> None:
    bounded = "cgroup" in plan.layers
    if "uid_drop" in plan.layers:
        most = limits.pids
    elif plan.way is not Way.NONE:
        most = limits.pids + _SLOT_PROCESSES
    else:
        most = None if bounded else limits.pids + rlimits.tasks_of_user(os.getuid())
    rlimits.apply(limits, memory_bounded=bounded, most_processes=most)


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
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # so that a program may read its own /proc/self
    kernel.die_with_parent()


def _filter_calls() -> None:
    seccomp.apply()
    try:
        socket.socket().close()
    except PermissionError:
        return
    raise OSError("the filter was accepted but does not deny sockets")
