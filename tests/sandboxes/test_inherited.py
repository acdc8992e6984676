"""What a trainer hands down to its slots, and what a caller may ask: neither may look like the machine's fault."""

import asyncio
import math
import os
import subprocess
import sys

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Limits, SandboxError, Status
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.select import select

_TRAINER = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGXCPU})
os.umask(0o077)
from accredit.sandboxes.select import select
session = select().open_blocking()
outcome = session.run("import os, signal\\nopen('/dev/null').read()\\nopen('x', 'w')\\n"
                      "print(signal.pthread_sigmask(0, []), oct(os.stat('x').st_mode))")
print(session.report.level.name, outcome.status, outcome.stdout.decode())
session.close()
"""


def test_a_trainers_signals_and_file_mask_are_not_handed_down(slot: SlotClient) -> None:
    done = subprocess.run([sys.executable, "-c", _TRAINER], capture_output=True, text=True, timeout=100)
    assert done.stdout.split("\n")[0] == f"{slot.report.level.name} ok set() 0o100644", done.stderr


def test_a_fork_of_a_trainer_opens_sandboxes_of_its_own(sandbox: EmbeddedSandbox) -> None:
    async def status() -> Status:
        async with await select().open() as session:
            return (await session.run("print(1)")).status

    assert asyncio.run(status()) is Status.OK
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if asyncio.run(asyncio.wait_for(status(), 60)) is Status.OK else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("argv", [["\ud800"], ["echo", "a\0b"], ["echo", "\ud800"]])
def test_a_command_that_no_kernel_takes_is_the_models(slot: SlotClient, argv: list[str]) -> None:
    outcome = slot.run(argv)
    assert (outcome.status, outcome.blame, outcome.exit_code) == (Status.EXIT, Blame.MODEL, 126)


def test_a_path_of_half_a_character_is_refused_and_the_session_lives(slot: SlotClient) -> None:
    for ask in (slot.read, slot.list, lambda path: slot.write(path, b"")):
        with pytest.raises(SandboxError, match="whole characters"):
            ask("\ud800")
    assert slot.run("print(1)").ok


@pytest.mark.parametrize(
    "limits", [{"wall_s": math.inf}, {"wall_s": 1e12}, {"cpu_s": math.nan}, {"pids": 3.5}, {"memory_mb": 1 << 60}]
)
def test_limits_that_no_kernel_takes_are_refused_at_once(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"expected {next(iter(limits))} to be"):
        Limits(**limits)  # pyright: ignore[reportArgumentType]
