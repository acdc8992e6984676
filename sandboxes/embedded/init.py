"""The init of a run's process namespace: a program of under 300 bytes, because a fork of the interpreter costs more.

It reaps what the program orphans, for ever; the supervisor kills it, and with it the kernel kills all that is left in
the namespace. It holds nothing but one end of a pipe: a byte in it says that no process may look into the init any
more, and its hang-up that the init is gone. The program is not its child but the supervisor's own.

It dies with the supervisor, since that is the first process of the namespace around this one.
"""

import os
import signal
import struct

from . import kernel

PATH = "/.init"
"""Where a slot with namespaces keeps it, in its read-only root."""

_X86_64 = """
bf04000000 31f6 b89d000000 0f05                     prctl(PR_SET_DUMPABLE, 0)
bf01000000 4889e6 ba01000000 b801000000 0f05        write(1, stack, 1)
b800000100 50                                       push the set {SIGCHLD}
4883cfff 31f6 ba00000040 4531d2 b83d000000 0f05     again: wait4(-1, NULL, __WALL, NULL)
85c0 79e7                                           one was reaped: again
4889e7 31f6 31d2 41ba08000000 b880000000 0f05       rt_sigtimedwait(stack, NULL, NULL, 8)
ebd1                                                again
"""

_AARCH64 = """
800080d2 010080d2 e81480d2 010000d4                 prctl(PR_SET_DUMPABLE, 0)
200080d2 e1030091 220080d2 080880d2 010000d4        write(1, stack, 1)
2400a0d2 e40f1ff8                                   push the set {SIGCHLD}
00008092 010080d2 0200a8d2 030080d2 882080d2 010000d4   again: wait4(-1, NULL, __WALL, NULL)
40ffff36                                            one was reaped: again
e0030091 010080d2 020080d2 030180d2 281180d2 010000d4   rt_sigtimedwait(stack, NULL, NULL, 8)
f3ffff17                                            again
"""

_MACHINES = {"x86_64": (62, _X86_64), "aarch64": (183, _AARCH64)}  # number of the machine in ELF, and its code
_HEX = frozenset("0123456789abcdef")
_BASE, _HEADERS = 0x400000, 64 + 56


def image(machine: str) -> bytes:
    """Return the executable for a machine; raise `OSError` for one that it is not written for."""
    if machine not in _MACHINES:
        raise OSError(38, f"a run's init is not written for {machine}")
    number, listing = _MACHINES[machine]
    code = bytes.fromhex("".join(word for line in listing.splitlines() for word in _code_of(line)))
    size = _HEADERS + len(code)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack("<HHIQQQIHHHHHH", 2, number, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000)
    return ident + header + segment + code


def install(path: str = PATH) -> None:
    """Write the executable for this machine."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
    try:
        os.write(fd, image(kernel.MACHINE))
    finally:
        os.close(fd)


def start(pipe: int, path: str = PATH) -> int:
    """Execute it as the next child, with `pipe` and nothing else open; return its process id.

    It waits for SIGCHLD, so that one has to be blocked; all others a first process ignores that has no handler.
    """
    streams = [(os.POSIX_SPAWN_DUP2, pipe, 1), (os.POSIX_SPAWN_CLOSE, 0), (os.POSIX_SPAWN_CLOSE, 2)]
    return os.posix_spawn(path, ["init"], {}, file_actions=streams, setsigmask=[signal.SIGCHLD])


def _code_of(line: str) -> list[str]:
    words = line.split()
    end = next((at for at, word in enumerate(words) if not _HEX.issuperset(word)), len(words))
    return words[:end]
