"""The far side of a line: the sessions of a pool by id, each question answered once.

The caller names a session by an id of its own making and numbers its questions. A question that comes again, because
its answer was lost, gets the answer of the first time; it is never done twice. A session whose caller has been silent
for longer than the lease is closed. Asyncio only; whatever carries the questions (HTTP, Ray) lies elsewhere.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from accredit.sandboxes.errors import SandboxError, SandboxFault
from accredit.sandboxes.pool import Pool
from accredit.sandboxes.protocol import Limits
from accredit.sandboxes.threads import ThreadedSession, in_thread, interrupt
from accredit.sandboxes.verdict import Status

__all__ = ["ASKS", "TOKEN_VARIABLE", "Answer", "Desk"]

_log = logging.getLogger(__name__)

ASKS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "run": {"program": (str, tuple), "limits": (Limits, type(None)), "stdin": (bytes,)},
    "run_cell": {"code": (str,), "limits": (Limits, type(None))},
    "read": {"path": (str,), "most_bytes": (int,)},
    "write": {"path": (str,), "data": (bytes,)},
    "list": {"path": (str,)},
    "branch": {"new": (str,)},
}
"""What can be asked of a session, with the names and types of what goes with it. All of it has to be given."""

TOKEN_VARIABLE = "ACCREDIT_SANDBOX_TOKEN"
"""Environment variable that holds the token which client and server share."""

_KEPT = 2  # answers a session keeps, in case one is asked for again
_MOST_PENDING = 8  # questions of one session; a caller who waits for each answer has one
_SWEEP = 4  # sweeps in one lease


class Answer(NamedTuple):
    """A value, or what the caller did wrong (`error`), or which `fault` kept the far side from answering."""

    value: Any = None
    error: str | None = None
    fault: Status | None = None


class _Held:
    """A session by id: still being opened, or open. `seen` is when its caller was last heard."""

    def __init__(self, opening: "asyncio.Task[ThreadedSession]") -> None:
        self.opening = opening
        self.answers: dict[int, asyncio.Task[Answer]] = {}
        self.newest = 0
        self.turn = asyncio.Lock()
        self.seen = time.monotonic()

    @property
    def pending(self) -> int:
        return sum(not task.done() for task in self.answers.values())


class Desk:
    """Holds the sessions of one pool. `lease_s` bounds the silence of a caller."""

    def __init__(self, pool: Pool, lease_s: float = 60.0) -> None:
        self.pool, self.lease_s = pool, lease_s
        self.repeated = self.expired = 0
        self._held: dict[str, _Held] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self, session_id: str, limits: Limits | None = None) -> Answer:
        """Open a session under this id, or wait for the one that is being opened under it; the value is its report."""
        if session_id in self._held:
            self.repeated += 1
        return await self._opened(session_id, lambda: self.pool.open(limits))

    async def ask(self, session_id: str, number: int, what: str, arguments: Mapping[str, Any]) -> Answer:
        """Do question `number` of a session, which counts up from 1, or return what it was answered before."""
        held = self._held.get(session_id)
        if held is None:
            return _gone(session_id)
        held.seen = time.monotonic()
        wrong = _wrong(what, arguments)
        if wrong:
            return Answer(error=wrong)
        task = held.answers.get(number)
        if task is not None:
            self.repeated += 1
        elif number <= held.newest:
            return Answer(error=f"question {number} was asked before question {held.newest}: count up")
        elif held.pending >= _MOST_PENDING:
            return Answer(error=f"{_MOST_PENDING} questions are waiting: ask one at a time", fault=Status.OVERLOADED)
        else:
            task = held.answers[number] = asyncio.create_task(self._do(held, what, arguments))
            held.newest = number
            for old in sorted(n for n, t in held.answers.items() if t.done())[:-_KEPT]:
                del held.answers[old]
        answer = await asyncio.shield(task)
        held.seen = time.monotonic()
        return answer

    async def interrupt(self, session_id: str) -> Answer:
        """Stop what a session runs now; its outcome is `cancelled`."""
        held = self._held.get(session_id)
        if held is not None and held.opening.done() and not held.opening.exception():
            session = held.opening.result()
            await asyncio.wrap_future(in_thread(lambda: interrupt(session.blocking)))
        return Answer()

    def renew(self, session_ids: tuple[str, ...]) -> Answer:
        """Hear from a caller that these sessions are still wanted."""
        for session_id in session_ids:
            if session_id in self._held:
                self._held[session_id].seen = time.monotonic()
        return Answer()

    async def close(self, session_id: str) -> Answer:
        """End a session, also one that is still being opened, or that does not exist."""
        held = self._held.pop(session_id, None)
        if held is not None:
            ending = asyncio.create_task(_end(held))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await asyncio.shield(ending)
        return Answer()

    def counts(self) -> dict[str, Any]:
        """Return the pool's counters and the desk's own."""
        counts = self.pool.counts()
        own = {name: getattr(counts, name) for name in ("opened", "taken_warm", "runs", "canaries", "held", "warm")}
        statuses = {str(status): number for status, number in counts.statuses.items()}
        mine = {"repeated": self.repeated, "expired": self.expired, "sessions": len(self._held)}
        return {**own, "waiting": counts.waiting, "faults": counts.faults, "statuses": statuses, **mine}

    async def shut(self) -> None:
        """End everything."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        await self.pool.aclose()

    async def _opened(self, session_id: str, opener: Callable[[], Coroutine[Any, Any, ThreadedSession]]) -> Answer:
        self._start_sweeping()
        held = self._held.get(session_id)
        if held is None:
            held = self._held[session_id] = _Held(asyncio.create_task(opener()))
        try:
            session = await asyncio.shield(held.opening)
        except SandboxError as error:
            if self._held.get(session_id) is held:
                del self._held[session_id]
            return _refused(error)
        held.seen = time.monotonic()
        return Answer(session.report)

    async def _do(self, held: _Held, what: str, arguments: Mapping[str, Any]) -> Answer:
        try:
            async with held.turn:
                session = await asyncio.shield(held.opening)
                if what == "branch":
                    return await self._opened(arguments["new"], session.branch)
                return Answer(await getattr(session, what)(**arguments))
        except SandboxError as error:
            return _refused(error)
        except (OSError, ValueError) as error:
            return Answer(error=f"{type(error).__name__}: {error}")

    def _start_sweeping(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self.lease_s / _SWEEP)
            late = time.monotonic() - self.lease_s
            for session_id, held in list(self._held.items()):
                if held.seen < late and not held.pending and held.opening.done():
                    self.expired += 1
                    await self.close(session_id)


