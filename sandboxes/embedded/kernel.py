"""Thin typed calls into the Linux kernel that the standard library lacks. No policy here.

Every function raises `OSError` with the call's name when the kernel says no.
"""

import ctypes
import errno
import os
import signal
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER = 2
SIGKILL = 9

MACHINE = os.uname().machine
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PROCS_OFFSET = 10 * ctypes.sizeof(ctypes.c_long)  # in what sysinfo(2) fills in
_CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong)


def check(result: int, call: str) -> int:
    """Return the result of a call, or raise the error it left in errno."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object, call: str) -> int:
    """Make a system call by number; integers are widened so that none is cut to 32 bits."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check(libc.syscall(ctypes.c_long(number), *wide), call)


def unshare(flags: int) -> None:
    """Move this process (for NEWPID, its next children) into new namespaces."""
    check(libc.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    """Move this process (for NEWPID, its next children) into the namespace behind `fd`."""
    check(libc.setns(fd, flags), "setns")


def pidfd_open(pid: int) -> int | None:
    """Return a descriptor that tells a process's end, `None` from a kernel that has none (gVisor's)."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return None


def signalfd(number: int) -> int:
    """Block a signal, which children inherit, and return a descriptor that is readable while it is pending."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    mask = (ctypes.c_uint64 * 16)(1 << (number - 1))
    return check(libc.signalfd(-1, mask, os.O_CLOEXEC | os.O_NONBLOCK), "signalfd")


def tasks() -> int:
    """Return how many tasks the kernel has; inside gVisor that is how many the container has."""
    facts = ctypes.create_string_buffer(256)
    check(libc.sysinfo(facts), "sysinfo")
    return ctypes.c_ushort.from_buffer(facts, _PROCS_OFFSET).value


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount a file system, bind a directory, or change the flags of a mount."""
    result = libc.mount(
        source.encode() if source else None,
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    check(result, f"mount {target}")


def detach(target: str) -> None:
    """Unmount lazily."""
    check(libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root of the mount namespace and put the old root at `old`."""
    if MACHINE not in _PIVOT_ROOT:
        raise OSError(38, f"pivot_root: its number is not known for {MACHINE}")
    syscall(_PIVOT_ROOT[MACHINE], new.encode(), old.encode(), call="pivot_root")


def prctl(option: int, first: int = 0, second: object = 0) -> None:
    """Set one attribute of this process."""
    if libc.prctl(option, first, second, 0, 0) < 0:
        check(-1, f"prctl {option}")


def be_fresh() -> None:
    """Undo what this process has inherited beside its descriptors: blocked and ignored signals, and the file mask.

    A trainer may ignore the ends of its children, or hide its files from other users; its slots must do neither.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)


def die_with_parent(parent: int) -> None:
    """Ask for SIGKILL when the thread that forked this process ends. A change of credentials undoes it.

    `parent` is its process id as seen from here (0 from a new process namespace); one that is gone already is an error.
    """
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:
        raise ProcessLookupError(3, f"parent process {parent} is gone")


def drop_capabilities() -> None:
    """Give up every capability, in whichever user namespace they were held."""
    check(libc.capset(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0), bytes(24)), "capset")
