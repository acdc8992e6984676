"""A control group per slot, version 1 or 2, wherever this process may make one.

It bounds the memory and the number of processes of a whole program, and its counters are the only evidence for "out
of memory". All files are opened before the slot leaves the host's file tree and used through their descriptors after.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass, field

_PREFIX = "accredit-"
_MB = 1 << 20

_V1 = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"),
    "pids": ("pids.max", "pids.events"),
}
_JOIN = {"v1": "tasks", "v2": "cgroup.procs"}
"""Where a process writes itself in. Version 1 can move one thread, which a process that was just forked is; moving a
process stops all forks of the machine for a moment, and waits several milliseconds for that. Version 2 moves only
processes."""

_V2 = ("memory.max", "memory.swap.max", "memory.events", "pids.max", "pids.events")
_PEAK = ("memory.max_usage_in_bytes", "memory.peak")
_USAGE = ("memory.usage_in_bytes", "memory.current")
_OPTIONAL = {*_USAGE, "memory.memsw.limit_in_bytes", "memory.swap.max", "pids.events", *_PEAK}


@dataclass(slots=True)
class Cgroup:
    """Open files of one slot's control group, by name; `joins` are where a process writes itself in."""

    directories: list[str] = field(default_factory=list)
    joins: list[int] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    limits: tuple[int, int] | None = None
    fixed: bool = False

    def set_limits(self, memory_mb: int, pids: int) -> None:
        """Bound the whole group; swap does not extend the memory. A group that somebody else made stays as it is."""
        if self.fixed or self.limits == (memory_mb, pids):
            return
        size = str(memory_mb * _MB)
        if "memory.max" in self.files:
            self._write("memory.max", size)
            self._write("memory.swap.max", "0")
        else:  # version 1 wants limit <= limit with swap at every moment, so the order depends on the direction
            order = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
            if self.limits is not None and memory_mb > self.limits[0]:
                order.reverse()
            for name in order:
                self._write(name, size)
        self._write("pids.max", str(pids))
        self.limits = (memory_mb, pids)

    def bounds(self, memory_mb: int) -> bool:
        """Whether it is this group that holds a run to so much memory."""
        return not self.fixed or self.limits is None or memory_mb >= self.limits[0]

    def join(self) -> None:
        """Put the calling process, which has one thread, into the group."""
        for fd in self.joins:
            os.write(fd, b"0")

    def oom_kills(self) -> int:
        """Return how many processes of the group the kernel has killed for memory so far."""
        return self._counter(
            "memory.oom_control" if "memory.oom_control" in self.files else "memory.events", "oom_kill"
        )

    def pids_refused(self) -> int | None:
        """Return how many forks the group was refused so far, or `None` where the kernel does not count them."""
        return self._counter("pids.events", "max") if "pids.events" in self.files else None

    def reset_peak(self) -> None:
        """Start the peak of memory anew; kernels that cannot keep the highest of all runs."""
        for name in _PEAK:
            with suppress(OSError):
                self._write(name, "0")

    def peak_mb(self) -> float | None:
        """Return the most memory the group used at once, in MiB."""
        for name in _PEAK:
            if name in self.files:
                return int(os.pread(self.files[name], 64, 0)) / _MB
        return None

    def usage_mb(self) -> float:
        """Return the memory that the group uses now, in MiB; 0 where nothing says."""
        for name in _USAGE:
            if name in self.files:
                return int(os.pread(self.files[name], 64, 0)) / _MB
        return 0.0

    def remove(self, within_s: float = 1.0) -> None:
        """Delete the group; its last process may need a moment to be gone."""
        until = time.monotonic() + within_s
        for directory in self.directories:
            while os.path.isdir(directory):
                try:
                    os.rmdir(directory)
                except OSError:
                    if time.monotonic() > until:
                        break
                    time.sleep(0.01)

    def _write(self, name: str, text: str) -> None:
        if name in self.files:
            os.pwrite(self.files[name], text.encode(), 0)

    def _counter(self, name: str, key: str) -> int:
        for line in os.pread(self.files[name], 4096, 0).decode().splitlines():
            word, _, value = line.partition(" ")
            if word == key:
                return int(value)
        return 0

    def _open(self, directory: str, names: tuple[str, ...], join: str) -> None:
        self.joins.append(os.open(f"{directory}/{join}", os.O_WRONLY | os.O_CLOEXEC))
        for name in names:
            try:
                mode = os.O_RDONLY if name.endswith(("events", "oom_control")) else os.O_RDWR
                self.files[name] = os.open(f"{directory}/{name}", mode | os.O_CLOEXEC)
            except OSError:
                if name not in _OPTIONAL:
                    raise


def create(memory_mb: int, pids: int) -> Cgroup:
    """Make a group for this process's runs; raise `OSError` with the reason where that is not possible.

    Its name is like no other's: one that a killed slot of the same process id has left may still hold a process.
    """
    mounts, own = _mounts(), _own_groups()
    name = f"{_PREFIX}{os.stat('/proc/self/ns/pid').st_ino}-{os.getpid()}-{os.urandom(4).hex()}"
    reasons: list[str] = []
    for attempt in (_create_v1, _create_v2):
        group = Cgroup()
        try:
            attempt(group, mounts, own, name)
            group.set_limits(memory_mb, pids)
            return group
        except OSError as error:
            reasons.append(f"{attempt.__name__[-2:]}: {error.strerror or error}")
            for fd in (*group.joins, *group.files.values()):
                os.close(fd)
            group.remove(0)
    raise OSError("; ".join(reasons))


