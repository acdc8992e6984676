"""What a program can do in a container, and what becomes of one that does too much."""

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from accredit.sandboxes import Blame, Level, Limits, SandboxError, Status
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.selfcheck.sessions import SESSIONS

if TYPE_CHECKING:
    from accredit.sandboxes.docker import DockerSandbox
    from accredit.sandboxes.docker.engine import Engine

FLOOD = """
import resource
from accredit.sandboxes import Limits
from accredit.sandboxes.docker import DockerSandbox
client = DockerSandbox().open_blocking()
client.run("print(1)")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcome = client.run("import sys\\nfor _ in range(200): sys.stdout.write('x' * 1_000_000)", Limits(wall_s=60.0))
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
print(outcome.status, len(outcome.stdout), grown)
client.close()
"""

STOPS_ALL = """
import os, signal
for pid in range(2, 400):
    if pid != os.getpid():
        try: os.kill(pid, signal.SIGSTOP)
        except OSError: pass
"""
EATS_THE_SLOTS_MEMORY = """
import os
os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"0")  # no longer the first to go
while True:
    fd = os.memfd_create("x")
    for _ in range(15): os.write(fd, bytes(1 << 20))
"""
WRITES_INTO_ALL = """
import os
for pid in range(2, 400):
    for fd in range(64 if pid != os.getpid() else 0):
        try: os.write(os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK), b"F forged")
        except OSError: pass
"""


def test_a_session_is_one_container_with_its_labels(docker_sandbox: "DockerSandbox", engine: "Engine") -> None:
    before = set(engine.containers())
    client = docker_sandbox.open_blocking()
    try:
        outcomes = [client.run("import os\nprint(os.getpid())") for _ in range(3)]
        new = {name: labels for name, labels in engine.containers().items() if name not in before}
    finally:
        client.close()
    assert all(outcome.ok for outcome in outcomes)
    assert len({outcome.stdout for outcome in outcomes}) == 3  # a process each
    (labels,) = new.values()
    assert (labels["accredit.run"], labels["accredit.attempt"]) == ("tests", "2")
    assert not set(new) & set(engine.containers())


def test_the_report_calls_it_a_container_that_shares_the_kernel(container: SlotClient) -> None:
    report = container.report
    assert (report.backend, report.level) == ("docker", Level.L5)
    assert report.has("container") and not report.has("own_kernel")
    assert all(report.has(name) for name in ("namespaces", "seccomp", "rlimits", "uid_drop", "cgroup"))
    assert "own_kernel NO (shared with the host)" in report.describe()


def test_a_program_is_nobody_without_network_and_cannot_write_but_in_its_folder(container: SlotClient) -> None:
    code = """
import os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(os.getuid() > 0, status["CapEff"], status["CapBnd"], status["NoNewPrivs"], os.listdir("/sys/class/net"))
for path in ("/usr/lib/x", "/etc/passwd", "/proc/1/environ", "/proc/1/mem"):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError:
        pass
for pid in (1, os.getppid()):
    try:
        os.kill(pid, 9)
        print("killed", pid)
    except OSError:
        pass
"""
    outcome = container.run(code)
    assert outcome.ok, outcome.stderr
    alone, effective, _, no_new, links = outcome.stdout.decode().strip().split(" ", 4)
    assert (alone, int(effective, 16), no_new, links) == ("True", 0, "1", "['lo']")


def test_files_stay_and_commands_run(docker_sandbox: "DockerSandbox") -> None:
    async def scene() -> None:
        async with await docker_sandbox.open() as session:
            await session.write("in/data.txt", b"b\na\n")
            outcome = await session.run(["sh", "-c", "sort in/data.txt | tee out.txt; cat"], stdin=b"end\n")
            assert (outcome.status, outcome.stdout) == (Status.OK, b"a\nb\nend\n")
            assert (await session.run("print(open('out.txt').read())")).stdout == b"a\nb\n\n"
            assert await session.read("out.txt") == b"a\nb\n"
            assert {"in/data.txt", "out.txt"} <= {entry.path for entry in await session.list()}

    asyncio.run(scene())


def test_cells_keep_their_names_and_a_dead_one_is_undone(docker_sandbox: "DockerSandbox") -> None:
    client = docker_sandbox.open_blocking()
    try:
        assert client.run_cell("x = 41").ok
        assert client.run_cell("import os\nx = 0\nos._exit(3)").status is Status.EXIT
        assert client.run_cell("l = []\nwhile True: l.append(bytearray(1 << 20))").status is Status.OUT_OF_MEMORY
        assert client.run_cell("print(x + 1)").stdout == b"42\n"
    finally:
        client.close()


@pytest.mark.parametrize(("attack", "keeps_names"), [(STOPS_ALL, False), (WRITES_INTO_ALL, True)])
def test_a_cell_cannot_keep_the_next_run_from_starting_even_where_no_landlock_is(
    docker_sandbox: "DockerSandbox", attack: str, keeps_names: bool
) -> None:
    client = type(docker_sandbox)(without=["landlock"]).open_blocking()
    try:
        assert client.run_cell(f"x = 41\n{attack}").ok
        outcome = client.run("print('next')")
        assert (outcome.status, outcome.stdout) == (Status.OK, b"next\n"), outcome
        if not keeps_names:
            told = client.run_cell("x")
            assert (told.blame, told.evidence.detail.partition(",")[0]) == (Blame.MODEL, "before this cell")
            assert client.run_cell("x = 41").ok
        assert client.run_cell("x + 1").stdout == b"42\n"
    finally:
        client.close()


