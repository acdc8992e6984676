"""The init of a run's process namespace: what it reaps, who may look into it, and what its end means."""

import os
import signal
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Limits, Outcome, Status
from accredit.sandboxes.embedded import init
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.embedded.syscalls import CLONE

SIBLINGS = """
import ctypes, os, time
clone, CLONE_PARENT, SIGCHLD = %d, 0x8000, 17
made = 0
for _ in range(3):
    pid = ctypes.CDLL(None).syscall(clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
    made += pid > 0
print(made, flush=True)
"""


@pytest.fixture(autouse=True)
def _needs_namespaces(slot: SlotClient) -> None:
    if not slot.report.has("namespaces"):
        pytest.skip(f"no namespaces here, so no init: {slot.report.describe()}")


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_its_executable_holds_one_segment_that_begins_where_it_says(machine: str, number: int) -> None:
    image = init.image(machine)
    entry, first_header = struct.unpack_from("<QQ", image, 24)
    offset, address = struct.unpack_from("<QQ", image, first_header + 8)
    assert image[:4] == b"\x7fELF"
    assert struct.unpack_from("<H", image, 18) == (number,)
    assert 0 < entry - address + offset < len(image) < 300
    with pytest.raises(OSError, match="not written for riscv64"):
        init.image("riscv64")


def test_it_reaps_what_a_program_orphans(slot: SlotClient) -> None:
    outcome = slot.run(
        "import os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0: time.sleep(0.05)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "until = time.time() + 8\n"
        "while len([n for n in os.listdir('/proc') if n.isdigit()]) > 2 and time.time() < until: time.sleep(0.01)\n"
        "print(sorted(int(n) for n in os.listdir('/proc') if n.isdigit()), os.getpid(), os.getppid())\n"
    )
    assert outcome.stdout == b"[1, 2] 2 0\n"


def test_no_program_can_look_into_it_or_stop_it(slot: SlotClient) -> None:
    outcome = slot.run(
        "import os, signal\n"
        "for name in ('mem', 'environ', 'maps', 'root', 'cwd', 'fd/1', 'exe'):\n"
        "    try:\n"
        "        path = f'/proc/1/{name}'\n"
        "        os.readlink(path) if name in ('root', 'cwd', 'fd/1', 'exe') else open(path, 'rb').read(1)\n"
        "        print('LEAK', name)\n"
        "    except OSError: pass\n"
        "for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGCHLD):\n"
        "    try: os.kill(1, number)\n"
        "    except OSError: pass\n"
        "if os.fork() == 0:\n"
        "    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    assert outcome.stdout == b"0\n"


def test_its_end_is_the_hosts_doing_and_the_session_goes_on(slot: SlotClient) -> None:
    ended: list[Outcome] = []
    runner = threading.Thread(target=lambda: ended.append(slot.run("import time\ntime.sleep(60)")))
    runner.start()
    time.sleep(0.5)
    (pid,) = [pid for pid in below(slot.pid) if (Path("/proc") / str(pid) / "comm").read_text() == ".init\n"]
    os.kill(pid, signal.SIGKILL)
    runner.join(30)
    assert (ended[0].status, ended[0].blame) == (Status.LOST, Blame.INFRASTRUCTURE)
    assert slot.run("print(1)").ok


def test_a_spare_whose_init_has_ended_is_not_used(slot: SlotClient) -> None:
    assert slot.run("print(1)").ok
    time.sleep(0.5)
    (pid,) = [pid for pid in below(slot.pid) if (Path("/proc") / str(pid) / "comm").read_text() == ".init\n"]
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    assert slot.run("print(1)").ok


@pytest.mark.parametrize(("without", "made"), [((), b"0\n"), (("seccomp",), b"3\n")])
def test_siblings_of_a_program_are_denied_and_where_they_are_not_die_with_it(
    without: tuple[str, ...], made: bytes, marking: str, survivors: Callable[[float], list[int]]
) -> None:
    client = EmbeddedSandbox(without=without).open_blocking()
    try:
        source = marking + SIBLINGS % CLONE[os.uname().machine]
        for end in ("", "time.sleep(60)"):
            outcome = client.run(source + end, Limits(wall_s=1.0))
            assert outcome.status is (Status.TIMEOUT_WALL if end else Status.OK), outcome
            assert outcome.stdout == made
            assert survivors(5.0) == []
        assert client.run("print(1)").ok
    finally:
        client.close()


def test_a_full_disk_is_seen_when_the_program_is_gone(slot: SlotClient) -> None:
    outcome = slot.run("f = open('/tmp/x', 'wb')\nwhile True: f.write(bytes(1 << 20))", Limits(disk_mb=4))
    assert (outcome.status, outcome.evidence.disk_full) == (Status.LIMIT_HIT, True)
    assert slot.run("open('/tmp/x')").status is Status.EXCEPTION


def below(pid: int) -> list[int]:
    """Return all processes that descend from one."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(found for child in children for found in below(child))]