def groups() -> dict[str, int]:
    """Return the folders of all slots' groups on this machine, and the process id of the slot that made each."""
    found = [(above, name, name.split("-")) for above, names, _ in os.walk("/sys/fs/cgroup") for name in names]
    return {
        f"{above}/{name}": int(words[2])
        for above, name, words in found
        if name.startswith(_PREFIX) and len(words) > 2 and words[2].isdigit()
    }


def watch(memory_mb: int, pids: int) -> Cgroup:
    """Open the counters of the group this process is in: a container's, bounded from outside for runs of this size.

    Raise `OSError` where they cannot be read, or where the group bounds no memory.
    """
    mounts, own = _mounts(), _own_groups()
    group = Cgroup(limits=(memory_mb, pids), fixed=True)
    if "memory" in mounts:
        found = {name: mounts[name] + own.get(name, "/").rstrip("/") for name in _V1 if name in mounts}
        names = {"memory.oom_control": "memory", "memory.limit_in_bytes": "memory", "pids.events": "pids"}
    elif "" in mounts:
        found = {"": mounts[""] + own.get("", "/").rstrip("/")}
        names = {"memory.events": "", "memory.max": "", "pids.events": ""}
    else:
        raise OSError("no control groups can be seen")
    for name, controller in names.items():
        directory = found.get(controller, "")
        if not os.path.isdir(directory):  # a container often sees only its own part of the tree
            directory = mounts.get(controller, "")
        try:
            group.files[name] = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            if name not in _OPTIONAL:
                raise
    bound = group.files.pop("memory.limit_in_bytes" if "memory" in mounts else "memory.max")
    text = os.pread(bound, 64, 0).decode().strip()
    os.close(bound)
    if not text.isdigit() or int(text) > 1 << 60:
        raise OSError("the group this process is in bounds no memory")
    return group


def _create_v1(group: Cgroup, mounts: dict[str, str], own: dict[str, str], name: str) -> None:
    for controller, names in _V1.items():
        if controller not in mounts:
            raise OSError(f"no {controller} controller is mounted")
        parent = mounts[controller] + own.get(controller, "/").rstrip("/")
        if not os.path.isdir(parent):  # a container often sees only its own part of the tree
            parent = mounts[controller]
        _make(group, parent, name)
        if controller == "memory":
            names = (*names, _PEAK[0], _USAGE[0])
        group._open(group.directories[-1], names, _JOIN["v1"])


def _create_v2(group: Cgroup, mounts: dict[str, str], own: dict[str, str], name: str) -> None:
    """Try the groups from our own up to the root: a group that holds processes cannot hand memory to its children."""
    if "" not in mounts:
        raise OSError("not mounted")
    root, path, last = mounts[""], own.get("", "/"), OSError("no group above this process passes memory and pids on")
    while True:
        parent = (root + path).rstrip("/")
        with suppress(OSError), open(f"{parent}/cgroup.subtree_control") as file:
            if {"memory", "pids"} <= set(file.read().split()):
                try:
                    _make(group, parent, name)
                    group._open(group.directories[-1], (*_V2, _PEAK[1], _USAGE[1]), _JOIN["v2"])
                    return
                except OSError as error:
                    last = error
        if path in ("/", ""):
            raise last
        path = os.path.dirname(path)


def _make(group: Cgroup, parent: str, name: str) -> None:
    _sweep(parent, name)
    os.mkdir(f"{parent}/{name}")
    group.directories.append(f"{parent}/{name}")


def _sweep(parent: str, own: str) -> None:
    """Remove groups that slots killed from outside have left behind, also one whose process id is ours by now."""
    prefix = own.rsplit("-", 2)[0] + "-"
    for entry in os.listdir(parent):
        pid = entry.removeprefix(prefix).partition("-")[0]
        gone = pid == str(os.getpid()) or not os.path.exists(f"/proc/{pid}")
        if entry.startswith(prefix) and entry != own and pid.isdigit() and gone:
            with suppress(OSError):
                os.rmdir(f"{parent}/{entry}")


def _mounts() -> dict[str, str]:
    """Return controller -> mount point; the key of version 2 is empty."""
    found: dict[str, str] = {}
    with open("/proc/self/mounts") as file:
        for line in file:
            _, where, kind, options, *_ = line.split(" ")
            if kind == "cgroup2":
                found[""] = where
            elif kind == "cgroup":
                found.update({name: where for name in options.split(",") if name in _V1})
    return found


def _own_groups() -> dict[str, str]:
    """Return controller -> path of the group this process is in; the key of version 2 is empty."""
    found: dict[str, str] = {}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            found.update(dict.fromkeys(controllers.split(","), path))
    return found
