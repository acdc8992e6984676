"""What a session keeps between its runs, commands and their input, and files that were left as traps."""

import errno
import os
import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Entry, Limits, SandboxError, SandboxFault, Status
from accredit.sandboxes.embedded import folder
from accredit.sandboxes.embedded.client import SlotClient

LIMITS = Limits(wall_s=60.0, disk_mb=16)


@pytest.fixture(scope="module", params=["strongest", "without namespaces"])
def session(request: pytest.FixtureRequest, sandbox: EmbeddedSandbox) -> Iterator[SlotClient]:
    without = ["namespaces"] if request.param == "without namespaces" else []
    client = EmbeddedSandbox(without=without).open_blocking(LIMITS)
    yield client
    client.close()


@pytest.fixture
def fresh(sandbox: EmbeddedSandbox) -> Iterator[SlotClient]:
    client = sandbox.open_blocking(LIMITS)
    yield client
    client.close()


def test_files_stay_from_run_to_run_and_scratch_does_not(session: SlotClient) -> None:
    scratch = "import os\np = os.environ['TMPDIR'] + '/gone'\n"
    assert session.run(scratch + "open('kept', 'w').write('1'); open(p, 'w').close()").ok
    assert session.run(scratch + "print(open('kept').read(), os.path.exists(p))").stdout == b"1 False\n"
    assert session.run(["cat", "kept"]).stdout == b"1"


def test_a_module_in_the_folder_can_be_imported(session: SlotClient) -> None:
    session.write("shapes/square.py", b"def area(a): return a * a\n")
    assert session.run("from shapes.square import area; print(area(3))").stdout == b"9\n"


def test_what_was_written_is_read_by_programs_and_the_reverse(session: SlotClient) -> None:
    session.write("a/b/c.bin", bytes(range(256)))
    assert session.run("d = open('a/b/c.bin', 'rb').read(); open('a/b/d.bin', 'wb').write(d[::-1])").ok
    assert session.read("a/b/d.bin") == bytes(range(256))[::-1]
    session.write("a/b/c.bin", b"new")
    assert session.read("./a//b/c.bin") == b"new"
    kinds = {entry.path: entry for entry in session.list("a")}
    assert kinds["a/b/c.bin"] == Entry("a/b/c.bin", "file", 3)
    assert kinds["a/b"].kind == "folder"
    assert list(kinds) == sorted(kinds)


def test_the_program_owns_what_was_written(session: SlotClient) -> None:
    session.write("own/file", b"1")
    code = "open('own/file', 'a').write('2'); import os; os.rename('own', 'owned'); os.remove('owned/file')"
    assert session.run(code).ok


@pytest.mark.parametrize(
    ("argv", "exit_code", "stdout"),
    [
        (["sh", "-c", "ls /usr >/dev/null && echo b a | tr ' ' '\\n' | sort | sed s/a/A/ | grep -c A"], 0, b"1\n"),
        (["bash", "-c", "set -o pipefail; find . -name nothing; cat <(echo sub); echo e >/dev/stderr"], 0, b"sub\n"),
        (["python3", "-c", "print(5)"], 0, b"5\n"),
        (["sh", "-c", "yes | head -1"], 0, b"y\n"),
        (["sh", "-c", "exit 3"], 3, b""),
        (["grep", "-q", "x", "/dev/null"], 1, b""),
        (["no-such-command"], 127, b""),
        (["./no/such"], 127, b""),
        (["/usr"], 126, b""),
        (["printf", "%s|", "a b", "", "ä"], 0, "a b||ä|".encode()),
    ],
)
def test_a_command_ends_as_in_a_shell(session: SlotClient, argv: list[str], exit_code: int, stdout: bytes) -> None:
    outcome = session.run(argv, LIMITS)
    assert (outcome.exit_code, outcome.stdout) == (exit_code, stdout), outcome
    expected = (Status.OK, Blame.NOBODY) if exit_code == 0 else (Status.EXIT, Blame.MODEL)
    assert (outcome.status, outcome.blame) == expected
    assert outcome.evidence.command
    if exit_code > 125:
        assert argv[0].encode() in outcome.stderr


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("kill -9 $$", Status.SIGNAL),
        ("trap '' INT TERM HUP; while :; do sleep 1; done", Status.TIMEOUT_WALL),
        ("sleep 1000 & sleep 1000", Status.TIMEOUT_WALL),
        ("yes", Status.OUTPUT_LIMIT),
        ("sleep 1000 & exit 0", Status.OK),
    ],
)
def test_a_command_is_bounded_like_a_program(session: SlotClient, script: str, status: Status) -> None:
    wall_s = 1.0 if status is Status.TIMEOUT_WALL else 60.0
    assert session.run(["sh", "-c", script], Limits(wall_s=wall_s)).status is status
    assert session.run(["true"]).ok


