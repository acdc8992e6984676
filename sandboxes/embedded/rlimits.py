"""Per-process limits: the floor under every other layer, present on every machine.

They bound one process, not a program with many; only a cgroup bounds the whole. They cannot be raised again by a
program without privileges.
"""

import errno
import os
import resource
from contextlib import suppress
from math import ceil

from accredit.sandboxes.protocol import Limits

_MB = 1 << 20
_OPEN_FILES = 128
_INTERPRETER_MB = 64  # address space that an interpreter maps before the program's first line


def apply(limits: Limits, *, memory_bounded: bool, most_processes: int | None) -> None:
    """Bind this process; `memory_bounded` says that a cgroup counts real memory, so address space may be wider."""
    values = {
        resource.RLIMIT_AS: _address_mb(limits.memory_mb, memory_bounded) * _MB,
        resource.RLIMIT_FSIZE: limits.disk_mb * _MB,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if most_processes is not None:
        values[resource.RLIMIT_NPROC] = most_processes
    for kind, value in values.items():
        _set(kind, value, value)
    cpu_s = ceil(limits.cpu_s)
    _set(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)  # first SIGXCPU, which says why; then SIGKILL for who ignores it


def lower(cpu_s: float, memory_mb: int, *, memory_bounded: bool) -> None:
    """Bind this process more tightly for a while: the hard limits stay, so that the next cell may have more."""
    for kind, soft in (
        (resource.RLIMIT_CPU, ceil(cpu_s)),
        (resource.RLIMIT_AS, _address_mb(memory_mb, memory_bounded) * _MB),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _address_mb(memory_mb: int, memory_bounded: bool) -> int:
    return 2 * memory_mb + 256 if memory_bounded else memory_mb + _INTERPRETER_MB


def _set(kind: int, soft: int, hard: int) -> None:
    _, highest = resource.getrlimit(kind)
    if highest != resource.RLIM_INFINITY:
        soft, hard = min(soft, highest), min(hard, highest)
    try:
        resource.setrlimit(kind, (soft, hard))
    except ValueError as error:
        if kind != resource.RLIMIT_MSGQUEUE:  # gVisor has no message queues to bound
            raise OSError(errno.EPERM, f"limit {kind} of {soft}: {error}") from error


def tasks_of_user(uid: int) -> int:
    """Count the threads a user has now, because RLIMIT_NPROC counts per user and not per program."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count
