"""Shared fixtures: a slot of the strongest sandbox here, and a way to see whether its processes are gone."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from accredit.sandboxes import EmbeddedSandbox, SandboxError
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.select import select

NAME_PROCESS = "import ctypes; ctypes.CDLL(None).prctl(15, {marker!r}.encode(), 0, 0, 0)\n"


@pytest.fixture(scope="session")
def sandbox() -> EmbeddedSandbox:
    try:
        chosen = select()
    except SandboxError as error:
        if os.environ.get("REQUIRE_SANDBOX") == "1":
            raise
        pytest.skip(f"no sandbox on this machine: {error}")
    assert isinstance(chosen, EmbeddedSandbox)
    return chosen


@pytest.fixture(scope="module")
def slot(sandbox: EmbeddedSandbox) -> Iterator[SlotClient]:
    client = sandbox.open_blocking()
    yield client
    client.close()


def living(marker: str) -> list[int]:
    """Return the processes of the whole machine that carry a marker as their name."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "comm").read_text().strip() == marker:
                    found.append(int(entry.name))
    return found


@pytest.fixture
def marker() -> str:
    return f"mk{os.urandom(5).hex()}"


@pytest.fixture
def marking(marker: str) -> str:
    """The first line of a program whose processes are to be found again by `marker`."""
    return NAME_PROCESS.format(marker=marker)


@pytest.fixture
def survivors(marker: str) -> Callable[[float], list[int]]:
    """Return marked processes that are still there after some seconds; returns early when there are none."""

    def wait(within_s: float) -> list[int]:
        until = time.monotonic() + within_s
        while (left := living(marker)) and time.monotonic() < until:
            time.sleep(0.05)
        return left

    return wait
