"""The session's folder as the supervisor reads and writes it between runs.

Whatever a program left there may be a trap: links out of the folder, pipes that block, files without end, trees without
bottom. So every path is resolved below the folder without following a link, only regular files are opened, and sizes
are counted while reading, never believed.
"""

import ctypes
import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from . import kernel

MOST_ENTRIES = 4096
"""How many names a listing holds at most, and how many a branch copies."""

_OPENAT2 = 437
_BENEATH = 0x02 | 0x04 | 0x08  # no magic links, no links, below the starting folder
_MOST_PATH = 4095
_CHUNK = 1 << 20
_NO_OPENAT2 = {errno.ENOSYS, errno.EPERM}  # an older kernel, or a container's filter
_open_below: list[Callable[[int, str, int], int]] = []


class Refused(Exception):
    """The caller asked for what cannot be; the text says what was expected and what was found."""


@dataclass(slots=True)
class Folder:
    """A session's folder. `owner` is who the programs are, or `None` where that is this user; `most_mb` its size.

    `bounded` says that the file system itself keeps it to that size; else the folder is measured before each write.
    """

    path: str
    most_mb: int
    bounded: bool
    owner: int | None = None

    def give_to(self, owner: int | None) -> None:
        """Make the folder the programs' own."""
        self.owner = owner
        user = os.getuid() if owner is None else owner
        os.chown(self.path, user, -1 if owner is None else owner)
        os.chmod(self.path, 0o700)

    def used_mb(self) -> float:
        """Return what its files take, where the file system is its own; else 0."""
        if not self.bounded:
            return 0.0
        room = os.statvfs(self.path)
        return (room.f_blocks - room.f_bfree) * room.f_frsize / (1 << 20)

    def read(self, path: str, most_bytes: int) -> bytes:
        """Return a regular file's bytes; `Refused` if it is something else, or longer than `most_bytes`."""
        with self._below(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
            return _read_regular(fd, path, most_bytes)

    def write(self, path: str, data: bytes) -> None:
        """Write a file whole or not at all, with the folders above it; a link of that name is replaced."""
        self._check_room(len(data))
        self._put(path, data, 0o644)

    def _put(self, path: str, data: bytes, mode: int) -> None:
        parts = _parts(path)
        if not parts:
            raise Refused(f"expected the path of a file, actually {path!r}")
        temporary = f".{os.urandom(8).hex()}.part"
        with self._folder_for(parts[:-1], path) as folder:
            try:
                with _explained(path):
                    self._fill(folder, temporary, data, mode)
                    os.rename(temporary, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)

    def entries(self, path: str) -> list[tuple[str, str, int]]:
        """Return (path, kind, size) of what lies below a folder, sorted; folders too deep to be named stay closed."""
        found: list[tuple[str, str, int]] = []
        with self._below(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK):
            pass  # the caller's own mistake is an error; what vanishes or is closed further down is not
        todo = deque(["/".join(_parts(path))])
        while todo and len(found) < MOST_ENTRIES:
            above = todo.popleft()
            with suppress(Refused, OSError), self._below(above, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK) as fd:
                with os.scandir(fd) as names:
                    for entry in names:
                        if len(found) == MOST_ENTRIES:
                            break
                        where = f"{above}/{entry.name}" if above else entry.name
                        facts = entry.stat(follow_symlinks=False)
                        kind = _kind(facts.st_mode)
                        found.append((where, kind, facts.st_size if kind == "file" else 0))
                        if kind == "folder":
                            todo.append(where)
        return sorted(found)

    def pack(self) -> tuple[list[dict[str, Any]], bytes]:
        """Return all files, folders and links as (facts, joined contents), for a copy of the folder."""
        entries = self.entries(".")
        if len(entries) == MOST_ENTRIES:
            raise Refused(f"expected fewer than {MOST_ENTRIES} names in a folder that is to be copied")
        facts: list[dict[str, Any]] = []
        joined = bytearray()
        for path, kind, _ in entries:
            fact: dict[str, Any] = {"path": path, "kind": kind}
            if kind == "file":
                with self._below(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) as fd:
                    content = _read_regular(fd, path, (self.most_mb << 20) - len(joined))
                    fact |= {"size": len(content), "mode": stat.S_IMODE(os.fstat(fd).st_mode) & 0o777}
                joined += content
            elif kind == "link":
                above, _, name = path.rpartition("/")
                with self._below(above, os.O_RDONLY | os.O_DIRECTORY) as fd:
                    fact["target"] = os.readlink(name, dir_fd=fd)
            facts.append(fact)
        return facts, bytes(joined)

    def unpack(self, facts: list[dict[str, Any]], joined: bytes) -> None:
        """Make what `pack` has returned; pipes and devices are left out."""
        self._check_room(len(joined))
        at = 0
        for fact in facts:
            path, kind = fact["path"], fact["kind"]
            if kind == "file":
                self._put(path, joined[at : at + fact["size"]], fact["mode"])
                at += fact["size"]
            elif kind == "folder":
                with self._folder_for(_parts(path), path):
                    pass
            elif kind == "link":
                parts = _parts(path)
                with self._folder_for(parts[:-1], path) as folder, _explained(path):
                    os.symlink(fact["target"], parts[-1], dir_fd=folder)
                    self._own(parts[-1], folder)

    @contextmanager
    def _below(self, path: str, flags: int) -> Iterator[int]:
        parts = _parts(path)
        with _explained(path):
            root = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _explained(path):
                fd = _open("/".join(parts) or ".", root, flags | os.O_CLOEXEC)
        finally:
            os.close(root)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _folder_for(self, parts: list[str], path: str) -> Iterator[int]:
        """Open a folder, making those that are missing."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with _explained(path):
            fd = os.open(self.path, flags)
        try:
            for part in parts:
                with _explained(path):
                    try:
                        os.mkdir(part, 0o755, dir_fd=fd)
                        self._own(part, fd)
                    except FileExistsError:
                        pass
                    below = os.open(part, flags, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd
        finally:
            os.close(fd)

    def _fill(self, folder: int, name: str, data: bytes, mode: int) -> None:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            if self.owner is not None:
                os.fchown(fd, self.owner, self.owner)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)

    def _own(self, name: str, folder: int) -> None:
        if self.owner is not None:
            os.chown(name, self.owner, self.owner, dir_fd=folder, follow_symlinks=False)

    def _check_room(self, more: int) -> None:
        if not self.bounded and sum(size for _, _, size in self.entries(".")) + more > self.most_mb << 20:
            raise Refused(f"expected the session's folder to hold at most {self.most_mb} MiB, {more} bytes do not fit")


def remove_tree(path: str) -> None:
    """Delete a folder that no process uses any more, however deep it is: what lies deeper is moved up first."""
    with suppress(OSError):
        root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.chmod(path, 0o700)
            counter = 0
            while names := os.listdir(root):
                before = counter
                for name in names:
                    counter += _remove_one(root, name, counter)
                if counter == before:
                    break  # nothing of it can be removed
        finally:
            os.close(root)
        os.rmdir(path)


def _remove_one(root: int, name: str, counter: int) -> int:
    """Remove an entry of the folder; its own folders become entries. Returns how many steps succeeded."""
    done = 0
    with suppress(OSError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=root)
            return 1
        os.chmod(name, 0o700, dir_fd=root)
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
        try:
            for below in os.listdir(fd):
                if stat.S_ISDIR(os.stat(below, dir_fd=fd, follow_symlinks=False).st_mode):
                    os.chmod(below, 0o700, dir_fd=fd)  # a folder that is moved must be writable itself
                    os.rename(below, f".{counter + done}.{os.urandom(6).hex()}", src_dir_fd=fd, dst_dir_fd=root)
                else:
                    os.unlink(below, dir_fd=fd)
                done += 1
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=root)
        done += 1
    return done


def _parts(path: str) -> list[str]:
    """Return the components of a relative path that stays below its start."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise Refused(f"expected a path of whole characters, actually {path[:200]!r}") from None
    if path.startswith("/") or ".." in parts or "\0" in path or (not path and parts):
        raise Refused(f"expected a path inside the session's folder, actually {path!r}")
    if size > _MOST_PATH:
        raise Refused(f"expected a path of at most {_MOST_PATH} bytes, actually {size}")
    return parts


def _open(path: str, root: int, flags: int) -> int:
    if not _open_below:
        _open_below.append(_open_at_once)
    try:
        return _open_below[0](root, path, flags)
    except OSError as error:
        if _open_below[0] is _open_by_steps or error.errno not in _NO_OPENAT2:
            raise
        _open_below[0] = _open_by_steps
        return _open_by_steps(root, path, flags)


def _open_at_once(root: int, path: str, flags: int) -> int:
    how = (ctypes.c_uint64 * 3)(flags, 0, _BENEATH)
    return kernel.syscall(_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how), call="openat2")


