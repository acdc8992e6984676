"""Whose a container is: labels that name the process that opened it, and whether that process still lives.

A process id alone is not enough, since numbers come again: the time of its start goes with it. Processes of another
machine, or of another process namespace, cannot be seen from here, and are never called dead.
"""

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress

LABEL = "accredit.sandbox"
_PREFIX = "accredit."


def labels(run: str, attempt: int, sandbox_id: str) -> dict[str, str]:
    """Return the labels of a container of this process."""
    pid = os.getpid()
    return {
        LABEL: sandbox_id,
        _PREFIX + "run": run,
        _PREFIX + "attempt": str(attempt),
        _PREFIX + "host": host(),
        _PREFIX + "pid": str(pid),
        _PREFIX + "started": started(pid) or "",
        _PREFIX + "created": f"{time.time():.3f}",
    }


def is_own(found: Mapping[str, str]) -> bool:
    """Whether a container belongs to this process."""
    pid = os.getpid()
    return _owner(found) == (host(), str(pid), started(pid) or "")


def is_orphan(found: Mapping[str, str]) -> bool:
    """Whether the process that a container belongs to could be seen from here, and is dead."""
    there, pid, then = _owner(found)
    if there != host() or not pid.isdigit():
        return False
    return started(int(pid)) != then if then else not _alive(int(pid))


def host() -> str:
    """Return a name of this boot of this machine and this process namespace."""
    parts = [platform.node()]
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        parts.append(file.read().strip())
    with suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return "/".join(parts)


def started(pid: int) -> str | None:
    """Return when a process started, in the kernel's ticks; `None` if it is dead, or where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _owner(found: Mapping[str, str]) -> tuple[str, str, str]:
    return tuple(found.get(_PREFIX + name, "") for name in ("host", "pid", "started"))  # type: ignore[return-value]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
