"""Landlock: which files a program may read or write, no TCP, no signals out of the sandbox.

A second wall behind the mount namespace, and the only one for files where there is none. Rights a kernel does not
know are left out, so an older kernel gives a weaker rule set rather than an error.
"""

import ctypes
import os
from collections.abc import Iterable

from . import kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE, _READ, _READ_DIR, _TRUNCATE = 1, 2, 4, 8, 1 << 14
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE, _IOCTL_DEVICE = 1 << 6, 1 << 11, 1 << 15
_READ_ONLY = _EXECUTE | _READ | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def abi() -> int:
    """Return the kernel's Landlock version; raise `OSError` where there is none."""
    return kernel.syscall(_CREATE_RULESET, None, 0, 1, call="landlock_create_ruleset")


def handled(version: int) -> int:
    """Return the bits of every file right that a Landlock version knows."""
    return (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1


def apply(read_only: Iterable[str], read_write: Iterable[str]) -> None:
    """Confine this thread and all it forks to these paths; needs no_new_privs. Missing paths are skipped."""
    version = abi()
    rights = handled(version)
    rules = _Ruleset(rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = kernel.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0, call="landlock_create_ruleset")
    try:
        for path in read_only:
            _allow(ruleset, path, _READ_ONLY & rights)
        for path in read_write:
            _allow(ruleset, path, rights & ~(_MAKE_CHARACTER_DEVICE | _MAKE_BLOCK_DEVICE | _IOCTL_DEVICE))
        kernel.syscall(_RESTRICT_SELF, ruleset, 0, call="landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        allowed = rights if os.path.isdir(path) else rights & _ON_FILES
        rule = _PathBeneath(allowed, fd)
        kernel.syscall(_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0, call=f"landlock_add_rule {path}")
    finally:
        os.close(fd)
