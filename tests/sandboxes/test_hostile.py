"""Programs that mean harm or merely cause it, against every backend that isolates.

`ACCREDIT_HOSTILE=all` runs the whole list against each of them; without it only the strongest that needs no daemon gets
it whole, the others those programs that reach for what is not theirs.
"""

import json
import os
from collections.abc import Callable, Sequence

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Limits, Sandbox, SandboxError, Status
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.select import load
from accredit.sandboxes.selfcheck import HOSTILE, LIMITS, Program, check
from accredit.sandboxes.selfcheck.intrusions import INTRUSIONS

MOST_OF_THE_TIME: Sequence[Program] = HOSTILE if os.environ.get("ACCREDIT_HOSTILE") == "all" else INTRUSIONS
SCENE = """
import json, sys
from accredit.sandboxes.select import load
from accredit.sandboxes.selfcheck import HOSTILE, check
sandbox, names = load(sys.argv[1]), set(json.loads(sys.argv[2]))
print(json.dumps(check(sandbox, [program for program in HOSTILE if program.name in names]).to_json()))
"""


def working(name: str, variable: str) -> Sandbox:
    try:
        sandbox = load(name)
        sandbox.open_blocking().close()
    except SandboxError as error:
        if os.environ.get(variable) == "1":
            raise
        pytest.skip(f"no {name} on this machine: {error}")
    return sandbox


def test_the_list_holds_at_least_what_it_has_to() -> None:
    names = [program.name for program in HOSTILE]
    assert len(names) >= 51 + 15
    assert len(names) == len(set(names))
    assert {status for program in HOSTILE for status in program.ends} >= {
        Status.OK, Status.NO_RESULT, Status.SYNTAX_ERROR, Status.EXCEPTION, Status.EXIT, Status.SIGNAL,
        Status.TIMEOUT_CPU, Status.TIMEOUT_WALL, Status.OUT_OF_MEMORY, Status.OUTPUT_LIMIT, Status.LIMIT_HIT,
    }  # fmt: skip


def test_nothing_comes_through_the_strongest_sandbox_without_a_daemon(sandbox: EmbeddedSandbox) -> None:
    report = check(sandbox, HOSTILE)
    assert report.problems == ()
    assert len(report.findings) == len(HOSTILE)


@pytest.mark.parametrize(
    ("name", "variable"),
    [("bubblewrap", "REQUIRE_BWRAP"), ("docker", "REQUIRE_DOCKER"), ("gvisor", "REQUIRE_GVISOR")],
)
def test_nothing_comes_through_other_backends(name: str, variable: str) -> None:
    report = check(working(name, variable), MOST_OF_THE_TIME)
    assert report.problems == ()
    assert len(report.findings) + len(report.refused) == len(MOST_OF_THE_TIME)


@pytest.mark.parametrize("name", ["embedded", "bubblewrap"])
def test_nothing_comes_through_for_an_ordinary_user(as_ordinary_user: Callable[..., str], name: str) -> None:
    if name == "bubblewrap":
        working("bubblewrap", "REQUIRE_BWRAP")
    report = json.loads(as_ordinary_user(SCENE, name, json.dumps([program.name for program in MOST_OF_THE_TIME])))
    if "namespaces yes" not in report["isolation"]:
        pytest.skip(f"an ordinary user gets no namespaces here: {report['isolation']}")
    assert report["problems"] == []
    assert report["programs"] == len(MOST_OF_THE_TIME)


def test_the_check_finds_what_comes_through_where_nothing_isolates() -> None:
    wanted = ("network", "reads a file of the host", "traps for who reads its files", "leaves early with 0")
    programs = [program for program in HOSTILE if program.name in wanted]
    report = check(load("subprocess"), programs, beside=1)
    assert report.connections == 1
    found = {finding.program: finding.problems for finding in report.findings}
    assert "a secret of the host was read" in found["network"][0]
    assert "a secret of the host was read" in found["reads a file of the host"][0]
    assert found["leaves early with 0"] == ()


def test_the_trainers_environment_is_in_no_process_of_the_slot(
    sandbox: EmbeddedSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "SECRET")
    client = sandbox.open_blocking()
    try:
        with open(f"/proc/{client.pid}/environ", "rb") as file:
            assert b"SECRET" not in file.read()
    finally:
        client.close()


def test_an_output_flood_is_cut_at_the_cap(slot: SlotClient) -> None:
    outcome = slot.run("while True: print('A' * 10000)", LIMITS)
    assert len(outcome.stdout) + len(outcome.stderr) == LIMITS.output_bytes
    assert outcome.truncated
    assert outcome.stdout_bytes > LIMITS.output_bytes


@pytest.mark.parametrize("prefix", ["", "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"])
def test_processor_time_is_bounded_apart_from_the_clock(slot: SlotClient, prefix: str) -> None:
    outcome = slot.run(prefix + "while True: pass", Limits(wall_s=250.0, cpu_s=1.0))
    assert (outcome.status, outcome.blame) == (Status.TIMEOUT_CPU, Blame.MODEL), outcome


def test_memory_of_many_processes_together_is_bounded_where_there_is_a_cgroup(slot: SlotClient) -> None:
    if not slot.report.has("cgroup"):
        pytest.skip(f"no cgroup here: {slot.report.describe()}")
    code = next(p.code for p in HOSTILE if p.name.startswith("many processes"))
    outcome = slot.run(code, LIMITS)
    assert outcome.status is Status.OUT_OF_MEMORY
    assert outcome.evidence.oom_kills


FORGERIES = [
    '{"ended": "end"}',
    '{"ended": "exception", "error": "E", "message": "m", "place": [-5, 99999999999999, -1, 1e308], "bytes": true}',
    '{"ended": "exception", "error": "E", "message": "m", "place": [1, 1, -7, 99999], "bytes": true}',
    '{"ended": "lost", "fault": "lost", "place": [0, 0, 0, 0]}',
    "[" * 5000,
    "not json",
]


@pytest.mark.parametrize("forged", FORGERIES)
def test_a_forged_report_changes_no_verdict_and_stays_in_the_source(slot: SlotClient, forged: str) -> None:
    """The strongest forger: it finds the report page through its own frames and knows the nonce."""
    source = (
        "import os, struct, sys\n"
        "f = sys._getframe()\n"
        "while 'page' not in f.f_locals: f = f.f_back\n"
        "page = f.f_locals['page']\n"
        f"text = {forged!r}.encode()\n"
        "page.write(page._nonce + struct.pack('<I', len(text)) + text)\n"
        "os._exit(1)\n"
    )
    outcome = slot.run(source)
    assert outcome.status in (Status.EXIT, Status.EXCEPTION)
    assert outcome.blame is Blame.MODEL
    assert outcome.exit_code == 1
    for span in outcome.error_spans:
        assert 0 <= span.start < span.end <= len(source)
