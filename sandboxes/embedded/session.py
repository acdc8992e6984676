"""The embedded backend behind the sandbox protocol: blocking slots, wrapped for asyncio by threads."""

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from accredit.sandboxes.protocol import Entry, IsolationReport, Limits, Outcome

from .client import SlotClient

_T = TypeVar("_T")
_MOST_THREADS = 64  # a thread waits for as long as its run lasts, so the loop's own small pool would fill up
_lock = threading.Lock()
_threads: ThreadPoolExecutor | None = None


class EmbeddedSandbox:
    """Opens embedded sessions. `without` leaves named layers out, to see how a weaker machine behaves."""

    name = "embedded"

    def __init__(self, without: Collection[str] = ()) -> None:
        self.without = frozenset(without)

    async def open(self, limits: Limits | None = None) -> "EmbeddedSession":
        """Start a slot for one episode; raise `SandboxError` with the reason if this machine cannot."""
        opening = _in_thread(lambda: self.open_blocking(limits))
        try:
            return EmbeddedSession(await asyncio.shield(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            raise

    def open_blocking(self, limits: Limits | None = None) -> SlotClient:
        """Start a slot from ordinary, blocking code."""
        return SlotClient(limits or Limits(), self.without)


class EmbeddedSession:
    """One episode's slot. Each run is a fresh process in the session's folder, whose files stay."""

    def __init__(self, client: SlotClient) -> None:
        self.client = client

    @property
    def report(self) -> IsolationReport:
        """The layers this slot really has."""
        return self.client.report

    async def run(self, program: str | Sequence[str], limits: Limits | None = None, *, stdin: bytes = b"") -> Outcome:
        """Run Python source or a command; a caller who is cancelled has it stopped before the cancellation goes on."""
        return await self._stoppable(lambda run_id: self.client.run(program, limits, run_id, stdin=stdin))

    async def run_cell(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run a cell in the live interpreter; a caller who is cancelled has it stopped and undone."""
        return await self._stoppable(lambda run_id: self.client.run_cell(code, limits, run_id))

    async def read(self, path: str, most_bytes: int = 1 << 20) -> bytes:
        """Return a file of the session's folder; `SandboxError` if it is no file, or longer than `most_bytes`."""
        return await asyncio.shield(_in_thread(lambda: self.client.read(path, most_bytes)))

    async def write(self, path: str, data: bytes) -> None:
        """Write a file of the session's folder, whole or not at all, and the folders above it."""
        await asyncio.shield(_in_thread(lambda: self.client.write(path, data)))

    async def list(self, path: str = ".") -> tuple[Entry, ...]:
        """Return what lies below a folder of the session's folder, sorted by path, at most 4,096 entries."""
        return await asyncio.shield(_in_thread(lambda: self.client.list(path)))

    async def branch(self) -> "EmbeddedSession":
        """Return another session in the same state."""
        branching = _in_thread(self.client.branch)
        try:
            return EmbeddedSession(await asyncio.shield(branching))
        except asyncio.CancelledError:
            branching.add_done_callback(_close_unwanted)
            raise

    async def close(self) -> None:
        """End the slot. Idempotent; goes on to its end even if the caller is cancelled."""
        await asyncio.shield(_in_thread(self.client.close))

    async def _stoppable(self, work: Callable[[int], Outcome]) -> Outcome:
        run_id = self.client.new_run_id()
        running = _in_thread(lambda: work(run_id))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.client.cancel(run_id)
            running.add_done_callback(_ignore)
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _in_thread(work: Callable[[], _T]) -> "asyncio.Future[_T]":
    """Hand work to a thread at once, so that cancelling whoever awaits it comes too late to prevent it."""
    global _threads
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="accredit-sandbox")
    return asyncio.get_running_loop().run_in_executor(_threads, work)


def _forget_threads() -> None:
    """Start anew in a fork, which has none of its parent's threads, and perhaps a lock that nobody will open."""
    global _threads, _lock
    _threads, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_threads)


def _ignore(done: "asyncio.Future[Outcome]") -> None:
    if not done.cancelled():
        done.exception()


def _close_unwanted(done: "asyncio.Future[SlotClient]") -> None:
    if not done.cancelled() and done.exception() is None:
        threading.Thread(target=done.result().close, daemon=True).start()
