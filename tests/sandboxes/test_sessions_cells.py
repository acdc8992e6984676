"""Cells: names that stay, cells that are undone, branches, and programs that turn on their own interpreter."""

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Limits, Outcome, SandboxError, Status
from accredit.sandboxes.embedded.client import SlotClient

LIMITS = Limits(wall_s=60.0, cpu_s=20.0, memory_mb=128, disk_mb=16)


@pytest.fixture(scope="module", params=["strongest", "without namespaces"])
def session(request: pytest.FixtureRequest, sandbox: EmbeddedSandbox) -> Iterator[SlotClient]:
    without = ["namespaces"] if request.param == "without namespaces" else []
    client = EmbeddedSandbox(without=without).open_blocking(LIMITS)
    yield client
    client.close()


def values(session: SlotClient, *names: str) -> list[str]:
    """Return what the interpreter holds under these names."""
    shown = session.run_cell("; ".join(f"print(repr({name}))" for name in names))
    assert shown.ok, shown
    return shown.stdout.decode().split()


def marked(source: str, outcome: Outcome) -> list[str]:
    return [source[span.start : span.end] for span in outcome.error_spans]


def test_names_stay_and_a_last_value_is_shown_as_in_an_interactive_interpreter(session: SlotClient) -> None:
    assert session.run_cell("import math\ndef area(r): return round(math.pi * r ** 2)\n").stdout == b""
    assert session.run_cell("print('first'); 'ä'\narea(2), 'ü'").stdout == "first\n(13, 'ü')\n".encode()
    assert session.run_cell("None").stdout == b""
    assert session.run_cell("_").stdout == "(13, 'ü')\n".encode()
    assert session.run_cell("x = [area]; del area; x[0](1)").stdout == b"3\n"
    outcome = session.run_cell("class P: pass\nimport pickle; type(pickle.loads(pickle.dumps(P()))) is P, __name__")
    assert outcome.stdout == b"(True, '__main__')\n"
    assert (outcome.status, outcome.blame, outcome.exit_code) == (Status.OK, Blame.NOBODY, 0)


def test_an_exception_keeps_what_was_done_before_it(session: SlotClient) -> None:
    source = "kept = 7\nkept / 0\nkept = 8"
    outcome = session.run_cell(source)
    assert (outcome.status, outcome.blame, outcome.exit_code) == (Status.EXCEPTION, Blame.MODEL, 1)
    assert marked(source, outcome) == ["kept / 0"]
    assert values(session, "kept") == ["7"]


def test_an_error_in_a_function_of_an_earlier_cell_is_marked_in_this_cell(session: SlotClient) -> None:
    session.run_cell("#" * 200 + "\ndef early(x):\n    return 1 / x\ndef show(value): raise KeyError(value)\n")
    source = "y = 2\nz = early(0) + y"
    outcome = session.run_cell(source)
    assert marked(source, outcome) == ["early(0)"]
    assert b"return 1 / x" in outcome.stderr
    assert session.run_cell("import sys; sys.displayhook = show").ok
    nowhere = session.run_cell("0")
    assert session.run_cell("sys.displayhook = sys.__displayhook__").ok
    assert (nowhere.status, nowhere.error_spans) == (Status.EXCEPTION, ())


@pytest.mark.parametrize("source", ["x = = 1", "return 5", "x = '\0'"])
def test_a_syntax_error_changes_nothing(session: SlotClient, source: str) -> None:
    session.run_cell("x = 'before'")
    outcome = session.run_cell(f"x = 'after'\n{source}")
    assert (outcome.status, outcome.blame) == (Status.SYNTAX_ERROR, Blame.MODEL)
    assert values(session, "x") == ["'before'"]


DEATHS = {
    "os._exit(3)": Status.EXIT,
    "os._exit(0)": Status.NO_RESULT,
    "sys.exit(4)": Status.EXIT,
    "os.kill(os.getpid(), 9)": Status.SIGNAL,
    "import ctypes; ctypes.string_at(0)": Status.SIGNAL,
    "while True: pass": Status.TIMEOUT_WALL,
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass": Status.TIMEOUT_WALL,
    "os.fork() or os._exit(0)\nos.kill(os.getpid(), 19)": Status.TIMEOUT_WALL,
    "while True: print('A' * 10000)": Status.OUTPUT_LIMIT,
    "b = []\nwhile True: b.append(bytearray(10**6))": Status.OUT_OF_MEMORY,
}


