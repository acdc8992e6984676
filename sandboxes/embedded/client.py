"""The trainer's end of a slot: starts it, sends it programs, turns its evidence into outcomes.

Blocking at heart and callable from any thread; `EmbeddedSession` wraps it for asyncio. The client trusts the slot's
evidence, but checks and clamps everything the program's own process has reported.
"""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from accredit.sandboxes.errors import SandboxError
from accredit.sandboxes.protocol import ErrorSpan, IsolationReport, Layer, Limits, Outcome, Usage
from accredit.sandboxes.verdict import Evidence, Reported, Status, classify

from . import spans, wire
from .wire import SETUP_S

_START_S = 30.0
_GRACE_S = 15.0  # killing, reaping and reporting, on a busy machine
_CLOSE_S = 5.0
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}

# The slot must not run the trainer's site hooks or the rest of the suite: it is handed only the folder it needs.
_BOOTSTRAP = """
import sys, types
for name, path in (("accredit", []), ("accredit.sandboxes", [sys.argv[1]])):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = path
sys.modules["accredit"].sandboxes = package
from accredit.sandboxes.embedded.slot import main
main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
"""


class SlotClient:
    """One slot. Runs are serialised by a lock; `cancel` and `close` may come from other threads."""

    def __init__(self, limits: Limits, without: Collection[str] = ()) -> None:
        if sys.platform != "linux":
            raise SandboxError(f"the embedded backend expected Linux, actually {sys.platform}: use a container there")
        self.sandbox_id = f"slot-{uuid.uuid4().hex[:12]}"
        self.limits = limits
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._run_ids = itertools.count(1)
        self._running: int | None = None
        self._cancelled: set[int] = set()
        self._closed = False
        self._complaints = tempfile.TemporaryFile()
        self._socket, theirs = socket.socketpair()
        try:
            self._process = _spawn(theirs, self._complaints.fileno(), limits, without)
        except OSError as error:
            self._socket.close()
            self._complaints.close()
            raise SandboxError(f"the embedded slot could not be executed with {_interpreter()}: {error}") from error
        finally:
            theirs.close()
        try:
            self.report = self._await_report()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the slot's outermost process."""
        return self._process.pid

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
                self._kill()
                return self._fault(Status.BACKEND_TIMEOUT, f"the slot gave no answer {_GRACE_S:g} s past the deadline")
            except (OSError, EOFError):
                return self._fault(Status.LOST, f"the slot is gone: {self._last_words()}")
            except ValueError as error:
                self._kill()
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
                self._kill()

    def close(self) -> None:
        """End the slot and everything in it. Idempotent; a run in progress comes back as lost."""
        self._closed = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        with self._lock:
            self._socket.close()
            self._complaints.close()

    def _await_report(self) -> IsolationReport:
        try:
            frame = wire.receive(self._socket, _START_S)
        except TimeoutError:
            raise SandboxError(f"the embedded slot did not start within {_START_S:g} s") from None
        if frame is None or "layers" not in frame.header:
            reason = frame.header.get("refused") if frame is not None else self._last_words()
            raise SandboxError(f"the embedded slot could not start: {reason}")
        return IsolationReport("embedded", tuple(Layer(**layer) for layer in frame.header["layers"]))

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

    def _kill(self) -> None:
        try:
            self._process.send_signal(signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _last_words(self) -> str:
        """Return the end of what the slot wrote to its standard error."""
        try:
            size = os.fstat(self._complaints.fileno()).st_size
            text = os.pread(self._complaints.fileno(), 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()
        except (OSError, ValueError):
            text = ""
        return text.splitlines()[-1] if text else "it left no message"


def _interpreter() -> str:
    """Return the interpreter below any virtual environment: inside the sandbox only that one exists."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _spawn(theirs: socket.socket, complaints: int, limits: Limits, without: Collection[str]) -> subprocess.Popen[bytes]:
    options = json.dumps({"limits": asdict(limits), "without": sorted(without)})
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    fd = theirs.fileno()
    return subprocess.Popen(
        [_interpreter(), "-I", "-S", "-B", "-c", _BOOTSTRAP, folder, str(fd), str(os.getpid()), options],
        env=_ENVIRONMENT,
        cwd="/",
        pass_fds=(fd,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        start_new_session=True,  # Ctrl-C at the trainer's terminal is for the trainer
    )


def _parse_report(raw: bytes) -> dict[str, Any]:
    """Return the program's report as far as it makes sense; it may be forged."""
    try:
        report = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(report, dict) or report.get("ended") not in set(Reported):
        return {}
    return report