def test_a_command_sees_three_descriptors_and_a_clean_environment(
    session: SlotClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "SECRET")
    probe = (
        "import os\nfound = []\nfor fd in range(256):\n    try: os.fstat(fd); found.append(fd)\n"
        "    except OSError: pass\nprint(found, sorted(os.environ))"
    )
    outcome = session.run(["python3", "-c", probe])
    names = ["HOME", "LANG", "PATH", "PWD", "TMPDIR"]
    assert outcome.stdout.decode().strip() == f"[0, 1, 2] {names}", outcome


def test_a_command_has_no_network_and_sees_no_host(fresh: SlotClient) -> None:
    script = "cat /etc/shadow; ls /home /var /sys; (echo > /dev/tcp/127.0.0.1/22) && echo LEAK; touch /usr/x /x; exit 7"
    outcome = fresh.run(["bash", "-c", script])
    assert (outcome.exit_code, outcome.stdout) == (7, b""), outcome


@pytest.mark.parametrize("argv", [[], [""]])
def test_what_is_no_command_is_the_callers_error(session: SlotClient, argv: list[str]) -> None:
    with pytest.raises(SandboxError, match="expected a command"):
        session.run(argv)


def test_standard_input_reaches_programs_and_commands_whole(session: SlotClient) -> None:
    data = random.Random(1).randbytes(3 << 20)
    count = "import sys, hashlib\nd = sys.stdin.buffer.read()\nprint(len(d), hashlib.sha256(d).hexdigest()[:8])"
    assert session.run(count, stdin=data).stdout == session.run(["python3", "-c", count], stdin=data).stdout
    assert session.run(["wc", "-c"], stdin=data).stdout.strip() == str(len(data)).encode()
    assert session.run(["head", "-c", "1"], stdin=data).ok  # not read to its end: nobody waits for that
    assert session.run(["cat"]).stdout == b""
    with pytest.raises(SandboxError, match="bytes of standard input"):
        session.run(["cat"], stdin=bytes((16 << 20) + 1))


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a\0b", "x" * 5000])
def test_a_path_that_leaves_the_folder_is_refused(session: SlotClient, path: str) -> None:
    for ask in (session.read, session.list, lambda p: session.write(p, b"")):
        with pytest.raises(SandboxError, match="expected a path"):
            ask(path)


