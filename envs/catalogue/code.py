"""What environments that run the policy's code share: an interpreter, and what an outcome means for a call.

The model's failures become a `ToolError` on the failing expression of its code, everything that is not its doing an
`InfrastructureError`, which leaves the episode unscored. What is printed to standard error costs nothing.
"""

import re
import weakref
from typing import Any, Self

from accredit.credit import CallStatus
from accredit.envs.errors import InfrastructureError, ToolError
from accredit.envs.turns import current_call
from accredit.sandboxes import Blame, ErrorSpan, Limits, Outcome, SandboxError, Status
from accredit.sandboxes.protocol import BlockingSession, Entry
from accredit.sandboxes.select import select

__all__ = [
    "MOST_FILES",
    "SHOWN",
    "Interpreter",
    "Tree",
    "VerifierError",
    "check_outcome",
    "outcome_detail",
    "printed",
    "tool_error",
    "tree_of",
]

Tree = dict[str, str]
"""What a folder holds: the text of each file, and "<folder>", "<link>" and the like for what is no readable text."""

MOST_FILES = 400
MOST_BYTES = 100_000
"""Of more files, and of longer ones, only the names and sizes are read."""

SHOWN = 2000
"""Characters of a program's output that are shown and kept."""

_CALL_STATUS = {
    Status.TIMEOUT_CPU: CallStatus.TIMEOUT,
    Status.TIMEOUT_WALL: CallStatus.TIMEOUT,
    Status.OUT_OF_MEMORY: CallStatus.OUT_OF_MEMORY,
    Status.OUTPUT_LIMIT: CallStatus.OUTPUT_LIMIT,
    Status.EXIT: CallStatus.NONZERO_EXIT,
    Status.SIGNAL: CallStatus.NONZERO_EXIT,
    Status.NO_RESULT: CallStatus.NONZERO_EXIT,
    Status.DENIED: CallStatus.REFUSED,
}
_SAID = {
    Status.TIMEOUT_CPU: "stopped: too much computing time",
    Status.TIMEOUT_WALL: "stopped: too slow",
    Status.OUT_OF_MEMORY: "stopped: out of memory",
    Status.OUTPUT_LIMIT: "stopped: too much output",
    Status.LIMIT_HIT: "stopped: too many processes or too much disk",
    Status.NO_RESULT: "the program ended before its last line",
    Status.DENIED: "refused: not allowed here",
}
_NEWLINE = "\n"
_FILE_AND_LINE = re.compile(r" \([^()]*, line \d+\)\Z")
_AS_WRITTEN = (Status.OK, Status.EXIT)
"""Ends that are nobody's fault because nothing failed."""


class VerifierError(InfrastructureError):
    """The checker of an answer failed by itself: its author's fault, charged to nobody, and no score."""


