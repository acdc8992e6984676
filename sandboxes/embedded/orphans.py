"""Kills what a program left behind on machines without process namespaces.

There the supervisor is the reaper of orphans, so every descendant of a dead program becomes its own. A program that
forks faster than it is killed can outrun this; with namespaces the kernel does it in one stroke.
"""

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

_WITHIN_S = 5.0


class SurvivorsLeft(Exception):
    """Processes of a run are still alive: the slot is not fit for another."""


def kill_descendants(adopted: bool = False, keep: Collection[int] = ()) -> None:
    """Kill and reap every descendant of this process; raise `SurvivorsLeft` if that takes too long.

    `keep` are processes that stay, with all below them.

    With `adopted` those that fell to the first process, too: a container's, whose kernel may know no other reaper.
    """
    until = time.monotonic() + _WITHIN_S
    while descendants := _descendants(adopted, keep):
        _kill_all(descendants)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > until:
            raise SurvivorsLeft(f"{len(descendants)} processes of a run are still alive")


def kill_below(root: int, adopted: bool, keep: Collection[int]) -> None:
    """Kill every descendant of a child that reaps its own, except the single ones to `keep`."""
    until = time.monotonic() + _WITHIN_S
    while strays := [pid for pid in _below(root, adopted) if pid not in keep]:
        _kill_all(strays)
        if time.monotonic() > until:
            raise SurvivorsLeft(f"{len(strays)} processes of a cell are still alive")
        time.sleep(0.001)


def kill_user(uid: int) -> None:
    """Kill all processes of a user in one call, which a program that forks cannot outrun; only root can."""
    pid = os.fork()
    if pid == 0:
        with suppress(OSError):
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(pid, 0)


def _kill_all(pids: Iterable[int]) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):  # first stop all, so that none forks while others are killed
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _parents(zombies: bool) -> dict[int, int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        facts = _facts(int(name)) if name.isdigit() else None
        if facts is not None and (zombies or facts.alive):
            parents[int(name)] = facts.parent
    return parents


class _Facts(NamedTuple):
    parent: int
    alive: bool


def _facts(pid: int) -> _Facts | None:
    """Return what the kernel says of a process; one whose first thread has left lives as long as it has another."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return _Facts(int(fields[1]), fields[0] not in (b"Z", b"X") or int(fields[17]) > 1)
    return None


def _adopted(parents: Mapping[int, int]) -> list[int]:
    """Return the children of the first process that are not above this one."""
    lineage, above = {os.getpid()}, os.getppid()
    while above in parents:
        lineage.add(above)
        above = parents[above]
    return [pid for pid, parent in parents.items() if parent == 1 and pid not in lineage]


def _descendants(adopted: bool, keep: Collection[int]) -> list[int]:
    parents = {pid: parent for pid, parent in _parents(zombies=True).items() if pid not in keep}
    found = _adopted(parents) if adopted else []
    return found + _grown(parents, {os.getpid(), *found})


def _below(root: int, adopted: bool) -> list[int]:
    if not adopted and os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return _children_below(root)
    parents = _parents(zombies=False)
    found = _adopted(parents) if adopted else []
    return found + _grown(parents, {root, *found})


def _children_below(root: int) -> list[int]:
    """Return all that descend from a process, by asking the kernel for its children rather than for all there is."""
    found: list[int] = []
    todo = [root]
    while todo:
        pid = todo.pop()
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children") as file:
                    todo += map(int, file.read().split())
        if pid != root and (facts := _facts(pid)) is not None and facts.alive:
            found.append(pid)
    return found


def _grown(parents: Mapping[int, int], known: set[int]) -> list[int]:
    """Return all that descend from the known ones."""
    found: list[int] = []
    grew = True
    while grew:
        grew = False
        for pid, parent in parents.items():
            if parent in known and pid not in known:
                known.add(pid)
                found.append(pid)
                grew = True
    return found
