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
    for left in abandoned_places(os.path.dirname(path), _YOUNG_S):
        remove_tree(left)


def abandoned_places(above: str | None = None, older_s: float = 0.0) -> list[str]:
    """Return this user's places that nobody holds, by default among the temporary folders."""
    above = above or os.environ.get("TMPDIR", "/tmp")
    paths = [f"{above}/{name}" for name in os.listdir(above) if name.startswith(_PREFIX)]
    return [path for path in paths if _is_abandoned(path, older_s)]


def _is_abandoned(path: str, older_s: float) -> bool:
    with suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            facts = os.fstat(fd)
            if facts.st_uid == os.geteuid() and time.time() - facts.st_ctime > older_s:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        finally:
            os.close(fd)
    return False
