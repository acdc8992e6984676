"""A pool of sessions of any sandbox: some opened ahead, a bounded number in use, nothing used twice.

An episode takes a session and closes it; a closed one is ended in the background and never handed out again. Blocking
and asyncio callers may share a pool. A pool is itself a sandbox, so whatever takes one takes the other. It does not
choose a backend.

Words: a *place* is the right to hold a session; a *warm* session was opened before anybody asked for it.
"""

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from types import TracebackType
from typing import Any, Self, TypeVar

from .errors import SandboxError, SandboxFault
from .housekeeping import PoolCounts, PoolOptions
from .places import Places
from .pooled import PooledSession, lives
from .protocol import BlockingSession, Limits, Outcome, Sandbox
from .threads import ThreadedSession, in_thread
from .verdict import Status

__all__ = ["Pool", "PoolCounts", "PoolOptions"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_MOST_THREADS = 8


class Pool:
    """A sandbox whose sessions come from a pool. `name` is that of the sandbox behind it."""

    def __init__(self, sandbox: Sandbox, options: PoolOptions | None = None, limits: Limits | None = None) -> None:
        """Start opening warm sessions with these limits; for whoever asks for others one is opened then."""
        self.name = sandbox.name
        self.options = options or PoolOptions()
        self._sandbox, self._limits = sandbox, limits or Limits()
        self._places = Places(self.options.most, self.options.queue, f"the pool of {self.name}")
        self._lock = threading.RLock()
        self._warm: deque[BlockingSession] = deque()
        self._coming = 0  # warm sessions that are being opened
        self._openings: set[Future[Any]] = set()
        self._held: set[PooledSession] = set()
        self._closed = False
        self._tally: Counter[str] = Counter()
        self._statuses: Counter[Status] = Counter()
        # these threads live as long as the pool: a slot can be bound to the thread that started it
        self._openers = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="accredit-pool-open")
        self._closers = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="accredit-pool-close")
        self._warm_up()

    def open_blocking(self, limits: Limits | None = None) -> PooledSession:
        """Wait for a place and return a session; raise `SandboxFault` if there is none in time."""
        wanted = limits or self._limits
        return self._hold(lambda: self._take(wanted), wanted)

    async def open(self, limits: Limits | None = None) -> ThreadedSession:
        """Do what `open_blocking` does, without blocking; a caller who is cancelled gives everything back."""
        wanted = limits or self._limits
        place = self._ask()
        try:
            await asyncio.wait_for(asyncio.wrap_future(place), self.options.wait_s)
        except TimeoutError:
            raise self._no_place(place) from None
        except BaseException:
            self._places.give_up(place)
            raise
        opening = self._start(lambda: self._take(wanted), wanted)
        try:
            waiting = asyncio.shield(asyncio.wrap_future(opening))
            return ThreadedSession(await asyncio.wait_for(waiting, self.options.open_s))
        except TimeoutError:
            raise self._too_slow(opening) from None
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    def counts(self) -> PoolCounts:
        """Return the counters as they are now."""
        with self._lock:
            return PoolCounts(
                **self._tally,
                held=len(self._held),
                warm=len(self._warm),
                waiting=self._places.waiting,
                statuses=dict(self._statuses),
            )

    def close(self) -> None:
        """End every session, also those in use, and refuse whoever waits. Idempotent; returns when all have ended."""
        with self._lock:
            self._closed = True
        self._places.close()
        with self._lock:
            openings = list(self._openings)
        wait_for(openings, self.options.open_s)  # what comes later than that is ended by its opener
        self._openers.shutdown(wait=False)
        with self._lock:
            warm, self._warm = self._warm, deque()
            held = list(self._held)
        for session in held:
            session.close()
        for session in warm:
            session.close()
        self._closers.shutdown(wait=True)

    async def aclose(self) -> None:
        """Do what `close` does, without blocking; goes on to its end even if the caller is cancelled."""
        await asyncio.shield(asyncio.wrap_future(in_thread(self.close)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ran(self, outcome: Outcome) -> None:
        """Count a run of one of the sessions."""
        self._count(outcome.status, runs=1)

    def asked_canary(self) -> None:
        """Count a canary."""
        self._count(None, canaries=1)

    def adopt(self, make: Callable[[], BlockingSession], limits: Limits) -> PooledSession:
        """Wait for a place and hold there what `make` returns: a branch of another session."""
        return self._hold(make, limits)

    def returned(self, session: PooledSession) -> None:
        """End a session in the background; its place is free once it has ended."""
        with self._lock:
            self._held.discard(session)
        try:
            self._closers.submit(self._end, session.inner)
        except RuntimeError:  # the pool is closed
            self._end(session.inner)

    def _hold(self, make: Callable[[], BlockingSession], limits: Limits) -> PooledSession:
        place = self._ask()
        try:
            place.result(self.options.wait_s)
        except TimeoutError:
            raise self._no_place(place) from None
        except BaseException:
            self._places.give_up(place)
            raise
        opening = self._start(make, limits)
        try:
            return opening.result(self.options.open_s)
        except TimeoutError:
            raise self._too_slow(opening) from None
        except KeyboardInterrupt:
            opening.add_done_callback(_close_unwanted)
            raise

    def _ask(self) -> "Future[None]":
        try:
            return self._places.ask()
        except SandboxFault as fault:
            self._count(Status(fault.status))
            raise

    def _start(self, make: Callable[[], BlockingSession], limits: Limits) -> "Future[PooledSession]":
        """Open in a thread, in a place that is the caller's already."""

        def hold() -> PooledSession:
            try:
                inner = make()
            except BaseException:
                self._places.release()
                raise
            session = PooledSession(inner, self, limits, self.options.canary_after)
            with self._lock:
                self._held.add(session)
                late = self._closed
            if late:
                session.close()
            return session

        try:
            return self._in_opener(hold)
        except SandboxError:
            self._places.release()
            raise

    def _take(self, limits: Limits) -> BlockingSession:
        """Return a warm session that still lives, or open one."""
        while limits == self._limits:
            with self._lock:
                session = self._warm.popleft() if self._warm else None
            self._warm_up()
            if session is None:
                break
            if lives(session):
                self._count(None, taken_warm=1)
                return session
            self._count(Status.LOST)
            self._closers.submit(session.close)
        return self._open_one(limits)

    def _open_one(self, limits: Limits) -> BlockingSession:
        for attempt in range(1, self.options.attempts + 1):
            try:
                session = self._sandbox.open_blocking(limits)
            except SandboxError as error:
                fault = Status(error.status) if isinstance(error, SandboxFault) else Status.START_FAILED
                self._count(fault)
                if attempt == self.options.attempts or self._closed:
                    message = f"{self.name} failed to open a session {attempt} times: {error}"
                    raise SandboxFault(message, fault) from error
                _log.info("%s failed to open a session, trying again: %s", self.name, error)
            else:
                self._count(None, opened=1)
                return session
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _warm_up(self) -> None:
        """Open what is missing of warm sessions; after a failure the next caller starts it again."""
        with self._lock:
            missing = 0 if self._closed else self.options.warm - len(self._warm) - self._coming
            self._coming += max(0, missing)
        for _ in range(missing):
            try:
                self._in_opener(self._open_warm)
            except SandboxError:  # closed meanwhile
                return

    def _open_warm(self) -> None:
        session: BlockingSession | None = None
        try:
            session = None if self._closed else self._open_one(self._limits)
        except SandboxError as error:
            _log.warning("no warm session: %s", error)
        finally:
            with self._lock:
                self._coming -= 1
                if session is not None and not self._closed:
                    self._warm.append(session)
                    session = None
            if session is not None:
                session.close()

    def _in_opener(self, work: Callable[[], _T]) -> "Future[_T]":
        with self._lock:
            if self._closed:
                raise SandboxError(f"the pool of {self.name} is closed: make a new one to open more sessions")
            opening = self._openers.submit(work)
            self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)
        return opening

    def _end(self, session: BlockingSession) -> None:
        try:
            session.close()
        except Exception as error:
            _log.warning("%s failed to end a session: %s", self.name, error)
        finally:
            self._places.release()

    def _no_place(self, place: "Future[None]") -> SandboxFault:
        self._places.give_up(place)
        self._count(Status.OVERLOADED)
        return SandboxFault(
            f"the pool of {self.name} is overloaded: no place came free within {self.options.wait_s:g} s, with "
            f"{self.options.most} sessions in use: allow more at once, or ask for less",
            Status.OVERLOADED,
        )

    def _too_slow(self, opening: "Future[PooledSession]") -> SandboxFault:
        opening.add_done_callback(_close_unwanted)
        self._count(Status.BACKEND_TIMEOUT)
        return SandboxFault(f"{self.name} opened no session within {self.options.open_s:g} s", Status.BACKEND_TIMEOUT)

    def _count(self, status: Status | None, **more: int) -> None:
        with self._lock:
            self._tally.update(more)
            if status is not None:
                self._statuses[status] += 1


def _close_unwanted(done: "Future[PooledSession]") -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().close()
