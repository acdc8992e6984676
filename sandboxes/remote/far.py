"""A session on the far side of a line, as blocking code sees it. What carries the questions is a `Line`.

A fault of the line ends the session: whether its last question was done is not known, so nothing may be asked after it.
Only a question that was refused before it began (`overloaded`) leaves the session as it was.
"""

import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from accredit.sandboxes.errors import SandboxError, SandboxFault
from accredit.sandboxes.faults import fault_outcome
from accredit.sandboxes.protocol import Entry, IsolationReport, Limits, Outcome
from accredit.sandboxes.verdict import Status

from .desk import Answer

__all__ = ["FarSession", "Line", "new_id"]

SETUP_S = 60.0  # building the walls, killing, reaping and reporting, on a busy machine


class Line(Protocol):
    """Carries questions to a desk; raises `SandboxFault` when no answer can be had, `timeout_s` from the first try."""

    def ask(self, session_id: str, number: int, what: str, arguments: Mapping[str, Any], timeout_s: float) -> Answer:
        """Ask a session one of `desk.ASKS`."""
        ...

    def interrupt(self, session_id: str) -> None:
        """Stop what a session runs now."""
        ...

    def close(self, session_id: str) -> None:
        """End a session; raises nothing, the lease ends what this does not reach."""
        ...


class FarSession:
    """One episode's session. Questions go one after another; `interrupt` and `close` may come from other threads."""

    def __init__(self, line: Line, session_id: str, report: IsolationReport, limits: Limits) -> None:
        self.sandbox_id, self.report, self.limits = session_id, report, limits
        self._line = line
        self._lock = threading.Lock()
        self._number = 0
        self._lost: SandboxFault | None = None
        self._closed = False

    def run(self, program: str | Sequence[str], limits: Limits | None = None, *, stdin: bytes = b"") -> Outcome:
        """Run Python source or a command to its end or its limits."""
        what = program if isinstance(program, str) else tuple(program)
        return self._run("run", limits, program=what, stdin=stdin)

    def run_cell(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run Python source in the live interpreter."""
        return self._run("run_cell", limits, code=code)

    def read(self, path: str, most_bytes: int = 1 << 20) -> bytes:
        """Return a file of the folder."""
        return self._ask("read", bytes, path=path, most_bytes=most_bytes)

    def write(self, path: str, data: bytes) -> None:
        """Write a file of the folder."""
        self._ask("write", type(None), path=path, data=data)

    def list(self, path: str = ".") -> tuple[Entry, ...]:
        """Return all that lies below a folder."""
        return self._ask("list", tuple, path=path)

    def branch(self) -> "FarSession":
        """Return another session in the same state."""
        other = new_id()
        report: IsolationReport = self._ask("branch", IsolationReport, new=other)
        return FarSession(self._line, other, report, self.limits)

    def interrupt(self) -> None:
        """Stop what runs now."""
        self._line.interrupt(self.sandbox_id)

    def close(self) -> None:
        """End the session and all its processes. Idempotent; a run in progress comes back as lost."""
        if not self._closed:
            self._closed = True
            self._line.close(self.sandbox_id)

    def _run(self, what: str, limits: Limits | None, **more: Any) -> Outcome:
        limits = limits or self.limits
        try:
            return self._ask(what, Outcome, SETUP_S + limits.wall_s, limits=limits, **more)
        except SandboxFault as fault:
            return fault_outcome(Status(fault.status), str(fault), self.sandbox_id, self.report.isolation_id)

    def _ask(self, what: str, kind: type, timeout_s: float = SETUP_S, **arguments: Any) -> Any:
        with self._lock:
            if self._closed:
                raise SandboxError(f"session {self.sandbox_id} is closed: open a new one to go on")
            if self._lost is not None:
                raise SandboxFault(f"lost before: {self._lost}", Status.LOST)
            self._number += 1
            try:
                answer = self._line.ask(self.sandbox_id, self._number, what, arguments, timeout_s)
                return value_of(answer, kind)
            except SandboxFault as fault:
                if fault.status is not Status.OVERLOADED:
                    self._lost = fault
                raise


def value_of(answer: Answer, kind: type) -> Any:
    """Return the value of an answer, or raise what it says went wrong."""
    if answer.fault is not None:
        raise SandboxFault(answer.error or str(answer.fault), answer.fault)
    if answer.error is not None:
        raise SandboxError(answer.error)
    if not isinstance(answer.value, kind):
        found = type(answer.value).__name__
        raise SandboxFault(f"expected the answer to be a {kind.__name__}, found a {found}", Status.PROTOCOL)
    return answer.value


def new_id() -> str:
    """Return an id for a session."""
    return uuid.uuid4().hex
