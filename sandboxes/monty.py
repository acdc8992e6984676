"""The Monty backend: an interpreter of its own for expressions and small programs, in a worker process. Extra `monty`.

It starts in well under a millisecond, runs where Linux's walls are missing, and denies files, network and processes
because its interpreter has none. Nothing of the kernel stands behind that, so its level is L1 and it is only used by
name with `allow_weaker=True`. It has no inheritance, no generators and few modules: a program that needs them ends as
`unsupported`, which is nobody's fault. It has no files, no standard input and runs no commands.
"""

import atexit
import os
import signal
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Never

from .embedded.runs import Output
from .errors import SandboxError
from .monty_evidence import read
from .protocol import LAYERS, Entry, IsolationReport, Layer, Limits, Outcome, Usage
from .threads import ThreadedSession, adopt, in_thread
from .verdict import Evidence, Status, classify

__all__ = ["MontyClient", "MontySandbox"]

_CHECKOUT_S = 60.0
_GRACE_S = 15.0
_DENIED = "open('/etc/passwd')"
_NO_WALL = "the interpreter is the only wall"
_lock = threading.Lock()
_pools: dict[int, Any] = {}


class MontySandbox:
    """Opens Monty sessions; all of a process share one pool of workers."""

    name = "monty"

    async def open(self, limits: Limits | None = None) -> ThreadedSession:
        """Start a session for one episode; raise `SandboxError` with the reason if this machine cannot."""
        return ThreadedSession(await adopt(in_thread(lambda: self.open_blocking(limits))))

    def open_blocking(self, limits: Limits | None = None) -> "MontyClient":
        """Start a session from ordinary, blocking code."""
        _pool()
        client = MontyClient(limits or Limits())
        denied = client.run(_DENIED)
        if denied.status is not Status.EXCEPTION or b"PermissionError" not in denied.stderr:
            raise SandboxError(f"monty: expected `{_DENIED}` to be denied, actually {denied.status} {denied.stderr!r}")
        return client


@dataclass(slots=True)
class _Worker:
    """The process of a run in progress, so that it can be ended, and why it was."""

    pid: int | None = None
    stopped: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self, why: str) -> None:
        """End the run by ending its worker, which the pool replaces."""
        with self.lock:
            if self.stopped is None and self.pid is not None:
                self.stopped = why
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    def release(self) -> None:
        """Forget the process: from here on it is somebody else's."""
        with self.lock:
            self.pid = None