async def _end(held: _Held) -> None:
    """End a session, whatever comes: one that cannot be ended must not keep the others from it."""
    try:
        session = await held.opening
        await session.close()
    except SandboxError:
        return
    except Exception:
        _log.exception("a session could not be ended")


def _wrong(what: str, arguments: Mapping[str, Any]) -> str:
    wanted = ASKS.get(what)
    if wanted is None:
        return f"expected one of {', '.join(ASKS)}, found {what!r}"
    if set(arguments) != set(wanted):
        return f"expected {', '.join(wanted)} with {what!r}, found {', '.join(arguments) or 'nothing'}"
    for name, kinds in wanted.items():
        value = arguments[name]
        strings = not isinstance(value, tuple) or all(isinstance(item, str) for item in value)
        if not isinstance(value, kinds) or not strings:
            return f"expected {name} of {what!r} to be {kinds[0].__name__}, found a {type(value).__name__}"
    return ""


def _refused(error: SandboxError) -> Answer:
    if isinstance(error, SandboxFault):
        return Answer(error=str(error), fault=Status(error.status))
    return Answer(error=str(error))


def _gone(session_id: str) -> Answer:
    return Answer(
        error=f"session {session_id} is not here: it was closed, was silent too long, or the server is a new one",
        fault=Status.LOST,
    )
