"""Sessions for asyncio over blocking ones: every call waits in a thread.

A caller who is cancelled has what runs stopped before the cancellation goes on.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from types import TracebackType
from typing import Self, TypeVar

from .protocol import BlockingSession, Entry, IsolationReport, Limits, Outcome

__all__ = ["ThreadedSession", "adopt", "in_thread", "interrupt"]

_T = TypeVar("_T")
_S = TypeVar("_S", bound=BlockingSession)
_MOST_THREADS = 256  # a thread waits for as long as its run lasts
_AGAIN_S = 0.05  # what was about to start when it was interrupted is interrupted again
_lock = threading.Lock()
_threads: ThreadPoolExecutor | None = None


class ThreadedSession:
    """The asyncio face of a blocking session, which stays reachable as `blocking`."""

    def __init__(self, blocking: BlockingSession) -> None:
        self.blocking = blocking

    @property
    def report(self) -> IsolationReport:
        """The layers this session really has."""
        return self.blocking.report

    async def run(self, program: str | Sequence[str], limits: Limits | None = None, *, stdin: bytes = b"") -> Outcome:
        """Run Python source or a command to its end or its limits."""
        return await self._stoppable(lambda: self.blocking.run(program, limits, stdin=stdin))

    async def run_cell(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run Python source in the live interpreter."""
        return await self._stoppable(lambda: self.blocking.run_cell(code, limits))

    async def read(self, path: str, most_bytes: int = 1 << 20) -> bytes:
        """Return a file of the folder."""
        return await asyncio.wrap_future(in_thread(lambda: self.blocking.read(path, most_bytes)))

    async def write(self, path: str, data: bytes) -> None:
        """Write a file of the folder."""
        await asyncio.wrap_future(in_thread(lambda: self.blocking.write(path, data)))

    async def list(self, path: str = ".") -> tuple[Entry, ...]:
        """Return all that lies below a folder."""
        return await asyncio.wrap_future(in_thread(lambda: self.blocking.list(path)))

    async def branch(self) -> "ThreadedSession":
        """Return another session in the same state."""
        return ThreadedSession(await adopt(in_thread(self.blocking.branch)))

    async def close(self) -> None:
        """End the session. Idempotent; goes on to its end even if the caller is cancelled."""
        await asyncio.shield(asyncio.wrap_future(in_thread(self.blocking.close)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _stoppable(self, work: Callable[[], Outcome]) -> Outcome:
        running = in_thread(work)
        try:
            return await asyncio.shield(asyncio.wrap_future(running))
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.wrap_future(in_thread(lambda: _stop(self.blocking, running))))
            raise


async def adopt(opening: "Future[_S]") -> _S:
    """Wait for a session; one whose caller is cancelled meanwhile is closed when it comes."""
    try:
        return await asyncio.shield(asyncio.wrap_future(opening))
    except asyncio.CancelledError:
        opening.add_done_callback(_close_unwanted)
        raise


def interrupt(session: BlockingSession) -> None:
    """Stop what a session runs now; one that cannot be interrupted is closed instead."""
    stop: Callable[[], None] = getattr(session, "interrupt", session.close)
    stop()


def in_thread(work: Callable[[], _T]) -> "Future[_T]":
    """Hand work to a thread at once, so that cancelling whoever awaits it comes too late to prevent it."""
    global _threads
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="accredit-session")
    return _threads.submit(work)


def _forget_threads() -> None:
    """Start anew in a fork, which has none of its parent's threads, and perhaps a lock that nobody will open."""
    global _threads, _lock
    _threads, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_threads)


def _stop(session: BlockingSession, running: "Future[Outcome]") -> None:
    while not running.done():
        interrupt(session)
        wait_for([running], _AGAIN_S)


def _close_unwanted(done: "Future[_S]") -> None:
    if not done.cancelled() and done.exception() is None:
        in_thread(done.result().close)
