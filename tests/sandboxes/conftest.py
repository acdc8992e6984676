"""Shared fixtures: a slot of the strongest sandbox here, and a way to see whether its processes are gone."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import accredit.sandboxes
from accredit.sandboxes import EmbeddedSandbox, SandboxError
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.select import select

NOBODY = 65534
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


@pytest.fixture(scope="session")
def as_ordinary_user() -> Iterator[Callable[..., str]]:
    """Run a script with arguments as nobody, over a copy of the package; return what it prints."""
    if os.geteuid() != 0:
        pytest.skip("these tests run as an ordinary user already, so all the others show it")
    ids: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
    python = _reachable_interpreter(ids)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = Path(folder) / "accredit" / "sandboxes"
        shutil.copytree(Path(accredit.sandboxes.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))

        def run(script: str, *arguments: str) -> str:
            command = [python, "-c", f"import sys\nsys.path.insert(0, {folder!r})\n{script}", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, **ids)
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


def _reachable_interpreter(ids: dict[str, Any]) -> str:
    recent = "import sys; sys.exit(sys.version_info < (3, 11))"
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        with suppress(OSError):
            if subprocess.run([path, "-I", "-c", recent], **ids).returncode == 0:
                return path
    pytest.skip("no interpreter of at least Python 3.11 that an ordinary user can reach")


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