class Interpreter:
    """A sandbox session that is opened when it is first used, and closed at the latest when nobody holds it.

    A copy is a branch: it sees the files and names of the original as they are now, and goes its own way.
    """

    def __init__(self, limits: Limits, setup: str = "") -> None:
        self._limits = limits
        self._setup = setup
        self._session: BlockingSession | None = None

    def run(self, code: str) -> Outcome:
        """Run a program in a fresh process."""
        return _noted(self._opened().run(code))

    def run_cell(self, code: str) -> Outcome:
        """Run a cell in the live interpreter; the setup cell has run before it."""
        return _noted(self._opened().run_cell(code))

    def files(self) -> Tree:
        """Return what runs have left in the session's folder, where the next one finds it."""
        return {} if self._session is None else tree_of(self._session)

    def close(self) -> None:
        """End the session, if one was opened."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _opened(self) -> BlockingSession:
        if self._session is not None:
            return self._session
        session = self._keep(select().open_blocking(self._limits))
        if self._setup:
            outcome = session.run_cell(self._setup)
            if not outcome.ok:
                raise InfrastructureError(f"the setup cell ended as {outcome.status}: {outcome.stderr[-300:]!r}")
        return session

    def _keep(self, session: BlockingSession) -> BlockingSession:
        self._session = session
        weakref.finalize(self, session.close)
        return session

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = type(self)(self._limits, self._setup)
        if self._session is not None:
            copy._keep(self._session.branch())
        return copy


def tree_of(session: BlockingSession) -> Tree:
    """Return what the session's folder holds, read from outside, following no link.

    Raises:
        SandboxError: the session failed.

    """
    entries = session.list()
    if len(entries) > MOST_FILES:
        return {entry.path: f"<{entry.kind}>" for entry in entries}
    return {entry.path: _content(session, entry) for entry in entries}


def _content(session: BlockingSession, entry: Entry) -> str:
    if entry.kind != "file":
        return f"<{entry.kind}>"
    if entry.size > MOST_BYTES:
        return f"<{entry.size} bytes>"
    try:
        raw = session.read(entry.path, MOST_BYTES)
    except SandboxError:
        session.list()  # raises where it is the session that failed
        return "<unreadable>"
    return raw.decode("utf-8", "backslashreplace")


def _noted(outcome: Outcome) -> Outcome:
    """Write into the call in progress how strong the sandbox was that ran its code."""
    running = current_call()
    if running is not None:
        running.kept["isolation"] = outcome.isolation_id
    return outcome


def printed(outcome: Outcome, code: str, argument: str = "code") -> str:
    """Return what a run of `code` printed.

    Args:
        outcome: how it ended.
        code: what the policy wrote; lines that were run after it are not its own and are never pointed at.
        argument: the tool's parameter that held the code.

    Raises:
        ToolError: it failed by the policy's doing; names the characters of `code` where that is known.
        InfrastructureError: it failed otherwise.

    """
    check_outcome(outcome)
    if outcome.blame is Blame.MODEL:
        raise tool_error(outcome, code, argument)
    return _decoded(outcome.stdout).rstrip("\n")


def check_outcome(outcome: Outcome) -> None:
    """Raise `InfrastructureError` for an end that is neither a success nor the policy's own failure."""
    if outcome.blame is Blame.MODEL or outcome.status in _AS_WRITTEN:
        return
    said = f"the sandbox failed ({outcome.status}): {outcome.evidence.detail}"
    raise VerifierError(said) if outcome.blame is Blame.AUTHOR else InfrastructureError(said)


def tool_error(outcome: Outcome, code: str, argument: str = "code") -> ToolError:
    """Return the error for a failure of the policy's code, with the characters to charge if they are known."""
    span = outcome.error_spans[-1] if outcome.error_spans else None
    place = None if span is None else _inside(span, code, outcome.status)
    output = _decoded(outcome.stdout).rstrip("\n")
    return ToolError(
        "\n".join(part for part in (output, _said(outcome, span, place, code)) if part),
        argument=argument if place else None,
        status=_CALL_STATUS.get(outcome.status, CallStatus.TOOL_ERROR),
        source_range=place,
        detail=outcome_detail(outcome),
    )


def outcome_detail(outcome: Outcome) -> dict[str, Any]:
    """Return what a call keeps of its run, as JSON values."""
    return {
        "sandbox_status": str(outcome.status),
        "blame": str(outcome.blame),
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "stdout": _decoded(outcome.stdout)[:SHOWN],
        "stderr": _decoded(outcome.stderr)[:SHOWN],
        "wall_s": outcome.usage.wall_s,
        "cpu_s": outcome.usage.cpu_s,
        "peak_memory_mb": outcome.usage.peak_memory_mb,
        "isolation": outcome.isolation_id,
    }


def _inside(span: ErrorSpan, code: str, status: Status) -> tuple[int, int] | None:
    """Clamp a span to the policy's code; None where it lies behind it, except that broken syntax ends in the code."""
    if span.start < len(code):
        return span.start, min(span.end, len(code))
    last = len(code.rstrip())
    return (last - 1, last) if status is Status.SYNTAX_ERROR and last else None


def _said(outcome: Outcome, span: ErrorSpan | None, place: tuple[int, int] | None, code: str) -> str:
    if span is not None:
        line = "" if place is None else f" (line {code.count(_NEWLINE, 0, place[0]) + 1})"
        return f"{span.error}: {_FILE_AND_LINE.sub('', span.message)}{line}"
    if outcome.status in (Status.EXCEPTION, Status.SYNTAX_ERROR):
        lines = _decoded(outcome.stderr).strip().splitlines()
        if lines:
            return lines[-1][:SHOWN]
    return _SAID.get(outcome.status, f"failed: {outcome.status}, exit code {outcome.exit_code}")


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")
