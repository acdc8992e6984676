"""Choosing a backend, refusing weaker ones, and how the embedded one behaves with layers missing."""

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Level, Limits, SandboxError, Status, run_python
from accredit.sandboxes.protocol import LAYERS
from accredit.sandboxes.select import (
    ENOUGH,
    FLOOR,
    NAME_VARIABLE,
    WEAKER_VARIABLE,
    choose,
    default_names,
    probe,
    select,
    use,
)

WEAKER = [["seccomp"], ["landlock"], ["cgroup"], ["uid_drop"], ["namespaces"], ["namespaces", "cgroup", "landlock"]]


def test_the_selected_sandbox_reaches_the_floor(sandbox: EmbeddedSandbox) -> None:
    assert probe(sandbox).level >= FLOOR


def test_a_weaker_sandbox_is_refused_with_its_layers_named(sandbox: EmbeddedSandbox) -> None:
    with pytest.raises(SandboxError) as refused:
        choose([EmbeddedSandbox(without=["namespaces"])])
    message = str(refused.value)
    assert "expected a sandbox of level L3 or more" in message
    assert "namespaces NO (left out on request)" in message
    assert "allow_weaker=True" in message


def test_a_weaker_sandbox_is_given_on_request_and_logged_once(
    sandbox: EmbeddedSandbox, caplog: pytest.LogCaptureFixture
) -> None:
    weaker = EmbeddedSandbox(without=["namespaces", "landlock"])
    with caplog.at_level(logging.WARNING):
        first = choose([weaker], allow_weaker=True)
        choose([weaker], allow_weaker=True)
    assert first.sandbox is weaker
    assert first.report.level is Level.L1
    assert len([r for r in caplog.records if "landlock NO (left out on request)" in r.getMessage()]) == 1


def test_the_strongest_candidate_wins(sandbox: EmbeddedSandbox) -> None:
    assert choose([EmbeddedSandbox(without=["namespaces"]), sandbox], allow_weaker=True).sandbox is sandbox


def test_a_backend_is_chosen_by_its_name_and_once(sandbox: EmbeddedSandbox) -> None:
    assert select("embedded") is select("embedded")
    assert select("embedded").name == "embedded"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(SandboxError, match=r"unknown sandbox 'embeded'.*did you mean 'embedded'"):
        select("embeded")


def test_a_named_backend_below_the_floor_has_to_be_accepted(sandbox: EmbeddedSandbox) -> None:
    with pytest.raises(SandboxError, match=r"subprocess L1: namespaces NO .*allow_weaker=True accepts"):
        select("subprocess")
    assert select("subprocess", allow_weaker=True).name == "subprocess"


def test_a_run_says_once_which_backend_it_wants_and_its_processes_agree(
    sandbox: EmbeddedSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAME_VARIABLE, "embedded")
    monkeypatch.setenv(WEAKER_VARIABLE, "0")
    use("subprocess", allow_weaker=True)
    assert select().name == "subprocess"
    outcome = run_python("print(1)")
    assert outcome.isolation_id.startswith("subprocess-L1-")
    code = "from accredit.sandboxes.select import select; print(select().name)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert said.stdout == "subprocess\n", said.stderr
    use()
    assert select().name in default_names()
    with pytest.raises(SandboxError, match="unknown sandbox"):
        use("nothing")


def test_a_wrong_word_for_accepting_weaker_ones_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEAKER_VARIABLE, "maybe")
    with pytest.raises(SandboxError, match="expected ACCREDIT_SANDBOX_ALLOW_WEAKER to be 1 or 0, actually 'maybe'"):
        select()


def test_a_refusal_names_each_backend_tried_and_why(sandbox: EmbeddedSandbox) -> None:
    def missing() -> EmbeddedSandbox:
        raise SandboxError("nowhere: nobody answers")

    with pytest.raises(SandboxError, match=r"nowhere: nobody answers; embedded L[12]: namespaces NO .*below L3"):
        choose([missing, EmbeddedSandbox(without=["namespaces"])])


def test_no_backend_is_tried_after_one_that_is_strong_enough(sandbox: EmbeddedSandbox) -> None:
    if probe(sandbox).level < ENOUGH:
        pytest.skip(f"the strongest here is {probe(sandbox).describe()}")
    tried: list[str] = []

    def other() -> EmbeddedSandbox:
        tried.append("other")
        return EmbeddedSandbox()

    assert choose([sandbox, other]).sandbox is sandbox
    assert tried == []


def test_no_candidate_is_refused() -> None:
    with pytest.raises(SandboxError, match="nothing that was tried works here"):
        choose([], allow_weaker=True)


def test_without_namespaces_a_closed_slot_leaves_no_process_and_no_folder(sandbox: EmbeddedSandbox) -> None:
    def folders() -> set[str]:
        return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("accredit-")}

    before, weaker = folders(), EmbeddedSandbox(without=["namespaces"])
    pids: list[int] = []
    for runs in (0, 1, 2):
        client = weaker.open_blocking()
        pids.append(client.pid)
        for _ in range(runs):
            assert client.run("print(1)").ok
        client.close()
    assert folders() <= before
    assert sessions() & set(pids) == set()


def sessions() -> set[int]:
    """Return the session ids of all processes: a slot's is the process id of its outermost one."""
    found: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:
            found.add(int(file.read().rpartition(")")[2].split()[3]))
    return found


@pytest.mark.parametrize("without", WEAKER, ids="+".join)
def test_missing_layers_are_reported_and_the_rest_still_holds(
    sandbox: EmbeddedSandbox,
    without: list[str],
    marker: str,
    marking: str,
    survivors: Callable[[float], list[int]],
) -> None:
    client = EmbeddedSandbox(without).open_blocking()
    try:
        assert not any(client.report.has(name) for name in without)
        for layer in client.report.layers:
            assert layer.on != bool(layer.reason), layer
        assert {layer.name for layer in client.report.layers} == set(LAYERS)
        assert client.run("print(1)").stdout == b"1\n"
        hog = client.run("x = []\nwhile True: x.append(bytearray(10**6))", Limits(memory_mb=64, wall_s=20.0))
        assert hog.status in (Status.OUT_OF_MEMORY, Status.EXCEPTION), hog
        daemon = client.run(
            marking + "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nprint('done')"
        )
        assert (daemon.status, daemon.stdout) == (Status.OK, b"done\n"), daemon
        assert survivors(5.0) == []
        network = client.run("import socket\nsocket.create_connection(('1.1.1.1', 53), 1)")
        assert (network.status, network.blame) == (Status.EXCEPTION, Blame.MODEL)
        loop = client.run(marking + "while True: pass", Limits(wall_s=1.0))
        assert loop.status is Status.TIMEOUT_WALL
        assert survivors(5.0) == []
        files = client.run("import os\nopen('x', 'w').write('1')\nprint(os.listdir('.'))")
        assert files.stdout == b"['x']\n", files
        assert client.run("import os\nprint(os.listdir('.'))").stdout == b"['x']\n"
    finally:
        client.close()
