"""The subprocess backend: as weak as it says, and with the verdicts of all the others."""

from collections.abc import Callable, Iterator

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Level, Limits, Status
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.plain import SubprocessSandbox


@pytest.fixture(scope="module")
def plain(sandbox: EmbeddedSandbox) -> Iterator[SlotClient]:
    client = SubprocessSandbox().open_blocking(Limits(wall_s=60.0))
    yield client
    client.close()


def test_it_says_how_weak_it_is(plain: SlotClient) -> None:
    assert plain.report.level is Level.L1
    assert [layer.name for layer in plain.report.layers if layer.on] == ["rlimits"]
    assert plain.report.isolation_id.startswith("subprocess-L1-")


@pytest.mark.parametrize(
    ("code", "status", "limits"),
    [
        ("print(6 * 7)", Status.OK, Limits(wall_s=60.0)),
        ("{}['k']", Status.EXCEPTION, Limits(wall_s=60.0)),
        ("x = (", Status.SYNTAX_ERROR, Limits(wall_s=60.0)),
        ("while True: pass", Status.TIMEOUT_WALL, Limits(wall_s=1.0)),
        ("x = []\nwhile True: x.append(bytearray(10**6))", Status.EXCEPTION, Limits(wall_s=60.0, memory_mb=64)),
        ("while True: print('A' * 10000)", Status.OUTPUT_LIMIT, Limits(wall_s=60.0)),
    ],
)
def test_limits_and_verdicts_hold(plain: SlotClient, code: str, status: Status, limits: Limits) -> None:
    outcome = plain.run(code, limits)
    assert (outcome.status, outcome.blame) == (status, Blame.NOBODY if status is Status.OK else Blame.MODEL), outcome


def test_nothing_of_a_run_stays(plain: SlotClient, marking: str, survivors: Callable[[float], list[int]]) -> None:
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nprint('done')"
    assert plain.run(marking + daemon).stdout == b"done\n"
    assert survivors(5.0) == []


def test_the_trainers_environment_does_not_reach_the_program(
    sandbox: EmbeddedSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "SECRET")
    client = SubprocessSandbox().open_blocking()
    try:
        outcome = client.run("import os\nprint('SECRET_TOKEN' in os.environ)")
    finally:
        client.close()
    assert outcome.stdout == b"False\n"
