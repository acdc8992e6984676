"""Namespaces and a minimal read-only root: what the slot and its runs can see of the machine.

Two ways in: as root, or through a user namespace (which works for ordinary users where the machine allows it). The
slot gets its own mounts, processes, network (none), IPC, host name and `/work`, the session's folder; each run gets
another process namespace, a fresh `/tmp` and its own `/proc`.
"""

import os
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum

from . import init, kernel
from .kernel import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_PRIVATE, MS_RDONLY, MS_REC, MS_REMOUNT

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
_DEVICES = ("null", "zero", "random", "urandom")
_DEVICE_LINKS = {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}  # into /proc/self
_HOST = "/.host"
_INODES = 4096

WORK = "/work"
"""The session's folder, where there are namespaces."""


class Way(StrEnum):
    """How a slot gets its namespaces, strongest first."""

    ROOT = "root"
    USER = "user namespace"
    NONE = "none"


def enter(way: Way) -> None:
    """Move this process into new namespaces; its next child is the first process of the new process namespace."""
    if way is Way.NONE:
        return
    flags = kernel.NEWNS | kernel.NEWIPC | kernel.NEWUTS | kernel.NEWNET | kernel.NEWPID
    if way is Way.ROOT:
        kernel.unshare(flags)
    else:
        uid, gid = os.getuid(), os.getgid()
        kernel.unshare(flags | kernel.NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    socket.sethostname("sandbox")


def interpreter_paths() -> list[str]:
    """Return the directories a program needs to find its interpreter and standard library."""
    paths = dict.fromkeys((sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.path.realpath(sys.executable))))
    return [path for path in paths if path != "/" and not _inside(path, "/usr")]


def make_root(disk_mb: int) -> None:
    """Pivot into a read-only root: the system's programs and libraries, this interpreter, and an empty `/work`."""
    wanted = {path: os.path.realpath(path) for path in (*_SYSTEM, *interpreter_paths()) if os.path.exists(path)}
    links = {path: os.readlink(path) for path in _SYSTEM if os.path.islink(path)}
    kernel.mount(None, "/", None, MS_REC | MS_PRIVATE)
    kernel.mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    os.mkdir("/tmp" + _HOST)
    kernel.pivot_root("/tmp", "/tmp" + _HOST)
    os.chdir("/")
    for path, source in wanted.items():
        if path in links:
            os.symlink(links[path], path)
        elif not os.path.exists(path):  # else it came with a directory above it
            _bind(_HOST + source, path)
    for path in ("/tmp", "/proc", "/dev", WORK):
        os.mkdir(path)
    init.install()
    for name in _DEVICES:
        _bind(f"{_HOST}/dev/{name}", f"/dev/{name}", read_only=False)
    for name, target in _DEVICE_LINKS.items():
        os.symlink(f"/proc/self/{target}", f"/dev/{name}")
    _mount_scratch(WORK, disk_mb)
    with suppress(OSError):  # inside containers that mask parts of /proc the kernel refuses a new one
        kernel.mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    kernel.detach(_HOST)
    os.rmdir(_HOST)
    kernel.mount(None, "/", None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV)


def enter_run(disk_mb: int) -> None:
    """Give a process of a run's process namespace its own `/tmp` and `/proc`."""
    kernel.unshare(kernel.NEWNS)
    flags = MS_NOSUID | MS_NODEV
    _mount_scratch("/tmp", disk_mb)
    for options in ("subset=pid", None):  # without the subset, /proc also shows facts about the host
        with suppress(OSError):
            kernel.mount("proc", "/proc", "proc", flags | MS_NOEXEC, options)
            return


def _mount_scratch(target: str, disk_mb: int) -> None:
    """Mount an empty folder in memory that can hold so much and no more."""
    options = f"size={disk_mb}m,mode=1777,nr_inodes={_INODES}"
    kernel.mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, options)


def _bind(source: str, target: str, read_only: bool = True) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        # In a user namespace a flag that the source has may not be taken away. statvfs and mount share these bits.
        kept = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
        kernel.mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | kept)


def _inside(path: str, directory: str) -> bool:
    return os.path.realpath(path) == directory or os.path.realpath(path).startswith(directory + "/")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def readable_paths(way: Way) -> Iterable[str]:
    """Return what a program may read: the whole of its small root, or on the host's root only what Python needs."""
    if way is not Way.NONE:
        return ("/",)
    return (*_SYSTEM, *interpreter_paths(), *(f"/dev/{name}" for name in _DEVICES))
