"""Choosing a backend, refusing weaker ones, and how the embedded one behaves with layers missing."""

import logging
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Level, Limits, SandboxError, Status
from accredit.sandboxes.protocol import LAYERS
from accredit.sandboxes.select import FLOOR, choose, probe

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


def test_no_candidate_is_refused() -> None:
    with pytest.raises(SandboxError, match="no backend works on this machine"):
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
        with suppress(OSError), open(f"/proc/{name}/stat") as file:
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
        assert client.run("import os\nprint(os.listdir('.'))").stdout == b"[]\n"
    finally:
        client.close()
