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


def kill_descendants() -> None:
    """Kill and reap every descendant of this process; raise `SurvivorsLeft` if that takes too long."""
    until = time.monotonic() + _WITHIN_S
    while descendants := _descendants(os.getpid()):
        for number in (signal.SIGSTOP, signal.SIGKILL):  # first stop all, so that none forks while others are killed
            for pid in descendants:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > until:
            raise SurvivorsLeft(f"{len(descendants)} processes of a run are still alive")


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    found: list[int] = []
    known = {root}
    grew = True
    while grew:
        grew = False
        for pid, parent in parents.items():
            if parent in known and pid not in known:
                known.add(pid)
                found.append(pid)
                grew = True
    return found
