"""Removes what dead processes left behind: at the start, at the end of this process, and from time to time.

A container ends by itself when the stream of its client does, so there is seldom anything to do: for an engine that
hung, a machine that slept, a client killed between making a container and attaching to it.
"""

import atexit
import logging
import threading
import weakref

from accredit.sandboxes.errors import SandboxError

from . import owner
from .engine import Engine

__all__ = ["Reaper", "reap"]

_EVERY_S = 60.0
_log = logging.getLogger(__name__)


class Reaper:
    """Looks after one engine for as long as a sandbox uses it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        reap(engine)
        self._stop = threading.Event()
        self._ending = weakref.finalize(self, self._stop.set)
        self._ending.atexit = False
        threading.Thread(target=_watch, args=(engine, self._stop), name="accredit-reaper", daemon=True).start()
        atexit.register(_at_exit, weakref.ref(self))

    def finish(self) -> None:
        """Remove the containers of this process as well, and stop."""
        self._stop.set()
        reap(self._engine, own=True)


def reap(engine: Engine, own: bool = False) -> list[str]:
    """Remove the containers of dead processes, with `own` those of this one too; return their ids."""
    removed: list[str] = []
    try:
        for container, labels in engine.containers().items():
            if owner.is_orphan(labels) or (own and owner.is_own(labels)):
                engine.remove(container)
                removed.append(container)
    except SandboxError as error:
        _log.warning("containers of dead processes may be left: %s", error)
    if removed and not own:
        _log.warning("removed %d containers of processes that are gone", len(removed))
    return removed


def _watch(engine: Engine, stop: threading.Event) -> None:
    while not stop.wait(_EVERY_S):
        reap(engine)


def _at_exit(reference: "weakref.ref[Reaper]") -> None:
    reaper = reference()
    if reaper is not None:
        reaper.finish()