@pytest.mark.parametrize("deed", DEATHS)
def test_a_cell_that_dies_is_undone(session: SlotClient, deed: str) -> None:
    session.run_cell("x, many = 'before', [0]")
    wall_s = 1.0 if DEATHS[deed] is Status.TIMEOUT_WALL else 60.0
    outcome = session.run_cell(f"import os, sys\nx = 'after'; many.append(1)\n{deed}", Limits(wall_s, 20.0, 128))
    ends = {DEATHS[deed]} if DEATHS[deed] is not Status.OUT_OF_MEMORY else {Status.OUT_OF_MEMORY, Status.EXCEPTION}
    assert outcome.status in ends, outcome
    assert outcome.blame is Blame.MODEL
    if outcome.status is not Status.EXCEPTION:  # without a cgroup memory ends in an exception, which is kept
        assert values(session, "x", "many") == ["'before'", "[0]"]


def test_processor_time_is_counted_for_each_cell_anew(session: SlotClient) -> None:
    session.run_cell("def burn(s):\n    import time\n    until = time.process_time() + s\n"
                     "    while time.process_time() < until: pass\n")  # fmt: skip
    limits = Limits(wall_s=120.0, cpu_s=0.6, memory_mb=128)
    assert [session.run_cell("burn(0.3)", limits).status for _ in range(3)] == [Status.OK] * 3
    over = session.run_cell("burn(50)", limits)
    assert (over.status, over.blame) == (Status.TIMEOUT_CPU, Blame.MODEL)


def test_a_cell_may_not_have_more_than_its_session(session: SlotClient) -> None:
    with pytest.raises(SandboxError, match="expected memory_mb of a cell within the session's 128"):
        session.run_cell("1", Limits(memory_mb=256))


def test_threads_and_children_end_with_their_cell(
    session: SlotClient, marking: str, survivors: Callable[[float], list[int]]
) -> None:
    code = (
        marking + "import os, subprocess, threading, time\nticks = []\n"
        "def tick():\n    while True: ticks.append(1); time.sleep(0.001)\n"
        "threading.Thread(target=tick).start()\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\n"
        "subprocess.Popen(['sleep', '1000'])\nprint('done')"
    )
    outcome = session.run_cell(code)
    assert (outcome.status, outcome.stdout) == (Status.OK, b"done\n"), outcome
    assert len(survivors(3.0)) == 1  # the state itself, which carries the name that the cell gave it
    before = values(session, "len(ticks)")
    assert values(session, "len(ticks)") == before


def test_random_numbers_go_on_from_cell_to_cell(session: SlotClient) -> None:
    session.run_cell("import random; random.seed(5)")
    drawn = [float(session.run_cell("random.random()").stdout) for _ in range(3)]
    expected = random.Random(5)
    assert drawn == [expected.random() for _ in range(3)]


def test_cells_and_runs_share_the_folder_and_nothing_else(session: SlotClient) -> None:
    assert session.run_cell("secret = 1; open('shared', 'w').write('x')").ok
    assert session.run("print(open('shared').read(), 'secret' in globals())").stdout == b"x False\n"
    session.write("module_of_mine.py", b"value = 5\n")
    assert session.run_cell("import module_of_mine; module_of_mine.value").stdout == b"5\n"
    assert session.run("x = []\nwhile True: x.append(bytearray(10**6))", LIMITS).blame is Blame.MODEL
    assert values(session, "secret") == ["1"]  # a run that uses up the memory does not cost the interpreter


def test_branches_part_and_closing_one_leaves_the_other(session: SlotClient) -> None:
    assert session.run_cell("import random; random.seed(3); path = ['root']").ok
    left, right = session.branch(), session.branch()
    try:
        draws = {one.run_cell("random.random()").stdout for one in (session, left, right)}
        assert len(draws) == 1
        left.run_cell("path.append('left')")
        right.run_cell("path.append('right')")
        assert right.run_cell("import os; path.append('lost'); os._exit(1)").status is Status.EXIT
        deeper = left.branch()
        deeper.run_cell("path.append('deeper')")
        assert values(session, "path") == ["['root']"]
        assert values(left, "len(path)", "path[-1]") == ["2", "'left'"]
        assert values(right, "len(path)", "path[-1]") == ["2", "'right'"]
        left.close()
        left.close()
        assert values(deeper, "len(path)", "path[-1]") == ["3", "'deeper'"]
        deeper.close()
        with pytest.raises(SandboxError, match="is closed"):
            left.run_cell("1")
    finally:
        left.close()
        right.close()
    assert values(session, "path") == ["['root']"]
    assert session.run("print(1)").ok


def test_the_last_of_its_sessions_ends_the_slot(sandbox: EmbeddedSandbox) -> None:
    first = sandbox.open_blocking()
    assert isinstance(first, SlotClient)
    first.run_cell("x = 1")
    second = first.branch()
    first.close()
    assert values(second, "x") == ["1"]
    third = second.branch()
    second.close()
    assert values(third, "x") == ["1"]
    third.close()
    assert not os.path.exists(f"/proc/{first.pid}")


