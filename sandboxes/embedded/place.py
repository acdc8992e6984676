"""The place of a slot without namespaces among the host's temporary folders: one folder above all that are its own.

Whoever holds the lock on a place is alive. A slot that is killed removes nothing, so each slot that ends removes the
places that nobody holds any more, besides its own.
"""

import fcntl
import os
import time
from contextlib import suppress

from .folder import remove_tree

_PREFIX = "accredit-slot-"
_YOUNG_S = 60.0  # a place is made first and locked then


def make_place() -> str:
    """Make this slot's place and hold it until this process and all its forks have ended or let go."""
    path = new_folder(None, _PREFIX)
    fcntl.flock(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_EX)
    os.chmod(path, 0o711)  # programs of another user pass through it to their folders
    return path


def new_folder(above: str | None, prefix: str = "run-") -> str:
    """Make a folder that is this user's alone, by default among the temporary ones.

    `tempfile` does the same with modules that make each fork of a slot slower.
    """
    path = f"{above or os.environ.get('TMPDIR', '/tmp')}/{prefix}{os.urandom(8).hex()}"
    os.mkdir(path, 0o700)
    return path


def leave_place(path: str) -> None:
    """Remove a place, and those of this user that were left behind."""
    remove_tree(path)
    parent = os.path.dirname(path)
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            with suppress(OSError):
                _remove_if_left(f"{parent}/{name}")


def _remove_if_left(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(fd)
        if facts.st_uid == os.geteuid() and time.time() - facts.st_ctime > _YOUNG_S:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
    finally:
        os.close(fd)
