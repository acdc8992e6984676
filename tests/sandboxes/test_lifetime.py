"""Deadlines, survivors, cancellation, closing, and faults of the host side."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Limits, SandboxError, Status, run_python
from accredit.sandboxes.embedded.cgroup import groups
from accredit.sandboxes.embedded.client import SlotClient

FORKS = "import os, time\nfor _ in range(4):\n    if os.fork() == 0: break\nif os.getpid() != 2: os.setsid()\n"


def test_an_endless_loop_leaves_no_process_after_its_deadline(
    slot: SlotClient, marking: str, survivors: Callable[[float], list[int]]
) -> None:
    outcome = slot.run(marking + FORKS + "while True: pass", Limits(wall_s=1.0))
    assert (outcome.status, outcome.blame) == (Status.TIMEOUT_WALL, Blame.MODEL)
    assert survivors(5.0) == []


def test_a_daemon_of_the_program_neither_holds_the_run_nor_survives(
    slot: SlotClient, marking: str, survivors: Callable[[float], list[int]]
) -> None:
    code = marking + "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nprint('done')"
    outcome = slot.run(code, Limits(wall_s=30.0))
    assert (outcome.status, outcome.stdout) == (Status.OK, b"done\n")
    assert outcome.usage.wall_s < 20.0
    assert survivors(5.0) == []


@pytest.mark.parametrize("while_running", [False, True])
def test_a_killed_slot_is_infrastructure_and_a_new_session_works(sandbox: EmbeddedSandbox, while_running: bool) -> None:
    async def scene() -> None:
        async with await sandbox.open() as session:
            pid = session.client.pid
            if while_running:
                running = asyncio.create_task(session.run("while True: pass", Limits(wall_s=60.0)))
                await asyncio.sleep(0.5)
                os.kill(pid, signal.SIGKILL)
                outcome = await running
            else:
                os.kill(pid, signal.SIGKILL)
                outcome = await session.run("print(1)")
            assert (outcome.status, outcome.blame) == (Status.LOST, Blame.INFRASTRUCTURE)
            assert (await session.run("print(1)")).blame is Blame.INFRASTRUCTURE
        async with await sandbox.open() as session:
            assert (await session.run("print(1)")).ok

    asyncio.run(scene())


def test_a_stopped_slot_is_a_backend_timeout(sandbox: EmbeddedSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accredit.sandboxes.embedded.client._GRACE_S", 0.5)
    monkeypatch.setattr("accredit.sandboxes.embedded.client.SETUP_S", 0.5)
    client = sandbox.open_blocking()
    try:
        freeze_tree(client.pid)
        outcome = client.run("print(1)", Limits(wall_s=0.5))
        assert (outcome.status, outcome.blame) == (Status.BACKEND_TIMEOUT, Blame.INFRASTRUCTURE)
    finally:
        client.close()


def test_closing_twice_is_closing_once(sandbox: EmbeddedSandbox) -> None:
    async def scene() -> None:
        session = await sandbox.open()
        await session.close()
        await session.close()
        with pytest.raises(SandboxError, match="is closed: open a new session"):
            await session.run("print(1)")

    asyncio.run(scene())


def test_closing_goes_on_when_its_caller_is_cancelled(sandbox: EmbeddedSandbox) -> None:
    async def scene() -> int:
        session = await sandbox.open()
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        return session.client.pid

    pid = asyncio.run(scene())
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_cancelled_run_is_stopped_and_the_session_goes_on(
    sandbox: EmbeddedSandbox, marking: str, survivors: Callable[[float], list[int]]
) -> None:
    async def scene() -> None:
        async with await sandbox.open() as session:
            running = asyncio.create_task(session.run(marking + "while True: pass", Limits(wall_s=60.0)))
            while not survivors(0.0):
                await asyncio.sleep(0.05)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await session.run("print(1)")).ok
            assert survivors(5.0) == []

    asyncio.run(scene())


def test_a_cancelled_run_has_a_verdict_of_its_own(slot: SlotClient) -> None:
    run_id = slot.new_run_id()
    timer = threading.Timer(0.5, slot.cancel, [run_id])
    timer.start()
    outcome = slot.run("while True: pass", Limits(wall_s=60.0), run_id)
    assert (outcome.status, outcome.blame) == (Status.CANCELLED, Blame.NOBODY)


def test_cancelling_a_waiting_run_leaves_the_one_before_it_alone(sandbox: EmbeddedSandbox) -> None:
    async def scene() -> None:
        async with await sandbox.open() as session:
            first = asyncio.create_task(session.run("import time\ntime.sleep(1.0)\nprint('first')"))
            second = asyncio.create_task(session.run("print('second')"))
            await asyncio.sleep(0.3)
            second.cancel()
            assert (await first).stdout == b"first\n"
            assert (await session.run("print('third')")).stdout == b"third\n"

    asyncio.run(scene())


def test_sessions_run_side_by_side(sandbox: EmbeddedSandbox) -> None:
    async def one(n: int) -> bytes:
        async with await sandbox.open() as session:
            return (await session.run(f"print({n})")).stdout

    async def scene() -> list[bytes]:
        return await asyncio.gather(*(one(n) for n in range(4)))

    assert asyncio.run(scene()) == [b"0\n", b"1\n", b"2\n", b"3\n"]


def test_run_python_works_in_a_thread_of_a_running_loop(sandbox: EmbeddedSandbox) -> None:
    async def scene() -> bytes:
        return (await asyncio.to_thread(run_python, "print(5)")).stdout

    assert asyncio.run(scene()) == b"5\n"
    assert run_python("print(6)").stdout == b"6\n"


def test_a_slot_outlives_the_thread_that_opened_it(sandbox: EmbeddedSandbox) -> None:
    opened: list[SlotClient] = []
    thread = threading.Thread(target=lambda: opened.append(sandbox.open_blocking()))
    thread.start()
    thread.join()
    time.sleep(0.3)
    try:
        assert opened[0].run("print(1)").ok
    finally:
        opened[0].close()


def test_a_closed_slot_leaves_no_control_group(sandbox: EmbeddedSandbox) -> None:
    old = groups().keys()
    client = sandbox.open_blocking()
    made = {path for path, pid in groups().items() if pid == client.pid} - old
    client.close()
    assert client.report.has("cgroup") == bool(made)
    assert not any(os.path.exists(path) for path in made)


def wait_until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def freeze_tree(root: int) -> None:
    """Stop a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", errors="replace") as file:
                children.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(name))
        except OSError:
            continue
    todo = [root]
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        os.kill(pid, signal.SIGSTOP)