def test_a_cell_that_kills_all_it_can_loses_the_names_and_nothing_more(sandbox: EmbeddedSandbox) -> None:
    client = sandbox.open_blocking(LIMITS)
    assert isinstance(client, SlotClient)
    try:
        client.run_cell("x = 1")
        other = client.branch()
        outcome = client.run_cell("import os\nos.kill(-1, 9)\nx = 2")
        assert outcome.blame is not Blame.INFRASTRUCTURE
        lost = other.run_cell("x")
        assert (lost.status, lost.blame) == (Status.SIGNAL, Blame.MODEL)
        assert "names with it" in lost.evidence.detail
        assert other.run_cell("y = 3\ny").stdout == b"3\n"
        other.close()
        client.run_cell("0")
        assert client.run_cell("z = 4\nz").stdout == b"4\n"
        assert client.run("print('fine')").ok
    finally:
        client.close()


SABOTAGE = [
    "import os; os.fork = None",
    "import os; os._exit = lambda code: None",
    "import sys; sys.modules.clear()",
    "import builtins; builtins.len = builtins.open = builtins.print = None",
    "import os; os.closerange(3, 256)",
    "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'S' + bytes(4))\n    except OSError: pass",
    "import os; os.register_at_fork(after_in_child=lambda: os._exit(7))",
    "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "import gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'ReportPage': o.renew(bytes(16))",
]


@pytest.mark.parametrize("deed", SABOTAGE)
def test_sabotage_of_the_interpreter_is_never_the_machines_fault(sandbox: EmbeddedSandbox, deed: str) -> None:
    client = sandbox.open_blocking(LIMITS)
    try:
        limits = Limits(wall_s=2.0, cpu_s=20.0, memory_mb=128)
        for code in ("x = 1", deed, "x", "1 + 1", "1 + 1"):
            outcome = client.run_cell(code, limits)
            assert outcome.blame is not Blame.INFRASTRUCTURE, outcome
        assert client.run("print('fine')").stdout == b"fine\n"
    finally:
        client.close()


def test_a_cancelled_cell_is_undone(sandbox: EmbeddedSandbox) -> None:
    async def scene() -> None:
        async with await sandbox.open() as session:
            await session.run_cell("x = 1")
            running = asyncio.create_task(session.run_cell("x = 2\nwhile True: pass", Limits(wall_s=9.0)))
            await asyncio.sleep(1.0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await session.run_cell("x")).stdout == b"1\n"
            await session.write("a", b"1")
            assert await session.read("a") == b"1"
            async with await session.branch() as other:
                assert (await other.run_cell("x")).stdout == b"1\n"
                assert [entry.path for entry in await other.list()] == ["a"]

    asyncio.run(scene())


def test_killing_the_slot_leaves_no_interpreter(
    session: SlotClient, marking: str, survivors: Callable[[float], list[int]]
) -> None:
    without = [] if session.report.has("namespaces") else ["namespaces"]
    for code in ("0", "while True: pass"):
        client = EmbeddedSandbox(without=without).open_blocking()
        client.run_cell(marking + "0")
        running = threading.Thread(target=client.run_cell, args=(code,))
        running.start()
        running.join(1.0)
        assert survivors(0.0) != []
        os.kill(client.pid, 9)
        running.join(30.0)
        assert survivors(10.0) == []
        client.close()


def test_many_cells_leave_nothing_behind(session: SlotClient) -> None:
    session.run_cell("n, start = 0, None")
    for _ in range(40):
        assert session.run_cell("n += 1").ok
    outcome = session.run_cell("import os\nn, len(os.listdir('/proc/self/fd')) if os.path.exists('/proc/1') else 0")
    assert outcome.stdout.startswith(b"(40, "), outcome
    assert int(outcome.stdout.decode().strip("()\n").split(", ")[1]) < 16


WRITES_ON = """
import ctypes, os, platform, threading, time
def write_on():
    while True:
        with open("alive", "a") as file: file.write("x")
        time.sleep(0.01)
"""
OUTLIVES_ITS_FIRST_THREAD = f"""{WRITES_ON}
if os.fork() == 0:
    threading.Thread(target=write_on).start()
    ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)
time.sleep(0.2)
"""
SET_OFF_BY_A_FORK = f"""{WRITES_ON}
os.register_at_fork(after_in_child=lambda: threading.Thread(target=write_on, daemon=True).start())
"""


@pytest.mark.parametrize("code", [OUTLIVES_ITS_FIRST_THREAD, SET_OFF_BY_A_FORK])
def test_nothing_that_a_cell_has_set_off_runs_beside_what_comes_after(sandbox: EmbeddedSandbox, code: str) -> None:
    client = sandbox.open_blocking(LIMITS)
    try:
        client.write("alive", b"")
        assert client.run_cell(f"x = 42\n{code}").ok
        before = client.read("alive")
        outcome = client.run("import time\ntime.sleep(0.5)\nprint(len(open('alive').read()))")
        assert outcome.stdout == b"%d\n" % len(before), outcome
        assert client.run_cell("x").stdout == b"42\n"
    finally:
        client.close()
