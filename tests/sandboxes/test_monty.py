"""The Monty backend: verdicts of an interpreter of its own, its limits, and what it cannot do."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator

import pytest

from accredit.sandboxes import Blame, Level, Limits, SandboxError, Status
from accredit.sandboxes.monty import MontyClient, MontySandbox

LIMITS = Limits(wall_s=60.0, cpu_s=60.0, memory_mb=32, output_bytes=50_000)
QUICK = Limits(wall_s=1.0, memory_mb=32)
NO_PARSE = "The monty syntax parser does not yet support yield expressions"


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    try:
        MontySandbox().open_blocking().close()
    except SandboxError as error:
        if os.environ.get("REQUIRE_MONTY") == "1":
            raise
        pytest.skip(f"no Monty on this machine: {error}")


@pytest.fixture
def monty() -> Iterator[MontyClient]:
    client = MontySandbox().open_blocking(LIMITS)
    yield client
    client.close()


def test_it_is_of_the_lowest_level_because_nothing_of_the_kernel_holds(monty: MontyClient) -> None:
    assert monty.report.level is Level.L1
    assert [layer.name for layer in monty.report.layers if layer.on] == ["interpreter"]


@pytest.mark.parametrize(
    ("code", "status", "place"),
    [
        ("print(6 * 7)", Status.OK, None),
        ("lambda: 1", Status.OK, None),
        ("d = {}\né = 'é'; d['k']", Status.EXCEPTION, "d['k']"),
        ("def f(x):\n    return 1 / x\n\nf(0)", Status.EXCEPTION, "1 / x"),
        ("open('/etc/passwd')", Status.EXCEPTION, "open('/etc/passwd')"),
        ("import numpy", Status.EXCEPTION, "import numpy"),
        ("print(undefined)", Status.EXCEPTION, "undefined"),
        ("def f(): return f()\nf()", Status.EXCEPTION, "f()"),
        ("x = 1 +", Status.SYNTAX_ERROR, "+"),
    ],
)
def test_programs_end_with_a_verdict_and_a_place(
    monty: MontyClient, code: str, status: Status, place: str | None
) -> None:
    outcome = monty.run(code)
    assert (outcome.status, outcome.blame) == (status, Blame.NOBODY if place is None else Blame.MODEL), outcome
    assert [code[span.start : span.end] for span in outcome.error_spans] == ([] if place is None else [place])
    assert outcome.sandbox_id == monty.sandbox_id


def test_output_is_told_apart_by_its_stream(monty: MontyClient) -> None:
    outcome = monty.run("import sys\nprint('a')\nprint('b', file=sys.stderr)\n1 / 0")
    assert outcome.stdout == b"a\n"
    assert outcome.stderr.startswith(b"b\nTraceback (most recent call last):\n")
    assert outcome.stderr.endswith(b"ZeroDivisionError: division by zero\n")
    assert outcome.exit_code == 1


@pytest.mark.parametrize(
    "code",
    [
        "class A:\n    pass\nclass B(A):\n    pass",
        "def f():\n    yield 1",
        "import socket",
        "bytearray(3)",
        "import sys\nsys.exit(3)",
    ],
)
def test_what_the_interpreter_lacks_is_nobodys_fault(monty: MontyClient, code: str) -> None:
    outcome = monty.run(code)
    assert (outcome.status, outcome.blame) == (Status.UNSUPPORTED, Blame.NOBODY), outcome
    assert outcome.evidence.detail
    assert outcome.error_spans == ()


@pytest.mark.parametrize(
    "code",
    [
        f"raise NotImplementedError({NO_PARSE!r})",
        "raise NameError(\"name 'bytearray' is not defined\")",
        "kind = ImportError\ndef f():\n    raise ModuleNotFoundError(\"No module named 'socket'\")\nf()",
        "exec('raise NameError(\"name \\'bytearray\\' is not defined\")')",
        "raise TimeoutError('feed time limit exceeded: 2s > 1s')",
    ],
)
def test_saying_the_words_of_the_interpreter_is_no_way_out(monty: MontyClient, code: str) -> None:
    outcome = monty.run(code)
    assert (outcome.status, outcome.blame) == (Status.EXCEPTION, Blame.MODEL), outcome


@pytest.mark.parametrize(
    ("code", "limits", "status"),
    [
        ("while True: pass", QUICK, Status.TIMEOUT_WALL),
        ("import time\ntime.sleep(500)", QUICK, Status.TIMEOUT_WALL),
        ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", QUICK, Status.TIMEOUT_WALL),
        ("x = []\nwhile True: x.append('a' * 10_000)", LIMITS, Status.OUT_OF_MEMORY),
        ("x = 10 ** 10 ** 9", LIMITS, Status.OUT_OF_MEMORY),
        ("x = 'a' * 10 ** 12", LIMITS, Status.OUT_OF_MEMORY),
        ("while True: print('A' * 1000)", LIMITS, Status.OUTPUT_LIMIT),
        ("print('A' * 100_000)", LIMITS, Status.OUTPUT_LIMIT),
    ],
)
def test_time_memory_and_output_are_bounded_and_the_next_run_works(
    monty: MontyClient, code: str, limits: Limits, status: Status
) -> None:
    outcome = monty.run(code, limits)
    assert (outcome.status, outcome.blame) == (status, Blame.MODEL), outcome
    assert len(outcome.stdout) + len(outcome.stderr) <= limits.output_bytes
    assert outcome.truncated == (status is Status.OUTPUT_LIMIT)
    assert monty.run("print('fine')").stdout == b"fine\n"


def test_nothing_passes_from_run_to_run(monty: MontyClient) -> None:
    assert monty.run("left = 1").ok
    assert monty.run("print(left)").status is Status.EXCEPTION


def test_cells_keep_names_and_a_stopped_cell_is_undone() -> None:
    monty = MontySandbox().open_blocking(QUICK)
    assert monty.run_cell("x, y = 1, [1]\ndef f():\n    return 1 / 0").ok
    assert monty.run_cell("y.append(2)\n1 / 0").status is Status.EXCEPTION
    assert monty.run_cell("y.append(3)\nwhile True: pass").status is Status.TIMEOUT_WALL
    assert monty.run_cell("y.append(3)\nz = ['a' * 10_000_000 for _ in range(9)]").status is Status.OUT_OF_MEMORY
    assert monty.run_cell("print(x, y)").stdout == b"1 [1, 2]\n"
    code = "print(1)\nf()"
    outcome = monty.run_cell(code)
    assert [code[span.start : span.end] for span in outcome.error_spans] == ["f()"]  # not in the earlier cell's source


def test_a_branch_goes_its_own_way(monty: MontyClient) -> None:
    assert monty.run_cell("x = [1]").ok
    branch = monty.branch()
    assert branch.run_cell("x.append(2)\nprint(x)").stdout == b"[1, 2]\n"
    assert monty.run_cell("print(x)").stdout == b"[1]\n"
    monty.close()
    assert branch.run_cell("print(x)").stdout == b"[1, 2]\n"


def test_what_the_backend_cannot_do_is_the_callers_to_know(monty: MontyClient) -> None:
    for ask in (
        lambda: monty.run(["ls"]),
        lambda: monty.run("print(1)", stdin=b"x"),
        lambda: monty.read("a"),
        lambda: monty.write("a", b""),
        lambda: monty.run_cell("1", QUICK),
    ):
        with pytest.raises(SandboxError, match=r"the monty backend .*; the embedded one does"):
            ask()
    monty.close()
    with pytest.raises(SandboxError, match="is closed"):
        monty.run("print(1)")


def test_an_interrupted_run_is_cancelled_and_its_worker_replaced(monty: MontyClient) -> None:
    stopping = threading.Timer(0.5, monty.interrupt)
    stopping.start()
    outcome = monty.run("while True: pass")
    assert (outcome.status, outcome.blame) == (Status.CANCELLED, Blame.NOBODY)
    assert monty.run("print('fine')").stdout == b"fine\n"


def test_for_asyncio_a_cancelled_caller_stops_the_run() -> None:
    async def scene() -> tuple[bytes, float]:
        async with await MontySandbox().open(LIMITS) as session:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.run("while True: pass"), 0.5)
            took = time.monotonic() - began
            return (await session.run("print(1)")).stdout, took

    stdout, took_s = asyncio.run(scene())
    assert stdout == b"1\n"
    assert took_s < LIMITS.wall_s / 2
