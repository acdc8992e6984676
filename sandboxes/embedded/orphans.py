"""Kills what a program left behind on machines without process namespaces.

There the supervisor is the reaper of orphans, so every descendant of a dead program becomes its own. A program that
forks faster than it is killed can outrun this; with namespaces the kernel does it in one stroke.
"""

import os
import signal
import time
from contextlib import suppress

_WITHIN_S = 5.0


class SurvivorsLeft(Exception):
    """Processes of a run are still alive: the slot is not fit for another."""


def kill_descendants(adopted: bool = False) -> None:
    """Kill and reap every descendant of this process; raise `SurvivorsLeft` if that takes too long.

    With `adopted` those that fell to the first process, too: a container's, whose kernel may know no other reaper.
    """
    until = time.monotonic() + _WITHIN_S
    while descendants := _descendants(adopted):
        for number in (signal.SIGSTOP, signal.SIGKILL):  # first stop all, so that none forks while others are killed
            for pid in descendants:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > until:
            raise SurvivorsLeft(f"{len(descendants)} processes of a run are still alive")


def kill_user(uid: int) -> None:
    """Kill all processes of a user in one call, which a program that forks cannot outrun; only root can."""
    pid = os.fork()
    if pid == 0:
        with suppress(OSError):
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        os._exit(0)
    os.waitpid(pid, 0)


def _descendants(adopted: bool) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    lineage, above = {os.getpid()}, os.getppid()
    while above in parents:
        lineage.add(above)
        above = parents[above]
    found = [pid for pid, parent in parents.items() if adopted and parent == 1 and pid not in lineage]
    known = {os.getpid(), *found}
    grew = True
    while grew:
        grew = False
        for pid, parent in parents.items():
            if parent in known and pid not in known:
                known.add(pid)
                found.append(pid)
                grew = True
    return found
