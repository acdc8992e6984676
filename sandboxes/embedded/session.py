"""The embedded backend behind the sandbox protocol: blocking slots, wrapped for asyncio by threads."""

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from accredit.sandboxes.protocol import IsolationReport, Limits, Outcome

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
    """One episode's slot. Each run is a fresh process; no state passes from one to the next."""

    def __init__(self, client: SlotClient) -> None:
        self.client = client

    @property
    def report(self) -> IsolationReport:
        """The layers this slot really has."""
        return self.client.report

    async def run(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run a program; if the caller is cancelled, the run is stopped before the cancellation goes on."""
        run_id = self.client.new_run_id()
        running = _in_thread(lambda: self.client.run(code, limits, run_id))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.client.cancel(run_id)
            running.add_done_callback(_ignore)
            raise

    async def close(self) -> None:
        """End the slot. Idempotent; goes on to its end even if the caller is cancelled."""
        await asyncio.shield(_in_thread(self.client.close))

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


def _ignore(done: "asyncio.Future[Outcome]") -> None:
    if not done.cancelled():
        done.exception()


def _close_unwanted(done: "asyncio.Future[SlotClient]") -> None:
    if not done.cancelled() and done.exception() is None:
        threading.Thread(target=done.result().close, daemon=True).start()
