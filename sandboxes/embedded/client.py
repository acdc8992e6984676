"""The trainer's end of a slot: starts it, sends it programs, turns its evidence into outcomes.

Blocking at heart and callable from any thread; `EmbeddedSession` wraps it for asyncio. The client trusts the slot's
evidence, but checks and clamps everything the program's own process has reported.
"""

import json
import os
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from accredit.sandboxes.errors import SandboxError, SandboxFault
from accredit.sandboxes.protocol import Entry, ErrorSpan, IsolationReport, Layer, Limits, Outcome, Usage
from accredit.sandboxes.verdict import Evidence, Reported, Status, classify

from . import spans, wire
from .launch import DirectLauncher, Launcher
from .link import Link
from .wire import SETUP_S

_START_S = 30.0
_GRACE_S = 15.0  # killing, reaping and reporting, on a busy machine
_FILES_S = 60.0
_MOST_STDIN = 16 << 20


class SlotClient:
    """One session over a slot. Requests are serialised by a lock; `cancel` and `close` may come from other threads.

    A branch of a live interpreter shares the slot; every other session has its own.
    """

    def __init__(
        self,
        limits: Limits,
        without: Collection[str] = (),
        launcher: Launcher | None = None,
        *,
        beside: "SlotClient | None" = None,
        session: int = 0,
    ) -> None:
        self.limits = limits
        self.without = without
        self._launcher = launcher = launcher or DirectLauncher()
        self._session = session
        self._running: int | None = None
        self._closed = False
        self.backend = launcher.name
        if beside is not None:
            self._link, self.report = beside._link, beside.report
            self.sandbox_id = f"{beside.sandbox_id}.{session}"
            self._link.join(session)
            return
        self.sandbox_id = f"slot-{uuid.uuid4().hex[:12]}"
        self._link = Link(launcher.launch({"limits": asdict(limits), "without": sorted(without)}))
        try:
            self.report = self._await_report()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the slot's outermost process on this machine."""
        return self._link.slot.pid

    def new_run_id(self) -> int:
        """Return an id for a run that is to be cancelled by it."""
        return self._link.new_id()

    def run(
        self,
        program: str | Sequence[str],
        limits: Limits | None = None,
        run_id: int | None = None,
        *,
        stdin: bytes = b"",
    ) -> Outcome:
        """Run Python source or a command and wait for its end; never raises for what the program did."""
        if len(stdin) > _MOST_STDIN:
            raise SandboxError(f"expected at most {_MOST_STDIN} bytes of standard input, actually {len(stdin)}")
        if isinstance(program, str):
            return self._execute({"op": "run"}, program, (_encoded(program), stdin), limits, run_id)
        return self._execute({"op": "run", "argv": _arguments(program)}, "", (b"", stdin), limits, run_id)

    def run_cell(self, code: str, limits: Limits | None = None, run_id: int | None = None) -> Outcome:
        """Run a cell in the session's live interpreter; its limits may be lower than the session's, never higher."""
        asked = limits or self.limits
        for name in ("cpu_s", "memory_mb", "pids"):
            if getattr(asked, name) > getattr(self.limits, name):
                raise SandboxError(
                    f"expected {name} of a cell within the session's {getattr(self.limits, name)}, actually "
                    f"{getattr(asked, name)}: open the session with more"
                )
        header = {"op": "cell", "session": self._session, "most": asdict(self.limits)}
        return self._execute(header, code, (_encoded(code),), limits, run_id)

    def read(self, path: str, most_bytes: int = 1 << 20) -> bytes:
        """Return a file of the session's folder; `SandboxError` if it is no file, or longer than `most_bytes`."""
        return self._ask({"op": "read", "path": path, "most_bytes": most_bytes}).blobs[0]

    def write(self, path: str, data: bytes) -> None:
        """Write a file of the session's folder, whole or not at all, and the folders above it."""
        self._ask({"op": "write", "path": path}, data)

    def list(self, path: str = ".") -> tuple[Entry, ...]:
        """Return what lies below a folder of the session's folder, sorted by path, at most 4,096 entries."""
        return tuple(Entry(*entry) for entry in self._ask({"op": "list", "path": path}).header["entries"])

    def branch(self) -> "SlotClient":
        """Return another session in the same state; `SandboxError` if that cannot be.

        Its folder is a copy, unless there is a live interpreter: then both share the slot and thus the folder.
        """
        frame = self._ask({"op": "branch", "session": self._session})
        if "session" in frame.header:
            return SlotClient(self.limits, self.without, self._launcher, beside=self, session=frame.header["session"])
        other = SlotClient(self.limits, self.without, self._launcher)
        try:
            other._ask({"op": "unpack", "facts": frame.header["facts"]}, frame.blobs[0])
        except BaseException:
            other.close()
            raise
        return other

    def cancel(self, run_id: int) -> None:
        """Stop a run, in progress or still waiting for its turn; its outcome is `cancelled`."""
        self._link.cancel(run_id)

    def interrupt(self) -> None:
        """Stop what this session runs now, if it runs anything; its outcome is `cancelled`."""
        running = self._running
        if running is not None:
            self.cancel(running)

    def close(self) -> None:
        """End the session and everything in it. Idempotent; a run in progress comes back as lost."""
        self._closed = True
        self._link.release(self._session, self._running)

    def _execute(
        self, header: dict[str, Any], source: str, blobs: tuple[bytes, ...], limits: Limits | None, run_id: int | None
    ) -> Outcome:
        limits = limits or self.limits
        run_id = run_id or self.new_run_id()
        link, asked_at = self._link, time.time()
        with link.lock:
            self._check_open()
            self._running = link.running = run_id
            try:
                if run_id in link.cancelled:
                    return self._without_run(Evidence(cancelled=True))
                wait_s = SETUP_S + limits.wall_s + _GRACE_S
                frame = link.exchange(run_id, {**header, "limits": asdict(limits)}, blobs, wait_s)
            except TimeoutError:
                link.slot.kill()
                return self._fault(Status.BACKEND_TIMEOUT, f"the slot gave no answer {_GRACE_S:g} s past the deadline")
            except (OSError, EOFError):
                return self._without_run(link.slot.death(asked_at))
            except ValueError as error:
                link.slot.kill()
                return self._fault(Status.PROTOCOL, str(error))
            finally:
                self._running = link.running = None
                link.cancelled.discard(run_id)
        if "refused" in frame.header:
            raise SandboxError(f"{self.sandbox_id}: {frame.header['refused']}")
        return self._outcome(frame, source)

    def _ask(self, header: dict[str, Any], *blobs: bytes) -> wire.Frame:
        link = self._link
        with link.lock:
            self._check_open()
            try:
                frame = link.exchange(link.new_id(), header, blobs, _FILES_S)
            except (TimeoutError, ValueError) as error:
                link.slot.kill()
                status = Status.BACKEND_TIMEOUT if isinstance(error, TimeoutError) else Status.PROTOCOL
                said = f"{self.sandbox_id}: expected an answer to {header['op']!r}: {error}"
                raise SandboxFault(said, status) from error
            except (OSError, EOFError) as error:
                said = f"{self.sandbox_id}: the slot is gone: {link.slot.last_words()}"
                raise SandboxFault(said, Status.LOST) from error
        if "refused" in frame.header:
            raise SandboxError(f"{self.sandbox_id}: {frame.header['refused']}")
        if "evidence" in frame.header:
            evidence = Evidence.from_json(frame.header["evidence"])
            raise SandboxFault(f"{self.sandbox_id}: {evidence.detail}", evidence.fault or Status.PROTOCOL)
        return frame

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxError(f"{self.sandbox_id} is closed: open a new session to run more programs")

    def _await_report(self) -> IsolationReport:
        slot = self._link.slot
        try:
            frame = wire.receive(slot.socket, _START_S)
        except TimeoutError:
            raise SandboxError(f"the {self.backend} slot did not start within {_START_S:g} s") from None
        if frame is None or "layers" not in frame.header:
            reason = frame.header.get("refused") if frame is not None else slot.last_words()
            raise SandboxError(f"the {self.backend} slot could not start: {reason}")
        layers = tuple(Layer(**layer) for layer in frame.header["layers"])
        return IsolationReport(self.backend, slot.layers(layers))

    def _outcome(self, frame: wire.Frame, source: str) -> Outcome:
        stdout, stderr, raw_report = frame.blobs if len(frame.blobs) == 3 else (b"", b"", b"")
        report = _parse_report(raw_report)
        fields: dict[str, Any] = {**frame.header["evidence"], "reported": report.get("ended")}
        evidence = Evidence.from_json(fields)
        verdict = classify(evidence)
        span: ErrorSpan | None = None
        if verdict.status in (Status.EXCEPTION, Status.SYNTAX_ERROR):
            span = spans.to_span(report, source)
        ended = evidence.wait_status
        sizes = frame.header.get("sizes", [0, 0])
        return Outcome(
            status=verdict.status,
            blame=verdict.blame,
            evidence=evidence,
            sandbox_id=self.sandbox_id,
            isolation_id=self.report.isolation_id,
            exit_code=os.WEXITSTATUS(ended) if ended is not None and os.WIFEXITED(ended) else None,
            signal=os.WTERMSIG(ended) if ended is not None and os.WIFSIGNALED(ended) else None,
            stdout=stdout,
            stderr=stderr,
            stdout_bytes=sizes[0],
            stderr_bytes=sizes[1],
            truncated=sum(sizes) > len(stdout) + len(stderr),
            error_spans=() if span is None else (span,),
            usage=Usage(**frame.header.get("usage", {})),
        )

    def _fault(self, status: Status, detail: str) -> Outcome:
        return self._without_run(Evidence(fault=status, detail=detail))

    def _without_run(self, evidence: Evidence) -> Outcome:
        verdict = classify(evidence)
        return Outcome(verdict.status, verdict.blame, evidence, self.sandbox_id, self.report.isolation_id)


def _encoded(source: str) -> bytes:
    return source.encode("utf-8", "surrogatepass")


def _arguments(command: Sequence[str]) -> list[str]:
    if not command or not command[0]:
        raise SandboxError(f"expected a command and its arguments, actually {command!r}")
    return list(command)


def _parse_report(raw: bytes) -> dict[str, Any]:
    """Return the program's report as far as it makes sense; it may be forged."""
    try:
        report = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(report, dict) or report.get("ended") not in set(Reported):
        return {}
    return report
