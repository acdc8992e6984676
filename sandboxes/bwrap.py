"""The bubblewrap backend: the embedded backend's slot, started inside `bwrap`.

It needs the program (`apt-get install bubblewrap`), no daemon and no root. Use it where this process may not make
namespaces itself but bubblewrap may (some distributions allow only named programs to), or as a second wall. Inside,
the slot walls itself off as it does anywhere; what it cannot find out there, the launcher finds from outside.
"""

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

from .embedded.client import SlotClient
from .embedded.confine import uid_for
from .embedded.launch import BOOTSTRAP, ENVIRONMENT, Process, interpreter, package
from .embedded.namespaces import interpreter_paths
from .embedded.session import EmbeddedSandbox
from .errors import SandboxError
from .guard import BOUND
from .protocol import Layer, Limits

__all__ = ["BubblewrapLauncher", "BubblewrapSandbox"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache")
_NAMESPACES = ("mnt", "pid", "net", "ipc", "uts")
_GUARD = BOOTSTRAP.partition("from accredit")[0] + (
    "from accredit.sandboxes.guard import stand\n"
    "stand(int(sys.argv[2]), int(sys.argv[3]), *__import__('json').loads(sys.argv[4]))\n"
)
_turns = count()


class BubblewrapSandbox(EmbeddedSandbox):
    """Opens sessions whose slots run in bubblewrap. `without` leaves layers out of what the slot adds inside."""

    name = "bubblewrap"

    def open_blocking(self, limits: Limits | None = None) -> SlotClient:
        """Start a slot from ordinary, blocking code."""
        return SlotClient(limits or Limits(), self.without, BubblewrapLauncher())


class BubblewrapLauncher:
    """Runs the slot in a bubblewrap, below a guard that ends both when the trainer is gone."""

    name = "bubblewrap"

    def launch(self, options: Mapping[str, Any]) -> "_Wrapped":
        """Start a slot; raise `SandboxError` where there is no bubblewrap or it cannot be executed."""
        if sys.platform != "linux":
            raise SandboxError(f"the bubblewrap backend expected Linux, actually {sys.platform}: use a container there")
        program = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
        if program is None:
            raise SandboxError("bubblewrap is not installed: apt-get install bubblewrap, or your system's like of it")
        ours, theirs = socket.socketpair()
        uid = uid_for(os.getpid() + next(_turns)) if os.geteuid() == 0 else 0
        folders = list(dict.fromkeys((*interpreter_paths(), package())))
        command = [
            program,
            *_walls(folders, uid != 0, options["limits"]["disk_mb"]),
            *("--", interpreter(), "-I", "-S", "-B", "-c", BOOTSTRAP),
            *(package(), str(theirs.fileno()), "0", json.dumps(options)),
        ]
        guard = [interpreter(), "-I", "-S", "-B", "-c", _GUARD, package(), str(os.getpid()), str(uid)]
        return _Wrapped([*guard, json.dumps([folders, command])], ours, theirs, ENVIRONMENT)


class _Wrapped(Process):
    """A slot in bubblewrap, seen from outside by its guard's descendants."""

    def layers(self, found: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Add the layers that are there because of bubblewrap, as the kernel shows them here."""
        inside = next(filter(_elsewhere, _descendants(self.pid)), None)
        by_bubblewrap = set[str]()
        if inside is not None:
            if all(_namespace(inside, kind) != _namespace(os.getpid(), kind) for kind in _NAMESPACES):
                by_bubblewrap.add("namespaces")
            if os.geteuid() == 0 and 0 not in _user_ids(inside):
                by_bubblewrap.add("uid_drop")
        return tuple(_seen_from_here(layer, by_bubblewrap) for layer in found)


def _seen_from_here(layer: Layer, by_bubblewrap: set[str]) -> Layer:
    if layer.name in by_bubblewrap and not layer.on:
        return replace(layer, on=True, reason="by bubblewrap")
    if layer.name == "cgroup" and not layer.on:
        return replace(layer, reason="no control group can be seen inside: memory is bounded for each process only")
    return layer


def _walls(folders: list[str], bound: bool, disk_mb: int) -> Iterator[str]:
    """Return bubblewrap's options. `bound` says that the folders were bound by number for another user."""
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox")
    for path in _SYSTEM:
        if os.path.islink(path):
            yield from ("--symlink", os.readlink(path), path)
        else:
            yield from ("--ro-bind-try", path, path)
    yield from ("--proc", "/proc", "--dev", "/dev", "--size", str(disk_mb << 20), "--tmpfs", "/tmp")
    for number, folder in enumerate(folders):
        yield from ("--ro-bind", f"{BOUND}/{number}" if bound else folder, folder)
    for name, value in ENVIRONMENT.items():
        yield from ("--setenv", name, value)
    yield from ("--chdir", "/", "--remount-ro", "/")


def _descendants(pid: int) -> Iterator[int]:
    children = list[int]()
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(word) for word in file.read().split()]
    for child in children:
        yield child
        yield from _descendants(child)


def _elsewhere(pid: int) -> bool:
    other = _namespace(pid, "pid")
    return other is not None and other != _namespace(os.getpid(), "pid")


def _namespace(pid: int, kind: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return None


def _user_ids(pid: int) -> set[int]:
    with suppress(OSError), open(f"/proc/{pid}/status", errors="replace") as file:
        for line in file:
            if line.startswith("Uid:"):
                return {int(word) for word in line.split()[1:]}
    return {0}
