"""The stream to one slot, which sessions share that are branches of each other.

One request at a time; `cancel` and `release` may come from other threads. The slot ends with the last of its sessions.
"""

import itertools
import socket
import threading
from collections.abc import Mapping
from typing import Any

from . import wire
from .launch import Launched
from .wire import SETUP_S

_CLOSE_S = 5.0


class Link:
    """A slot's stream, what runs on it now, and which sessions still want it."""

    def __init__(self, slot: Launched) -> None:
        self.slot = slot
        self.lock = threading.Lock()
        self.cancelled: set[int] = set()
        self.running: int | None = None
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._sessions = {0}
        self._counting = threading.Lock()

    def new_id(self) -> int:
        """Return the id of a request to be."""
        return next(self._ids)

    def join(self, session: int) -> None:
        """Note a session that wants this slot, too."""
        with self._counting:
            self._sessions.add(session)

    def exchange(self, request: int, header: Mapping[str, Any], blobs: tuple[bytes, ...], wait_s: float) -> wire.Frame:
        """Send a request and return its answer; the caller holds the lock."""
        self.send({"run": request, **header}, *blobs)
        if request in self.cancelled:  # it was cancelled before the slot knew of it
            self.send({"cancel": request})
        frame = wire.receive(self.slot.socket, wait_s)
        if frame is None:
            raise EOFError
        if frame.header.get("run") != request:
            raise ValueError(f"expected the answer to run {request}, actually to run {frame.header.get('run')!r}")
        return frame

    def cancel(self, request: int) -> None:
        """Stop a run, in progress or still waiting for its turn."""
        self.cancelled.add(request)
        if self.running == request:
            try:
                self.send({"cancel": request})
            except OSError:
                self.slot.kill()

    def release(self, session: int, running: int | None) -> None:
        """Let a session go, and stop what it runs; with the last one the slot ends and all that is in it."""
        with self._counting:
            self._sessions.discard(session)
            last = not self._sessions
        if last:
            self.end()
            return
        if running is not None:
            self.cancel(running)
        with self.lock:
            try:
                self.exchange(self.new_id(), {"op": "drop", "session": session}, (), SETUP_S)
            except (OSError, EOFError, ValueError):
                self.slot.kill()

    def end(self) -> None:
        """End the slot; a run in progress comes back as lost."""
        try:
            self.slot.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if not self.slot.wait(_CLOSE_S):
            self.slot.kill()
            self.slot.wait(None)
        with self.lock:
            self.slot.close()

    def send(self, header: Mapping[str, Any], *blobs: bytes) -> None:
        """Send one frame, whole and unmixed with others."""
        with self._sending:
            self.slot.socket.settimeout(SETUP_S)
            wire.send(self.slot.socket, header, *blobs)