TRAPS = {
    "link to a file": ("os.symlink('/etc/passwd', 'trap')", "link"),
    "link to a folder": ("os.symlink('/etc', 'trap')", "link"),
    "link to itself": ("os.symlink('trap', 'trap')", "link"),
    "pipe": ("os.mkfifo('trap')", "a other|no file"),
    "folder": ("os.mkdir('trap')", "a folder"),
    "too long": ("open('trap', 'wb').truncate(8 << 20)", "at most 1048576 bytes"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_not_read(session: SlotClient, trap: str) -> None:
    make, why = TRAPS[trap]
    clear = "import os, shutil\nif os.path.lexists('trap'):\n    shutil.rmtree('trap') if os.path.isdir('trap') "
    clear += "and not os.path.islink('trap') else os.remove('trap')\n"
    assert session.run(clear + make).ok
    with pytest.raises(SandboxError, match=why):
        session.read("trap")
    assert [entry.path for entry in session.list() if entry.path.startswith("trap")] == ["trap"]
    with pytest.raises(SandboxError, match="expected to reach 'trap/x'"):
        session.read("trap/x")
    assert session.run(clear).ok


def test_a_folder_replaced_by_a_link_is_neither_read_nor_written_through(session: SlotClient) -> None:
    session.write("inside/file", b"1")
    swap = "import os, shutil\nshutil.rmtree('inside'); os.symlink('/tmp', 'inside')"
    assert session.run(swap).ok
    for ask in (lambda: session.read("inside/file"), lambda: session.write("inside/file", b"2"),
                lambda: session.list("inside")):  # fmt: skip
        with pytest.raises(SandboxError, match=r"link|no folder"):
            ask()
    assert not os.path.exists("/tmp/file")
    session.write("inside", b"a file now")
    assert session.read("inside") == b"a file now"


def test_names_that_are_no_text_and_closed_files_are_listed(session: SlotClient) -> None:
    assert session.run("open(b'\\xff\\xfe', 'w').close(); import os; open('shut', 'w').close(); os.chmod('shut', 0)").ok
    paths = {entry.path for entry in session.list()}
    assert {"\udcff\udcfe", "shut"} <= paths
    assert session.read("\udcff\udcfe") == b""
    try:
        assert session.read("shut") == b""  # root may
    except SandboxError as error:
        assert "ermission" in str(error)


def test_a_listing_ends_at_its_cap_and_a_tree_without_bottom_holds_nothing_up(sandbox: EmbeddedSandbox) -> None:
    for without in ([], ["namespaces"]):
        client = EmbeddedSandbox(without=without).open_blocking(LIMITS)
        try:
            deep = "import os\nfor _ in range(10_000):\n    try: os.mkdir('d')\n    except OSError: break\n"
            assert client.run(deep + "    os.chdir('d')").ok
            assert 1000 < len(client.list()) <= folder.MOST_ENTRIES
            with pytest.raises(SandboxError, match="path of at most"):
                client.read("d/" * 5000 + "x")
            assert client.run("print('fine')").ok
            place = client.run("import os; print(os.getcwd())").stdout.decode().strip()
        finally:
            client.close()
        if not client.report.has("namespaces"):
            until = time.monotonic() + 120.0
            while os.path.exists(place) and time.monotonic() < until:
                time.sleep(0.1)
            assert not os.path.exists(place)


def test_many_names_are_listed_up_to_the_cap(fresh: SlotClient) -> None:
    code = "try:\n    for i in range(6000): open(f'f{i:05}', 'w').close()\nexcept OSError: pass"
    assert fresh.run(code).ok
    assert 4000 < len(fresh.list()) <= folder.MOST_ENTRIES


def test_a_full_folder_is_said_to_writers_from_outside_and_inside(fresh: SlotClient) -> None:
    fresh.write("most", bytes(12 << 20))
    with pytest.raises(SandboxError, match="full"):
        fresh.write("more", bytes(8 << 20))
    assert [entry.path for entry in fresh.list()] == ["most"]
    outcome = fresh.run("f = open('rest', 'wb')\nwhile True: f.write(bytes(1 << 20))", LIMITS)
    assert (outcome.status, outcome.blame) == (Status.LIMIT_HIT, Blame.MODEL)
    assert fresh.run(["sh", "-c", "cat most > copy"], LIMITS).status is Status.LIMIT_HIT
    assert fresh.run(["rm", "rest", "most", "copy"]).ok
    assert fresh.run("open('small', 'w').write('x')").ok


def test_without_namespaces_writing_from_outside_is_bounded_by_counting(sandbox: EmbeddedSandbox) -> None:
    client = EmbeddedSandbox(without=["namespaces"]).open_blocking(LIMITS)
    try:
        client.write("most", bytes(12 << 20))
        with pytest.raises(SandboxError, match="hold at most 16 MiB"):
            client.write("more", bytes(8 << 20))
    finally:
        client.close()


def test_the_files_of_a_session_take_no_memory_from_its_runs(fresh: SlotClient) -> None:
    limits = Limits(wall_s=60.0, memory_mb=48, disk_mb=16)
    assert fresh.run("open('big', 'wb').write(bytes(15 << 20))", limits).ok
    assert fresh.run("x = bytearray(20 << 20); print(len(x))", limits).ok


def test_a_branch_without_interpreter_has_its_own_copy_of_the_files(session: SlotClient) -> None:
    assert session.run(["find", ".", "-mindepth", "1", "-delete"]).ok
    session.write("a/data", b"1")
    make = "import os; os.symlink('a/data', 'l'); os.mkfifo('p'); os.mkdir('e'); os.chmod('a/data', 0o755)"
    assert session.run(make).ok
    other = session.branch()
    try:
        assert [(e.path, e.kind) for e in other.list()] == [
            ("a", "folder"), ("a/data", "file"), ("e", "folder"), ("l", "link")
        ]  # fmt: skip
        assert other.run("import os\nprint(open('l').read(), os.access('a/data', os.X_OK))").stdout == b"1 True\n"
        other.write("a/data", b"2")
        assert session.read("a/data") == b"1"
    finally:
        other.close()
    assert session.run(["cat", "a/data"]).stdout == b"1"


def test_each_run_draws_other_random_numbers(session: SlotClient) -> None:
    code = "import random; print(random.random())"
    assert session.run(code).stdout != session.run(code).stdout


def test_the_fallback_without_openat2_follows_no_link_either(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    def refuses(root: int, path: str, flags: int) -> int:
        raise OSError(errno.ENOSYS, "openat2")

    monkeypatch.setattr(folder, "_open_below", [refuses])
    root = str(tmp_path)
    os.makedirs(f"{root}/in/side")
    os.symlink("/etc/passwd", f"{root}/in/link")
    os.symlink("/etc", f"{root}/out")
    os.mkfifo(f"{root}/in/pipe")
    place = folder.Folder(root, 16, bounded=False)
    place.write("in/side/file", b"text")
    assert place.read("in/side/file", 10) == b"text"
    asks: list[Callable[[], object]] = [
        lambda: place.read("in/link", 10),
        lambda: place.read("out/passwd", 10),
        lambda: place.read("in/pipe", 10),
        lambda: place.entries("out"),
        lambda: place.write("out/x", b""),
    ]
    for ask in asks:
        with pytest.raises(folder.Refused):
            ask()
    assert len(place.entries(".")) == 6


def test_a_tree_of_any_depth_can_be_removed(tmp_path: object) -> None:
    root = f"{tmp_path}/tree"
    os.mkdir(root)
    here = os.open(root, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=here)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o000, dir_fd=here))
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.fchmod(here, 0)
    os.close(here)
    folder.remove_tree(root)
    assert not os.path.exists(root)


def test_files_of_a_slot_that_is_gone_are_a_fault_of_the_machine(sandbox: EmbeddedSandbox) -> None:
    client = sandbox.open_blocking()
    fault, until = None, time.monotonic() + 60.0
    try:
        os.kill(client.pid, signal.SIGKILL)
        while fault is None and time.monotonic() < until:  # the supervisor outlives its parent by a moment
            with pytest.raises(SandboxError) as caught:
                client.read("anything")
            fault = caught.value if isinstance(caught.value, SandboxFault) else None
        assert fault is not None and fault.status is Status.LOST
    finally:
        client.close()
