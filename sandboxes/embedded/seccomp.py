"""A seccomp filter that denies the calls a program has no business making: sockets, mounts, keys, tracing, ...

Denied calls fail with EPERM, so the program sees an ordinary error; calls for another machine kill it. It is a deny
list over a known range, not an allow list: calls newer than the table answer ENOSYS.
"""

import ctypes
import errno
import functools
import struct

from . import kernel
from .syscalls import CLONE, CLONE3, DENIED, IOCTL, LAST_KNOWN, PRLIMIT64

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x50000, 0x80000000
_AT_NUMBER, _AT_MACHINE, _AT_FIRST, _AT_SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data, low halves
_MACHINE_IDS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_CLONE_DENIED = 0x7E020000 | 0x8000  # new namespaces, and siblings, which would be the supervisor's children
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


@functools.cache  # best filled before the forks
def assemble(machine: str) -> bytes:
    """Return the BPF program for a machine; raise `OSError` for one without a table."""
    if machine not in DENIED:
        raise OSError(errno.ENOSYS, f"no table of system calls for {machine}")
    code: list[bytes] = []

    def emit(operation: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        code.append(struct.pack("<HBBI", operation, if_true, if_false, value))

    def refuse(number: int = errno.EPERM) -> None:
        emit(_RETURN, _ERRNO | number)

    emit(_LOAD, _AT_MACHINE)
    emit(_EQUAL, _MACHINE_IDS[machine], if_true=1)
    emit(_RETURN, _KILL)
    emit(_LOAD, _AT_NUMBER)
    if machine == "x86_64":
        emit(_AT_LEAST, _X32_BIT, if_false=1)
        emit(_RETURN, _KILL)
    for number in sorted(DENIED[machine].values()):
        emit(_EQUAL, number, if_false=1)
        refuse()
    # The flags of clone3 hide behind a pointer; without it libc falls back to clone, whose flags are visible.
    emit(_EQUAL, CLONE3, if_false=1)
    refuse(errno.ENOSYS)
    emit(_AT_LEAST, LAST_KNOWN + 1, if_false=1)
    refuse(errno.ENOSYS)
    emit(_EQUAL, CLONE[machine], if_false=4)
    emit(_LOAD, _AT_FIRST)
    emit(_ANY_BIT, _CLONE_DENIED, if_false=1)
    refuse()
    emit(_RETURN, _ALLOW)
    emit(_EQUAL, IOCTL[machine], if_false=5)
    emit(_LOAD, _AT_SECOND)
    emit(_EQUAL, _TIOCSTI, if_true=1)
    emit(_EQUAL, _TIOCLINUX, if_false=1)
    refuse()
    emit(_RETURN, _ALLOW)
    # Limits of another process (the init above the program) are not the program's to change.
    emit(_EQUAL, PRLIMIT64[machine], if_false=3)
    emit(_LOAD, _AT_FIRST)
    emit(_EQUAL, 0, if_true=1)
    refuse()
    emit(_RETURN, _ALLOW)
    return b"".join(code)


def apply() -> None:
    """Install the filter on this thread and all it forks; needs no_new_privs."""
    text = assemble(kernel.MACHINE)
    program = _Program(len(text) // 8, text)
    kernel.prctl(kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, ctypes.byref(program))
