"""The embedded backend behind the sandbox protocol: blocking slots, wrapped for asyncio by threads."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from accredit.sandboxes.protocol import Limits, Outcome
from accredit.sandboxes.threads import ThreadedSession, adopt, in_thread

from .client import SlotClient


class EmbeddedSandbox:
    """Opens embedded sessions. `without` leaves named layers out, to see how a weaker machine behaves."""

    name = "embedded"

    def __init__(self, without: Collection[str] = ()) -> None:
        self.without = frozenset(without)

    async def open(self, limits: Limits | None = None) -> "EmbeddedSession":
        """Start a slot for one episode; raise `SandboxError` with the reason if this machine cannot."""
        return EmbeddedSession(await adopt(in_thread(lambda: self.open_blocking(limits))))

    def open_blocking(self, limits: Limits | None = None) -> SlotClient:
        """Start a slot from ordinary, blocking code."""
        return SlotClient(limits or Limits(), self.without)


class EmbeddedSession(ThreadedSession):
    """One episode's slot. Each run is a fresh process in the session's folder, whose files stay.

    A caller who is cancelled stops its own run and no other, also one that still waits for its turn.
    """

    def __init__(self, client: SlotClient) -> None:
        super().__init__(client)
        self.client = client

    async def run(self, program: str | Sequence[str], limits: Limits | None = None, *, stdin: bytes = b"") -> Outcome:
        """Run Python source or a command; a caller who is cancelled has it stopped before the cancellation goes on."""
        return await self._by_id(lambda run_id: self.client.run(program, limits, run_id, stdin=stdin))

    async def run_cell(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run a cell in the live interpreter; a caller who is cancelled has it stopped and undone."""
        return await self._by_id(lambda run_id: self.client.run_cell(code, limits, run_id))

    async def branch(self) -> "EmbeddedSession":
        """Return another session in the same state."""
        return EmbeddedSession(await adopt(in_thread(self.client.branch)))

    async def _by_id(self, work: Callable[[int], Outcome]) -> Outcome:
        run_id = self.client.new_run_id()
        running = asyncio.wrap_future(in_thread(lambda: work(run_id)))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.client.cancel(run_id)
            running.add_done_callback(_ignore)
            raise


def _ignore(done: "asyncio.Future[Outcome]") -> None:
    if not done.cancelled():
        done.exception()
