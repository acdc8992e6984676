"""Places: how many may hold something at once, and how many may wait for it, in the order in which they came.

A caller asks and gets a future, which threads and coroutines can wait for alike. Starts nothing and knows no clock.
"""

import threading
from collections import deque
from concurrent.futures import Future

from .errors import SandboxError, SandboxFault
from .verdict import Status

__all__ = ["Places"]


class Places:
    """`most` places, and a queue for `queue` callers."""

    def __init__(self, most: int, queue: int, what: str) -> None:
        self._most, self._most_waiting, self._what = most, queue, what
        self._free = most
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        with self._lock:
            return sum(not place.done() for place in self._waiting)

    def ask(self) -> "Future[None]":
        """Return a future that is done when a place is the caller's; raise `SandboxFault` if too many wait already."""
        place: Future[None] = Future()
        with self._lock:
            if self._closed:
                raise self._no_more()
            self._waiting = deque(other for other in self._waiting if not other.done())
            if self._free:
                self._free -= 1
                place.set_result(None)
            elif len(self._waiting) < self._most_waiting:
                self._waiting.append(place)
            else:
                raise SandboxFault(
                    f"{self._what} is overloaded: {self._most} sessions are in use and {self._most_waiting} callers "
                    "wait already: allow more at once or a longer queue, or ask for less at once",
                    Status.OVERLOADED,
                )
        return place

    def give_up(self, place: "Future[None]") -> None:
        """Take back a question, also when the answer has come meanwhile."""
        if not place.cancel() and not place.cancelled() and place.exception() is None:
            self.release()

    def release(self) -> None:
        """Give a place back; whoever waits longest has it then."""
        with self._lock:
            while self._waiting:
                place = self._waiting.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._free += 1

    def close(self) -> None:
        """Refuse whoever waits, and whoever asks from now on."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for place in waiting:
            if place.set_running_or_notify_cancel():
                place.set_exception(self._no_more())

    def _no_more(self) -> SandboxError:
        return SandboxError(f"{self._what} is closed: make a new one to open more sessions")
