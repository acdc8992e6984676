"""A pool keeps its bounds, uses nothing twice, and never lets the host side's faults pass for the model's."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import cast

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Limits, SandboxError, Status
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.errors import SandboxFault
from accredit.sandboxes.pool import Pool, PoolOptions
from accredit.sandboxes.pooled import PooledSession
from accredit.sandboxes.protocol import BlockingSession


class Faulty:
    """A real sandbox whose first openings fail or hang."""

    name = "faulty"

    def __init__(self, sandbox: EmbeddedSandbox, failures: int = 0, hang: threading.Event | None = None) -> None:
        self.sandbox, self.failures, self.hang, self.tries = sandbox, failures, hang, 0

    def open_blocking(self, limits=None):
        self.tries += 1
        if self.tries <= self.failures:
            raise SandboxError("no slot to be had")
        if self.hang is not None:
            self.hang.wait(60)
        return self.sandbox.open_blocking(limits)


@contextmanager
def pool_of(sandbox, **options) -> Iterator[Pool]:
    pool = Pool(sandbox, PoolOptions(**{"warm": 0, **options}))
    try:
        yield pool
    finally:
        pool.close()


def eventually(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.02)


def slot_pid(session: PooledSession | BlockingSession) -> int:
    inner = session.inner if isinstance(session, PooledSession) else session
    return cast(SlotClient, inner).pid


def test_a_session_is_opened_ahead_taken_once_and_never_again(sandbox: EmbeddedSandbox) -> None:
    with pool_of(sandbox, warm=1, most=2) as pool:
        pids = []
        for episode in range(3):
            eventually(lambda: pool.counts().warm == 1)
            session = pool.open_blocking()
            assert session.run(f"print({episode})").stdout == f"{episode}\n".encode()
            pids.append(slot_pid(session))
            session.close()
            session.close()
            with pytest.raises(SandboxError, match="closed"):
                session.run("print(1)")
        assert len(set(pids)) == 3
        assert (pool.counts().taken_warm, pool.counts().runs) == (3, 3)
        assert pool.counts().faults == 0
        eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_a_warm_session_that_died_is_not_handed_out(sandbox: EmbeddedSandbox) -> None:
    with pool_of(sandbox, warm=1) as pool:
        eventually(lambda: pool.counts().warm == 1)
        os.kill(slot_pid(pool._warm[0]), signal.SIGKILL)
        session = pool.open_blocking()
        assert session.run("print(1)").ok
        assert pool.counts().statuses[Status.LOST] == 1


def test_other_limits_than_the_warm_ones_get_a_session_of_their_own(sandbox: EmbeddedSandbox) -> None:
    with pool_of(sandbox, warm=1) as pool:
        eventually(lambda: pool.counts().warm == 1)
        session = pool.open_blocking(Limits(output_bytes=10))
        assert session.run("print('x' * 100)").status is Status.OUTPUT_LIMIT
        assert (pool.counts().taken_warm, pool.counts().warm) == (0, 1)


def test_the_queue_is_bounded_waits_in_order_and_says_overloaded(sandbox: EmbeddedSandbox) -> None:
    with pool_of(sandbox, most=1, queue=1, wait_s=30.0) as pool, ThreadPoolExecutor(1) as thread:
        first = pool.open_blocking()
        waiting = thread.submit(pool.open_blocking)
        eventually(lambda: pool.counts().waiting == 1)
        with pytest.raises(SandboxFault, match="overloaded: 1 sessions are in use and 1 callers wait") as caught:
            pool.open_blocking()
        assert caught.value.status is Status.OVERLOADED
        first.close()
        assert waiting.result(30).run("print(1)").ok
        assert (pool.counts().statuses[Status.OVERLOADED], pool.counts().waiting) == (1, 0)


@pytest.mark.parametrize("blocking", [True, False])
def test_who_waits_too_long_for_a_place_is_told_overloaded(sandbox: EmbeddedSandbox, blocking: bool) -> None:
    with pool_of(sandbox, most=1, wait_s=0.1) as pool:
        held = pool.open_blocking()
        with pytest.raises(SandboxFault, match=r"no place came free within 0\.1 s") as caught:
            pool.open_blocking() if blocking else asyncio.run(pool.open())
        assert caught.value.status is Status.OVERLOADED
        held.close()
        eventually(lambda: pool._places._free == 1)  # the place is free again, and once only


def test_start_failures_are_retried_afresh_and_bounded(sandbox: EmbeddedSandbox) -> None:
    with pool_of(Faulty(sandbox, failures=2), attempts=3) as pool:
        assert pool.open_blocking().run("print(1)").ok
        assert pool.counts().statuses == {Status.START_FAILED: 2, Status.OK: 1}
    hopeless = Faulty(sandbox, failures=99)
    with pool_of(hopeless, attempts=3, most=1) as pool:
        for _ in range(2):  # a failed opening gives its place back
            with pytest.raises(SandboxFault, match="failed to open a session 3 times: no slot") as caught:
                pool.open_blocking()
            assert caught.value.status is Status.START_FAILED
        assert hopeless.tries == 6


@pytest.mark.parametrize("blocking", [True, False])
def test_an_opening_past_its_deadline_is_a_backend_timeout_and_ended_when_it_comes(
    sandbox: EmbeddedSandbox, blocking: bool
) -> None:
    hang = threading.Event()
    with pool_of(Faulty(sandbox, hang=hang), open_s=0.2, most=1) as pool:
        with pytest.raises(SandboxFault, match=r"opened no session within 0\.2 s") as caught:
            pool.open_blocking() if blocking else asyncio.run(pool.open())
        assert caught.value.status is Status.BACKEND_TIMEOUT
        hang.set()
        eventually(lambda: pool._places._free == 1 and pool.counts().held == 0)


def test_failures_in_a_row_are_the_models_as_long_as_a_canary_lives(sandbox: EmbeddedSandbox) -> None:
    with pool_of(sandbox, canary_after=2) as pool:
        session = pool.open_blocking()
        assert [session.run("1 / 0").blame for _ in range(4)] == [Blame.MODEL] * 4
        session.run("print(1)")
        session.run("1 / 0")
        assert pool.counts().canaries == 2


def test_a_failure_whose_canary_dies_is_lost_and_so_is_the_session(sandbox: EmbeddedSandbox) -> None:
    with pool_of(sandbox, canary_after=2) as pool:
        session = pool.open_blocking()
        real = session.inner.run

        def sick(program, limits=None, **more):
            if program.startswith("print(6"):
                os.kill(slot_pid(session), signal.SIGKILL)
            return real(program, limits, **more)

        session.inner.run = sick  # type: ignore[method-assign]
        assert session.run("1 / 0").blame is Blame.MODEL
        outcome = session.run("1 / 0")
        assert (outcome.status, outcome.blame) == (Status.LOST, Blame.INFRASTRUCTURE)
        assert "exception, is not taken for the program's" in outcome.evidence.detail
        assert session.run("print(1)").status is Status.LOST
        with pytest.raises(SandboxFault, match="canary"):
            session.read("a")
        assert pool.counts().statuses == {Status.EXCEPTION: 1, Status.LOST: 2}


def test_a_slot_killed_in_a_run_is_lost_and_the_next_session_works(sandbox: EmbeddedSandbox) -> None:
    with pool_of(sandbox) as pool, ThreadPoolExecutor(1) as thread:
        session = pool.open_blocking()
        running = thread.submit(session.run, "import time\ntime.sleep(60)", Limits(wall_s=60.0))
        time.sleep(0.3)
        os.kill(slot_pid(session), signal.SIGKILL)
        assert running.result(30).status is Status.LOST
        session.close()
        assert pool.open_blocking().run("print(1)").ok
        assert pool.counts().faults == 1


def test_a_cancelled_caller_leaves_nothing_behind(sandbox: EmbeddedSandbox) -> None:
    async def scene(pool: Pool) -> None:
        session = await pool.open()
        waiting = asyncio.create_task(pool.open())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        running = asyncio.create_task(session.run("while True: pass", Limits(wall_s=60.0, cpu_s=60.0)))
        await asyncio.sleep(0.3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        closing.cancel()
        async with await pool.open() as other:
            assert (await other.run("print(1)")).ok
        closing = asyncio.create_task(pool.aclose())
        await asyncio.sleep(0)
        closing.cancel()

    with pool_of(sandbox, most=1, warm=1) as pool:
        asyncio.run(scene(pool))
        eventually(lambda: pool.counts().held == 0 and pool.counts().warm == 0)


def test_closing_ends_what_is_in_use_and_refuses_who_waits(sandbox: EmbeddedSandbox) -> None:
    with ThreadPoolExecutor(2) as threads, pool_of(sandbox, most=1, warm=1) as pool:
        session = pool.open_blocking()
        pid = slot_pid(session)
        running = threads.submit(session.run, "import time\ntime.sleep(60)", Limits(wall_s=60.0))
        waiting = threads.submit(pool.open_blocking)
        eventually(lambda: pool.counts().waiting == 1)
        time.sleep(0.2)
        pool.close()
        assert not os.path.exists(f"/proc/{pid}")
        assert running.result(30).status is Status.LOST
        for ask in (lambda: waiting.result(30), pool.open_blocking):
            with pytest.raises(SandboxError, match="is closed"):
                ask()
