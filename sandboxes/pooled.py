"""A session that a pool has handed out: counted, watched, and ended in the background.

A failure counts as the model's as long as the session is known to live. After some failures in a row a canary runs: if
it does not come back as it should, the session is lost, and so is every run from there on.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from .errors import SandboxError, SandboxFault
from .faults import fault_outcome
from .protocol import BlockingSession, Entry, IsolationReport, Limits, Outcome
from .threads import interrupt
from .verdict import Blame, Status

__all__ = ["House", "PooledSession", "lives"]

CANARY = "print(6 * 7)"
CANARY_LIMITS = Limits(wall_s=20.0)


class House(Protocol):
    """What a pooled session asks of its pool."""

    def ran(self, outcome: Outcome) -> None:
        """Count a run."""
        ...

    def asked_canary(self) -> None:
        """Count a canary."""
        ...

    def adopt(self, make: Callable[[], BlockingSession], limits: Limits) -> "PooledSession":
        """Wait for a place and hold there what `make` returns."""
        ...

    def returned(self, session: "PooledSession") -> None:
        """End a session in the background."""
        ...


def lives(session: BlockingSession) -> bool:
    """Whether a session still runs a program to its end."""
    try:
        outcome = session.run(CANARY, CANARY_LIMITS)
    except SandboxError:
        return False
    return outcome.ok and outcome.stdout == b"42\n"


class PooledSession:
    """A blocking session of one episode. Closing it gives the place back once the session has ended."""

    def __init__(self, inner: BlockingSession, house: House, limits: Limits, canary_after: int) -> None:
        self.inner = inner
        self.limits = limits
        self._house, self._canary_after = house, canary_after
        self._in_a_row = 0
        self._lost: Outcome | None = None
        self._closing = threading.Lock()
        self._closed = False

    @property
    def report(self) -> IsolationReport:
        """The layers this session really has."""
        return self.inner.report

    def run(self, program: str | Sequence[str], limits: Limits | None = None, *, stdin: bytes = b"") -> Outcome:
        """Run Python source or a command to its end or its limits."""
        return self._watch(lambda: self.inner.run(program, limits or self.limits, stdin=stdin))

    def run_cell(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run Python source in the live interpreter."""
        return self._watch(lambda: self.inner.run_cell(code, limits or self.limits))

    def read(self, path: str, most_bytes: int = 1 << 20) -> bytes:
        """Return a file of the folder."""
        return self._open_inner().read(path, most_bytes)

    def write(self, path: str, data: bytes) -> None:
        """Write a file of the folder."""
        self._open_inner().write(path, data)

    def list(self, path: str = ".") -> tuple[Entry, ...]:
        """Return all that lies below a folder."""
        return self._open_inner().list(path)

    def branch(self) -> "PooledSession":
        """Return another session in the same state, in a place of its own; raise `SandboxFault` if there is none."""
        return self._house.adopt(self._open_inner().branch, self.limits)

    def interrupt(self) -> None:
        """Stop what runs now."""
        interrupt(self.inner)

    def close(self) -> None:
        """Hand the session back to be ended; a run in progress comes back as lost. Idempotent."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._house.returned(self)

    def _open_inner(self) -> BlockingSession:
        if self._closed:
            raise SandboxError("this session is closed: open a new one to go on")
        if self._lost is not None:
            raise SandboxFault(self._lost.evidence.detail, Status.LOST)
        return self.inner

    def _watch(self, work: Callable[[], Outcome]) -> Outcome:
        if self._closed:
            self._open_inner()
        outcome = self._lost or self._checked(work())
        self._house.ran(outcome)
        return outcome

    def _checked(self, outcome: Outcome) -> Outcome:
        self._in_a_row = self._in_a_row + 1 if outcome.blame is Blame.MODEL else 0
        if self._in_a_row < self._canary_after:
            return outcome
        self._house.asked_canary()
        if lives(self.inner):
            self._in_a_row = 0
            return outcome
        detail = (
            f"after {self._in_a_row} failures in a row the session did not run a canary either: the last, "
            f"{outcome.status}, is not taken for the program's"
        )
        self._lost = fault_outcome(Status.LOST, detail, outcome.sandbox_id, outcome.isolation_id)
        return self._lost
