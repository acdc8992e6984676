"""The trainer's end of a slot: starts it, sends it programs, turns its evidence into outcomes.

Blocking at heart and callable from any thread; `EmbeddedSession` wraps it for asyncio. The client trusts the slot's
evidence, but checks and clamps everything the program's own process has reported.
"""

import itertools
import json
import os
import socket
import threading
import uuid
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from accredit.sandboxes.errors import SandboxError
from accredit.sandboxes.protocol import ErrorSpan, IsolationReport, Layer, Limits, Outcome, Usage
from accredit.sandboxes.verdict import Evidence, Reported, Status, classify

from . import spans, wire
from .launch import DirectLauncher, Launcher
from .wire import SETUP_S

_START_S = 30.0
_GRACE_S = 15.0  # killing, reaping and reporting, on a busy machine
_CLOSE_S = 5.0


class SlotClient:
    """One slot. Runs are serialised by a lock; `cancel` and `close` may come from other threads."""

    def __init__(self, limits: Limits, without: Collection[str] = (), launcher: Launcher | None = None) -> None:
        launcher = launcher or DirectLauncher()
        self.backend = launcher.name
        self.sandbox_id = f"slot-{uuid.uuid4().hex[:12]}"
        self.limits = limits
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._run_ids = itertools.count(1)
        self._running: int | None = None
        self._cancelled: set[int] = set()
        self._closed = False
        self._slot = launcher.launch({"limits": asdict(limits), "without": sorted(without)})
        self._socket = self._slot.socket
        try:
            self.report = self._await_report()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the slot's outermost process on this machine."""
        return self._slot.pid

    def new_run_id(self) -> int:
        """Return an id for a run that is to be cancelled by it."""
        return next(self._run_ids)

    def run(self, code: str, limits: Limits | None = None, run_id: int | None = None) -> Outcome:
        """Run a program and wait for its end; never raises for what the program did."""
        limits = limits or self.limits
        run_id = run_id or self.new_run_id()
        source = code.encode("utf-8", "surrogatepass")
        with self._lock:
            if self._closed:
                raise SandboxError(f"{self.sandbox_id} is closed: open a new session to run more programs")
            self._running = run_id
            try:
                if run_id in self._cancelled:
                    return self._without_run(Evidence(cancelled=True))
                frame = self._exchange(run_id, source, limits)
            except TimeoutError:
                self._slot.kill()
                return self._fault(Status.BACKEND_TIMEOUT, f"the slot gave no answer {_GRACE_S:g} s past the deadline")
            except (OSError, EOFError):
                return self._fault(Status.LOST, f"the slot is gone: {self._slot.last_words()}")
            except ValueError as error:
                self._slot.kill()
                return self._fault(Status.PROTOCOL, str(error))
            finally:
                self._running = None
                self._cancelled.discard(run_id)
        return self._outcome(frame, code)

    def cancel(self, run_id: int) -> None:
        """Stop a run, in progress or still waiting for its turn; its outcome is `cancelled`."""
        self._cancelled.add(run_id)
        if self._running == run_id:
            try:
                self._send({"cancel": run_id})
            except OSError:
                self._slot.kill()

    def close(self) -> None:
        """End the slot and everything in it. Idempotent; a run in progress comes back as lost."""
        self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if not self._slot.wait(_CLOSE_S):
            self._slot.kill()
            self._slot.wait(None)
        with self._lock:
            self._slot.close()

    def _await_report(self) -> IsolationReport:
        try:
            frame = wire.receive(self._socket, _START_S)
        except TimeoutError:
            raise SandboxError(f"the {self.backend} slot did not start within {_START_S:g} s") from None
        if frame is None or "layers" not in frame.header:
            reason = frame.header.get("refused") if frame is not None else self._slot.last_words()
            raise SandboxError(f"the {self.backend} slot could not start: {reason}")
        layers = tuple(Layer(**layer) for layer in frame.header["layers"])
        return IsolationReport(self.backend, self._slot.layers(layers))

    def _exchange(self, run_id: int, source: bytes, limits: Limits) -> wire.Frame:
        self._send({"run": run_id, "limits": asdict(limits)}, source)
        if run_id in self._cancelled:  # it was cancelled before the slot knew of it
            self._send({"cancel": run_id})
        frame = wire.receive(self._socket, SETUP_S + limits.wall_s + _GRACE_S)
        if frame is None:
            raise EOFError
        if frame.header.get("run") != run_id:
            raise ValueError(f"expected the answer to run {run_id}, actually to run {frame.header.get('run')!r}")
        return frame

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

    def _send(self, header: dict[str, Any], *blobs: bytes) -> None:
        with self._sending:
            self._socket.settimeout(SETUP_S)
            wire.send(self._socket, header, *blobs)

    def _fault(self, status: Status, detail: str) -> Outcome:
        return self._without_run(Evidence(fault=status, detail=detail))

    def _without_run(self, evidence: Evidence) -> Outcome:
        verdict = classify(evidence)
        return Outcome(verdict.status, verdict.blame, evidence, self.sandbox_id, self.report.isolation_id)


def _parse_report(raw: bytes) -> dict[str, Any]:
    """Return the program's report as far as it makes sense; it may be forged."""
    try:
        report = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(report, dict) or report.get("ended") not in set(Reported):
        return {}
    return report