class MontyClient:
    """One session. A run starts from nothing; a cell starts from what the cells before it left."""

    def __init__(self, limits: Limits, state: bytes | None = None) -> None:
        self.sandbox_id = f"monty-{uuid.uuid4().hex[:12]}"
        self.limits = limits
        layers = (Layer("interpreter", True), *(Layer(name, False, _NO_WALL) for name in LAYERS))
        self.report = IsolationReport(MontySandbox.name, layers)
        self._state = state
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._closed = False

    def run(self, program: str | Sequence[str], limits: Limits | None = None, *, stdin: bytes = b"") -> Outcome:
        """Run a program; never raises for what the program did."""
        if not isinstance(program, str):
            self._refuse("runs no commands")
        if stdin:
            self._refuse("has no standard input")
        return self._run(program, limits or self.limits, None)[0]

    def run_cell(self, code: str, limits: Limits | None = None) -> Outcome:
        """Run code in the state that the last cell left. What a limit stops is undone.

        The session's own limits hold for every cell, because they travel with the state.
        """
        if limits is not None and limits != self.limits:
            self._refuse("gives every cell the session's limits: open the session with those that you want")
        outcome, state = self._run(code, self.limits, self._state or b"")
        if state is not None:
            self._state = state
        return outcome

    def interrupt(self) -> None:
        """Stop what runs now; its outcome is `cancelled`."""
        if (worker := self._worker) is not None:
            worker.stop("cancelled")

    def read(self, path: str, most_bytes: int = 1 << 20) -> bytes:
        """Refuse: there are no files."""
        self._refuse("has no files")

    def write(self, path: str, data: bytes) -> None:
        """Refuse: there are no files."""
        self._refuse("has no files")

    def list(self, path: str = ".") -> tuple[Entry, ...]:
        """Return nothing: there are no files."""
        return ()

    def branch(self) -> "MontyClient":
        """Return another session in the same state."""
        with self._lock:
            return MontyClient(self.limits, self._state)

    def close(self) -> None:
        """End the session. Idempotent; a run in progress comes back as cancelled."""
        self._closed = True
        self.interrupt()

    def _refuse(self, what: str) -> Never:
        raise SandboxError(f"{self.sandbox_id}: the monty backend {what}; the embedded one does")

    def _run(self, code: str, limits: Limits, state: bytes | None) -> tuple[Outcome, bytes | None]:
        """Run in a state (`None`: none is wanted); return the outcome and the state after, unless it is undone."""
        import pydantic_monty

        with self._lock:
            if self._closed:
                raise SandboxError(f"{self.sandbox_id} is closed: open a new session to run more programs")
            output, worker, after = Output(limits.output_bytes), _Worker(), None
            self._worker, began = worker, time.monotonic()
            facts: dict[str, Any] = {"wait_status": 0, "reported": "end"}
            span = None

            def printed(stream: str, text: str) -> None:
                output.add(int(stream == "stderr"), text.encode("utf-8", "surrogatepass"))
                if output.full:
                    worker.stop("output")

            try:
                with _pool().checkout(limits=_to_monty(limits)) as session:
                    if state:
                        session.load_session(state)
                    worker.pid = session.worker_pid
                    try:
                        session.feed_run(code, print_callback=printed)
                    except (pydantic_monty.MontySyntaxError, pydantic_monty.MontyRuntimeError) as error:
                        facts, span = read(error, code)
                        printed("stderr", error.display() + "\n")
                    except pydantic_monty.MontyConversionError:
                        pass  # the value of the last expression, which nobody asked for
                    worker.release()
                    if state is not None and not {"stopped", "oom_kills"} & facts.keys():
                        after = session.dump()
            except pydantic_monty.MontyCrashedError as error:
                late = error.timed_out
                facts = {"stopped": "wall"} if late else {"fault": Status.LOST, "detail": str(error)}
            except TimeoutError as error:
                facts = {"fault": Status.OVERLOADED, "detail": str(error)}
            finally:
                worker.release()
                self._worker = None
            if worker.stopped is not None:
                facts = {"cancelled": True} if worker.stopped == "cancelled" else {"stopped": worker.stopped}
                span = after = None
            facts["wall_s"] = time.monotonic() - began
        return self._outcome(facts, output, span), after

    def _outcome(self, facts: dict[str, Any], output: Output, span: Any) -> Outcome:
        evidence = Evidence.from_json(facts)
        verdict = classify(evidence)
        return Outcome(
            status=verdict.status,
            blame=verdict.blame,
            evidence=evidence,
            sandbox_id=self.sandbox_id,
            isolation_id=self.report.isolation_id,
            exit_code=None if evidence.wait_status is None else os.waitstatus_to_exitcode(evidence.wait_status),
            stdout=bytes(output.kept[0]),
            stderr=bytes(output.kept[1]),
            stdout_bytes=output.sizes[0],
            stderr_bytes=output.sizes[1],
            truncated=output.full,
            error_spans=() if span is None else (span,),
            usage=Usage(wall_s=evidence.wall_s),
        )


def _to_monty(limits: Limits) -> dict[str, Any]:
    return {
        "max_feed_duration_secs": min(limits.wall_s, limits.cpu_s),
        "max_total_sleep_secs": limits.wall_s,
        "max_memory": limits.memory_mb << 20,
    }


def _pool() -> Any:
    """Return this process's pool of workers; a fork of it starts its own."""
    with _lock:
        if os.getpid() not in _pools:
            try:
                import pydantic_monty

                pool = pydantic_monty.Monty(checkout_timeout=_CHECKOUT_S, feed_duration_limit_grace=_GRACE_S)
                pool.__enter__()
            except (ImportError, OSError, RuntimeError) as error:
                raise SandboxError(
                    f"monty is not installed, or does not start: {error}; pip install 'accredit[monty]'"
                ) from error
            _pools[os.getpid()] = pool
            atexit.register(_end_pool)
        return _pools[os.getpid()]


def _end_pool() -> None:
    if (pool := _pools.pop(os.getpid(), None)) is not None:
        pool.__exit__(None, None, None)
