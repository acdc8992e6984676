"""The same sandbox for somebody who is not root: through a user namespace, or honestly weaker."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import accredit.sandboxes

NOBODY = 65534
SCENE = r"""
import json, os, sys
sys.path.insert(0, sys.argv[1])
from accredit.sandboxes import EmbeddedSandbox, Limits
client = EmbeddedSandbox().open_blocking()
programs = json.load(sys.stdin)
outcomes = {
    name: client.run(code, Limits(wall_s=2.0 if name == "loop" else 60.0, memory_mb=64))
    for name, code in programs.items()
}
client.write("in/data", b"1")
cells = [client.run_cell(code).stdout.decode() for code in (
    "x = open('in/data').read()\nopen('out', 'w').write(x + '2')\nx", "x += 'lost'; import os; os._exit(1)", "x")]
branch = client.branch()
branch.run_cell("x = 'other'")
session = [
    cells, client.run(["sh", "-c", "cat; cat out"], stdin=b"0").stdout.decode(), client.read("out").decode(),
    [entry.path for entry in client.list()], branch.run_cell("x").stdout.decode(), client.run_cell("x").stdout.decode(),
]
branch.close()
client.close()
print(json.dumps({
    "session": session,
    "uid": os.getuid(), "describe": client.report.describe(), "level": int(client.report.level),
    "on": [layer.name for layer in client.report.layers if layer.on],
    "outcomes": {name: [o.status, o.blame, o.stdout.decode()] for name, o in outcomes.items()},
}))
"""
PROGRAMS = {
    "ok": "print(6 * 7)",
    "exception": "{}['k']",
    "loop": "while True: pass",
    "memory": "x = []\nwhile True: x.append(bytearray(10**6))",
    "network": "import socket\nsocket.create_connection(('127.0.0.1', 22), 1)",
    "secrets": "import os\nprint(sum(os.path.exists(p) for p in ('/etc/shadow', '/root', '/home')))",
    "init": "import os, time\nfor s in (2, 9, 15):\n    try: os.kill(os.getppid() or 1, s)\n    except OSError: pass\n"
    "time.sleep(0.2)\nprint('still here')",
    "forks": "import os, time\nn = 0\ntry:\n    while n < 500:\n        if os.fork() == 0: time.sleep(1000)\n"
    "        n += 1\nexcept OSError: pass\nprint(n < 100)",
    "after": "print('fine')",
}


@pytest.fixture(scope="module")
def scene() -> Iterator[dict[str, Any]]:
    if os.geteuid() != 0:
        pytest.skip("these tests run as an ordinary user already, so all the others show it")
    python = reachable_interpreter()
    if python is None:
        pytest.skip("no interpreter of at least Python 3.11 that an ordinary user can reach")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        copy = Path(folder) / "accredit" / "sandboxes"
        shutil.copytree(Path(accredit.sandboxes.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        done = subprocess.run(
            [python, "-c", SCENE, folder],
            input=json.dumps(PROGRAMS),
            capture_output=True,
            text=True,
            timeout=240,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd="/",
        )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    yield json.loads(done.stdout)


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


def test_layers_that_need_root_are_off_with_a_reason(scene: dict[str, Any]) -> None:
    assert scene["uid"] == NOBODY
    assert "uid_drop NO (" in scene["describe"]
    assert "rlimits" in scene["on"]


@pytest.mark.parametrize(
    ("program", "statuses"),
    [
        ("ok", ["ok"]),
        ("exception", ["exception"]),
        ("loop", ["timeout_wall"]),
        ("memory", ["exception", "out_of_memory"]),
        ("network", ["exception"]),
        ("after", ["ok"]),
    ],
)
def test_programs_end_as_they_do_for_root(scene: dict[str, Any], program: str, statuses: list[str]) -> None:
    assert scene["outcomes"][program][0] in statuses, scene["describe"]


def test_a_session_keeps_files_and_names_and_branches(scene: dict[str, Any]) -> None:
    assert scene["session"] == [
        ["'1'\n", "", "'1'\n"], "012", "12", ["in", "in/data", "out"], "'other'\n", "'1'\n"
    ]  # fmt: skip


def test_namespaces_hide_the_host_and_shield_the_init(scene: dict[str, Any]) -> None:
    if "namespaces" not in scene["on"]:
        pytest.skip(f"an ordinary user gets no namespaces here: {scene['describe']}")
    assert scene["level"] >= 3
    assert scene["outcomes"]["secrets"][2] == "0\n"
    assert scene["outcomes"]["init"][2] == "still here\n"
    assert scene["outcomes"]["forks"] == ["ok", "nobody", "True\n"]
