"""The bubblewrap backend: what holds because of bubblewrap, for root and for others, and how it ends."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import accredit.sandboxes
from accredit.sandboxes import Blame, Level, Limits, SandboxError, Status
from accredit.sandboxes.bwrap import BubblewrapSandbox
from accredit.sandboxes.embedded.client import SlotClient

NOBODY = 65534
PATIENT = Limits(wall_s=60.0)
TRAINER = """
import os, sys, time
from accredit.sandboxes import Limits
from accredit.sandboxes.bwrap import BubblewrapSandbox
client = BubblewrapSandbox().open_blocking()
if os.fork() == 0:
    time.sleep(60)  # a worker of the trainer, which holds the client's end of the stream
    os._exit(0)
print("open", flush=True)
client.run(sys.argv[1] + "open('started', 'w')\\nwhile True: pass", Limits(wall_s=250.0, cpu_s=250.0))
"""


@pytest.fixture(scope="module")
def bubblewrap() -> BubblewrapSandbox:
    sandbox = BubblewrapSandbox()
    try:
        sandbox.open_blocking().close()
    except SandboxError as error:
        if os.environ.get("REQUIRE_BWRAP") == "1":
            raise
        pytest.skip(f"no bubblewrap on this machine: {error}")
    return sandbox


@pytest.fixture(scope="module")
def wrapped(bubblewrap: BubblewrapSandbox) -> Iterator[SlotClient]:
    client = bubblewrap.open_blocking(PATIENT)
    yield client
    client.close()


def living(marker: str) -> list[Path]:
    found: list[Path] = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if comm.read_text().strip() == marker:
                found.append(comm)
    return found


def descendants(pid: int) -> list[int]:
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def test_it_reaches_the_floor_under_its_own_name(wrapped: SlotClient) -> None:
    assert wrapped.report.backend == "bubblewrap"
    assert wrapped.report.level >= Level.L3, wrapped.report.describe()
    outcome = wrapped.run("print(6 * 7)")
    assert (outcome.status, outcome.stdout) == (Status.OK, b"42\n")
    assert outcome.isolation_id == wrapped.report.isolation_id
    assert outcome.isolation_id.startswith("bubblewrap-L3-")


def test_root_is_given_up_before_bubblewrap_starts(wrapped: SlotClient) -> None:
    if os.geteuid() != 0:
        pytest.skip("not root, so there is nothing to give up")
    assert wrapped.report.has("uid_drop"), wrapped.report.describe()
    users = {os.stat(f"/proc/{pid}").st_uid for pid in descendants(wrapped.pid)}
    status = Path(f"/proc/{descendants(wrapped.pid)[-1]}/status").read_text(errors="replace")
    assert "Uid:\t0\t" not in status
    assert len(users) >= 1
    outcome = wrapped.run("import os\nprint(os.getuid() > 60000, os.geteuid() > 60000)")
    assert outcome.stdout == b"True True\n", outcome


def test_the_number_of_processes_is_bounded(wrapped: SlotClient) -> None:
    """The limit counts processes of a user, and does not bind root."""
    code = (
        "import os, time\nn = 0\ntry:\n    while n < 500:\n        if os.fork() == 0: time.sleep(1000)\n"
        "        n += 1\nexcept OSError: pass\nprint(n < 100)"
    )
    outcome = wrapped.run(code)
    assert (outcome.status, outcome.stdout) == (Status.OK, b"True\n"), outcome
    assert wrapped.run("print('fine')").stdout == b"fine\n"


def test_no_process_inside_has_the_trainers_environment(
    bubblewrap: BubblewrapSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "SECRET")
    client = bubblewrap.open_blocking(PATIENT)
    try:
        inside = descendants(client.pid)
        assert inside
        for pid in (client.pid, *inside):
            assert b"SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()
        code = (
            "import os\nfor p in filter(str.isdigit, os.listdir('/proc')):\n"
            "    try: print('LEAK' if b'SECRET' in open(f'/proc/{p}/environ', 'rb').read() else 'clean')\n"
            "    except OSError: print('denied')"
        )
        outcome = client.run(code)
        assert outcome.status is Status.OK
        assert b"LEAK" not in outcome.stdout
    finally:
        client.close()


@pytest.mark.parametrize("without", [[], ["namespaces"], ["landlock", "seccomp"]], ids="+".join)
def test_the_host_is_out_of_sight_whatever_the_slot_adds(
    bubblewrap: BubblewrapSandbox, tmp_path: Path, without: list[str]
) -> None:
    canary = tmp_path / "canary"
    canary.write_text("canary")
    canary.chmod(0o644)
    client = BubblewrapSandbox(without).open_blocking(PATIENT)
    try:
        assert client.report.has("namespaces"), client.report.describe()
        by_bubblewrap = [layer.name for layer in client.report.layers if layer.reason == "by bubblewrap"]
        assert ("namespaces" in by_bubblewrap) == ("namespaces" in without)
        places = [str(canary), f"/proc/1/root{canary}", f"/.host{canary}", f"/oldroot{canary}", "/etc/passwd", "/home"]
        seen = client.run(f"import os\nprint([p for p in {places!r} if os.path.exists(p)])")
        assert seen.stdout == b"[]\n", seen
        mine = os.getpid()
        kill = client.run(f"import os\nos.kill({mine}, 0)")
        assert (kill.status, kill.blame) == (Status.EXCEPTION, Blame.MODEL)
        network = client.run("import socket\nsocket.create_connection(('1.1.1.1', 53), 1)")
        assert (network.status, network.blame) == (Status.EXCEPTION, Blame.MODEL)
        for path in ("/usr/x", "/x", os.path.realpath(os.__file__)):
            assert client.run(f"open({path!r}, 'a').write('x')").status is Status.EXCEPTION
    finally:
        client.close()


def test_a_session_outlives_the_thread_that_opened_it(bubblewrap: BubblewrapSandbox) -> None:
    opened: list[SlotClient] = []
    thread = threading.Thread(target=lambda: opened.append(bubblewrap.open_blocking(PATIENT)))
    thread.start()
    thread.join()
    try:
        assert opened[0].run("print(1)").stdout == b"1\n"
    finally:
        opened[0].close()


def test_closing_leaves_no_process(
    bubblewrap: BubblewrapSandbox, marking: str, survivors: Callable[[float], list[int]]
) -> None:
    client = bubblewrap.open_blocking(PATIENT)
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nprint('done')"
    assert client.run(marking + daemon).stdout == b"done\n"
    assert survivors(5.0) == []
    everything = [client.pid, *descendants(client.pid)]
    client.close()
    assert [pid for pid in everything if Path(f"/proc/{pid}").exists()] == []


@pytest.mark.parametrize("victim", ["trainer", "guard"])
def test_everything_dies_with_the_trainer_and_with_the_guard(
    bubblewrap: BubblewrapSandbox, marker: str, marking: str, survivors: Callable[[float], list[int]], victim: str
) -> None:
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, marking], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "open\n"
        pids = descendants(trainer.pid)
        until = time.monotonic() + 30
        while not living(marker) and time.monotonic() < until:
            time.sleep(0.05)
        assert living(marker), "the program never began"
        guard = next(pid for pid in pids if b"guard" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(trainer.pid if victim == "trainer" else guard, signal.SIGKILL)
        assert survivors(20.0) == []
    finally:
        os.killpg(trainer.pid, signal.SIGKILL)
        trainer.wait()


def test_an_ordinary_user_gets_the_same(
    bubblewrap: BubblewrapSandbox, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if os.geteuid() != 0:
        pytest.skip("these tests run as an ordinary user already, so all the others show it")
    python = reachable_interpreter()
    if python is None:
        pytest.skip("no interpreter of at least Python 3.11 that an ordinary user can reach")
    code = (
        "import os, sys\nsys.path.insert(0, sys.argv[1])\n"
        "from accredit.sandboxes.bwrap import BubblewrapSandbox\n"
        "client = BubblewrapSandbox().open_blocking()\n"
        "print(client.report.level.name, client.run('print(6 * 7)').stdout, client.report.describe())\n"
        "client.close()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = Path(folder) / "accredit" / "sandboxes"
        shutil.copytree(Path(accredit.sandboxes.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        done = subprocess.run(
            [python, "-c", code, folder],
            capture_output=True,
            text=True,
            timeout=120,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
        )
    assert done.stdout.startswith("L3 b'42\\n' bubblewrap L3"), done
    assert "uid_drop NO" in done.stdout


def reachable_interpreter() -> str | None:
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = subprocess.run([path, "-I", "-c", check], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
        except OSError:
            continue
        if done.returncode == 0:
            return path
    return None