def test_a_cell_that_uses_up_the_inodes_of_both_ends_neither_the_slot_nor_the_next_run(container: SlotClient) -> None:
    fills = next(program.code for program in SESSIONS if program.name == "a cell fills the inodes")
    assert container.run_cell(fills).stdout == b"stopped 28\n"
    for _ in range(3):
        assert container.run("print('next')").stdout == b"next\n"
    assert container.run_cell("print('gone')").blame is Blame.MODEL
    assert container.run_cell("print('new')").stdout == b"new\n"


def test_a_container_taken_along_by_a_program_stays_the_models_fault(docker_sandbox: "DockerSandbox") -> None:
    client = type(docker_sandbox)(without=["landlock"]).open_blocking(Limits(memory_mb=64, disk_mb=16))
    try:
        first, *later = [client.run(EATS_THE_SLOTS_MEMORY), client.run("print(1)"), client.run_cell("1")]
        assert (first.status, first.evidence.detail[:19]) == (Status.OUT_OF_MEMORY, "the whole container")
        for outcome in later:
            assert (outcome.status, outcome.blame) == (Status.OUT_OF_MEMORY, Blame.MODEL)
            assert outcome.evidence.detail.startswith("during an earlier run: the whole container ran out of memory")
    finally:
        client.close()


def test_a_branch_is_a_container_of_its_own(docker_sandbox: "DockerSandbox", engine: "Engine") -> None:
    first = docker_sandbox.open_blocking()
    try:
        first.write("x", b"1")
        second = first.branch()
        try:
            second.write("x", b"2")
            assert (first.read("x"), second.read("x")) == (b"1", b"2")
        finally:
            second.close()
        assert first.run("print(3)").ok
    finally:
        first.close()


def test_a_fork_bomb_is_the_models_fault_and_the_session_goes_on(container: SlotClient) -> None:
    outcome = container.run("import os\nwhile True: os.fork()", Limits(wall_s=10.0, cpu_s=4.0))
    assert outcome.blame is Blame.MODEL
    assert container.run("print(1)").stdout == b"1\n"


def test_a_program_that_eats_the_memory_is_seen_by_the_counter(container: SlotClient) -> None:
    outcome = container.run("l = []\nwhile True: l.append(bytearray(1 << 20))")
    assert (outcome.status, outcome.blame) == (Status.OUT_OF_MEMORY, Blame.MODEL)
    assert outcome.evidence.oom_kills
    assert container.run("print(1)").ok


def test_an_imitation_of_running_out_of_memory_is_seen_through(container: SlotClient) -> None:
    assert container.run("import os\nos._exit(137)").status is Status.EXIT
    assert container.run("import os\nos.kill(os.getpid(), 9)").status is Status.SIGNAL


def test_a_child_killed_for_memory_counts_although_its_parent_ends_well(container: SlotClient) -> None:
    code = """
import os
for _ in range(10):
    if os.fork() == 0:
        held = b"x" * (60 << 20)
        import time
        time.sleep(3)
        os._exit(0)
for _ in range(10):
    os.wait()
"""
    outcome = container.run(code, Limits(wall_s=30.0))
    assert (outcome.exit_code, outcome.status) == (0, Status.OUT_OF_MEMORY)
    assert container.run("print(1)").ok


def test_a_run_with_less_memory_than_the_container_is_held_to_it(container: SlotClient) -> None:
    outcome = container.run("x = bytearray(150 << 20)", Limits(memory_mb=64))
    assert outcome.blame is Blame.MODEL
    assert b"MemoryError" in outcome.stderr


def test_a_run_cannot_have_more_memory_than_its_container(container: SlotClient) -> None:
    with pytest.raises(SandboxError, match=r"memory_mb of at most 256.*actually 512: open the session with the larger"):
        container.run("print(1)", Limits(memory_mb=512))
    assert container.run("print(1)").ok


def test_two_hundred_megabytes_of_output_do_not_reach_the_trainer(docker_sandbox: "DockerSandbox") -> None:
    done = subprocess.run([sys.executable, "-c", FLOOD], capture_output=True, text=True, timeout=120, check=True)
    status, kept, grown_mb = done.stdout.split()
    assert (status, int(kept)) == ("output_limit", 1 << 20)
    assert int(grown_mb) < 32


def test_a_run_is_stopped_at_its_deadline_with_all_its_processes(container: SlotClient) -> None:
    code = "import os, time\nif os.fork() == 0: os.setsid()\nwhile True: time.sleep(1)"
    outcome = container.run(code, Limits(wall_s=1.0))
    assert (outcome.status, outcome.blame) == (Status.TIMEOUT_WALL, Blame.MODEL)
    left = container.run("import os\nprint([p for p in os.listdir('/proc') if p.isdigit()])").stdout.decode()
    assert left.count("'") // 2 <= 7  # init, the slot's three, the run's two, and a spare


def test_gvisor_has_a_kernel_of_its_own(gvisor: "DockerSandbox") -> None:
    client = gvisor.open_blocking()
    try:
        assert (client.report.backend, client.report.level) == ("gvisor", Level.L6)
        outcomes = [client.run("print(6 * 7)") for _ in range(3)]
        assert [outcome.stdout for outcome in outcomes] == [b"42\n"] * 3
        with pytest.raises(SandboxError, match="cells need a kernel with pidfds"):
            client.run_cell("x = 1")
        forks = "import os, time\nfor _ in range(60):\n    if os.fork() == 0: time.sleep(60)\ntime.sleep(60)"
        assert client.run(forks, Limits(wall_s=50.0)).blame is Blame.MODEL
        threads = "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(9,)).start()"
        assert client.run(threads).blame is Blame.MODEL
        daemon = client.run("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(99)")
        assert daemon.ok
        assert client.run("print(1)").ok
    finally:
        client.close()