def _open_by_steps(root: int, path: str, flags: int) -> int:
    *above, last = path.split("/")
    fd = os.dup(root)
    try:
        for part in above:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            os.close(fd)
            fd = below
        return os.open(last, flags | os.O_NOFOLLOW, dir_fd=fd)
    finally:
        os.close(fd)


def _read_regular(fd: int, path: str, most_bytes: int) -> bytes:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise Refused(f"expected {path!r} to be a file, actually a {_kind(os.fstat(fd).st_mode)}")
    data = bytearray()
    while len(data) <= most_bytes and (part := os.read(fd, min(_CHUNK, most_bytes + 1 - len(data)))):
        data += part
    if len(data) > most_bytes:
        raise Refused(f"expected {path!r} to hold at most {most_bytes} bytes, actually more: ask for more bytes")
    return bytes(data)


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
    return kinds.get(stat.S_IFMT(mode), "other")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Say what the kernel refused in the words of the caller."""
    try:
        yield
    except OSError as error:
        why = {
            errno.ELOOP: "a link stands in its way, which is not followed",
            errno.EXDEV: "it leads out of the folder",
            errno.ENOENT: "there is none",
            errno.ENOTDIR: "a name in it is no folder",
            errno.ENXIO: "it is no file",
            errno.ENOSPC: "the session's folder is full",
        }.get(error.errno or 0, error.strerror or str(error))
        raise Refused(f"expected to reach {path[:200]!r} in the session's folder, actually {why}") from error
