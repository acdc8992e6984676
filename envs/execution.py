"""Runs work with a hard time limit: sync work in a thread of its own, async work on a private event loop.

Nothing here knows of tools, charges or text. A thread cannot be killed: work that ran past its limit is left behind in
a daemon thread, and the outcome says so: the caller can keep others away from what that work may still touch.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["LoopThread", "Outcome", "Running", "run_inline", "start_in_thread", "start_on_loop"]

CANCEL_GRACE_S = 2.0
"""Seconds that a coroutine has to react to being cancelled before its loop is given up."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a piece of work ended: with a `value`, with an `error`, or not in time (`expired`).

    `left_behind` is the thread that still runs the work, None if nothing does. `started_at` is on `time.monotonic()`'s
    clock.
    """

    value: Any = None
    error: BaseException | None = None
    expired: bool = False
    started_at: float = 0.0
    duration_s: float = 0.0
    left_behind: threading.Thread | None = None


Running = Callable[[], Outcome]
"""Work that was started; calling it waits for its outcome."""


def run_inline(work: Callable[[], Any]) -> Outcome:
    """Run `work` in the caller's own thread, without a limit. KeyboardInterrupt is the caller's and passes through."""
    started = time.monotonic()
    value, error = None, None
    try:
        value = work()
    except KeyboardInterrupt:
        raise
    except BaseException as raised:
        error = raised
    return Outcome(value, error, False, started, time.monotonic() - started)


def start_in_thread(work: Callable[[], Any], timeout_s: float | None, name: str) -> Running:
    """Start `work` in a daemon thread that sees the caller's context variables."""
    context = contextvars.copy_context()
    future: Future[Any] = Future()

    def body() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as raised:
            future.set_exception(raised)

    thread = threading.Thread(target=body, name=f"accredit {name}", daemon=True)
    started = time.monotonic()
    thread.start()

    def finish() -> Outcome:
        return _wait(future, started, timeout_s, thread)

    return finish


def start_on_loop(loop: "LoopThread", work: Callable[[], Coroutine[Any, Any, Any]], timeout_s: float | None) -> Running:
    """Start the coroutine that `work` makes on a private loop; it is cancelled when its time is up."""
    context = contextvars.copy_context()
    started = time.monotonic()

    ended = threading.Event()

    async def body() -> Any:
        try:
            return await asyncio.get_running_loop().create_task(work(), context=context)
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(body(), loop.loop)

    def finish() -> Outcome:
        outcome = _wait(future, started, timeout_s, loop.thread)
        if not outcome.expired:
            return outcome
        future.cancel()
        return replace(outcome, left_behind=None) if ended.wait(CANCEL_GRACE_S) else outcome

    return finish


def _wait(future: Future[Any], started: float, timeout_s: float | None, thread: threading.Thread) -> Outcome:
    left = None if timeout_s is None else max(timeout_s - (time.monotonic() - started), 0.0)
    value, error, expired = None, None, False
    try:
        value = future.result(left)
    except FutureTimeout as raised:
        expired = not future.done()
        error = None if expired else raised
    except (Exception, CancelledError, SystemExit, GeneratorExit) as raised:
        error = raised
    except KeyboardInterrupt as raised:
        if not future.done():
            raise
        error = raised
    return Outcome(value, error, expired, started, time.monotonic() - started, thread if expired else None)


class LoopThread:
    """A private event loop in a daemon thread, so that async tools work wherever `step` is called from.

    One loop serves an environment for its whole life: connections that a tool keeps belong to a loop.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name=f"accredit loop {name}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def close(self) -> None:
        """Stop the loop once it is free; a tool that blocks it keeps its daemon thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
