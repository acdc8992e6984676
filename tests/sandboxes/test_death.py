"""A trainer that is killed with busy sandboxes leaves nothing: no process, no container, no group, no folder."""

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from accredit.sandboxes import SandboxError
from accredit.sandboxes.embedded.cgroup import groups
from accredit.sandboxes.select import load
from accredit.sandboxes.selfcheck.host import Trace

WALL_S = 60.0
TRAINER = """
import sys, threading, time
from accredit.sandboxes import Limits
from accredit.sandboxes.select import load
name, naming, nap = sys.argv[1:]
limits = Limits(wall_s=60.0, cpu_s=60.0)
clients = [load(name).open_blocking(limits) for _ in range(4)]
forks = naming + "import os, time\\nfor _ in range(4):\\n    if os.fork() == 0: os.setsid(); break\\n"
works = [
    lambda: clients[0].run(forks + "while True: pass"),
    lambda: clients[1].run(forks + "while True: time.sleep(1)"),
    lambda: clients[2].run(["sh", "-c", f"setsid sleep {nap} & sleep {nap}"]),
    lambda: clients[3].run_cell(forks + "while True: pass") if name != "gvisor" else clients[3].run(forks + "input()"),
]
for client in clients:
    assert client.run("print(1)").ok
for work in works:
    threading.Thread(target=work, daemon=True).start()
time.sleep(2)
print(*(client.pid for client in clients), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("embedded", "REQUIRE_SANDBOX"),
        ("subprocess", "REQUIRE_SANDBOX"),
        ("bubblewrap", "REQUIRE_BWRAP"),
        ("docker", "REQUIRE_DOCKER"),
        ("gvisor", "REQUIRE_GVISOR"),
    ],
)
def test_a_killed_trainer_leaves_nothing_of_four_busy_sandboxes(name: str, variable: str) -> None:
    try:
        load(name).open_blocking().close()
    except SandboxError as error:
        if os.environ.get(variable) == "1":
            raise
        pytest.skip(f"no {name} on this machine: {error}")
    trace = Trace()
    places, old = held_places(), groups().keys()
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER, name, trace.naming, trace.nap], stdout=subprocess.PIPE)
    try:
        assert trainer.stdout is not None
        slots = [int(word) for word in trainer.stdout.readline().split() if word != b"0"]
        busy = trace.survivors(0.0)
        assert busy or name == "gvisor"
        mine = held_places() - places
    finally:
        trainer.kill()
        trainer.wait()
    assert trace.survivors(WALL_S) == []
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in slots))
    until(lambda: not any(pid in slots for path, pid in groups().items() if path not in old))
    if name == "subprocess":
        assert len(mine) >= 4
        until(lambda: not any(path.exists() and not held(path) for path in mine))
    if name in ("docker", "gvisor"):
        until(lambda: containers_of(trainer.pid) == [])


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WALL_S
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def held_places() -> set[Path]:
    return {path for path in Path(tempfile.gettempdir()).glob("accredit-slot-*") if held(path)}


def held(place: Path) -> bool:
    """Whether a slot holds the lock on its place."""
    try:
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def containers_of(pid: int) -> list[str]:
    from accredit.sandboxes.docker.engine import Engine

    return [one for one, labels in Engine().containers().items() if str(pid) in labels.values()]
