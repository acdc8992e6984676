"""Programs that mean harm or merely cause it: each has its verdict, leaks nothing, and the next run works."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from accredit.sandboxes import Blame, EmbeddedSandbox, Limits, Status
from accredit.sandboxes.embedded.client import SlotClient

PATIENCE_S = 60.0  # for programs that end by themselves, on the busiest machine
LIMITS = Limits(wall_s=PATIENCE_S, cpu_s=10.0, memory_mb=128, output_bytes=1 << 18, disk_mb=16, pids=24)
MEMORY = {Status.OUT_OF_MEMORY, Status.EXCEPTION}
TRY = "def attempt(name, call):\n    try: print('LEAK', name, call())\n    except OSError as e: print(name, e.errno)\n"


class Program(NamedTuple):
    """A program and the ends it may come to; `prints` is what its standard output then contains."""

    name: str
    code: str
    ends: set[Status]
    prints: str = ""


PROGRAMS = [
    # Time
    Program("loops", "while True: pass", {Status.TIMEOUT_WALL}),
    Program("sleeps", "import time\ntime.sleep(1e6)", {Status.TIMEOUT_WALL}),
    Program(
        "ignores every signal",
        "import signal, time\n"
        "for s in range(1, 65):\n"
        "    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: time.sleep(1)",
        {Status.TIMEOUT_WALL},
    ),
    Program(
        "swallows every exception",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        {Status.TIMEOUT_WALL},
    ),
    Program("backtracks in C", "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", {Status.TIMEOUT_WALL}),
    Program("huge power", "x = 10 ** (10 ** 9)", {Status.TIMEOUT_WALL, *MEMORY}),
    Program("stops itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", {Status.TIMEOUT_WALL}),
    Program(
        "thread never ends",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,)).start()\nprint('main done')",
        {Status.TIMEOUT_WALL},
        "main done",
    ),
    # Processes
    Program(
        "fork bomb",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        {Status.TIMEOUT_WALL, Status.OUT_OF_MEMORY},
    ),
    Program(
        "forks until refused",
        "import os, time\nn = 0\ntry:\n    for _ in range(10_000):\n        if os.fork() == 0: time.sleep(1000)\n"
        "        n += 1\nexcept OSError as e: print('refused', e.errno, n < 64)",
        {Status.OK},
        "refused 11 True",
    ),
    Program(
        "forks and dies of it",
        "import os, time\nfor _ in range(10_000):\n    if os.fork() == 0: time.sleep(1000)",
        {Status.LIMIT_HIT, Status.EXCEPTION},
    ),
    Program(
        "thread bomb",
        "import threading, time\nn = 0\ntry:\n    while n < 5000:\n"
        "        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start(); n += 1\n"
        "except BaseException as e: print('bounded', n < 5000)",
        {Status.OK, Status.OUT_OF_MEMORY},
    ),
    Program(
        "leaves a daemon",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\n"
        "    os._exit(0)\nprint('parent done')",
        {Status.OK},
        "parent done",
    ),
    Program("child sleeps", "import subprocess\nsubprocess.run(['sleep', '1000'])", {Status.TIMEOUT_WALL}),
    Program("kills all it can", "import os\nos.kill(-1, 9)\nprint('alone')", {Status.OK, Status.EXCEPTION}),
    Program(
        "kills its init",
        "import os, time\nfor s in (2, 9, 15):\n    try: os.kill(1, s)\n    except OSError: pass\n"
        "time.sleep(0.1)\nprint('still here')",
        {Status.OK},
        "still here",
    ),
    # Memory, disk, output
    Program("one big block", "x = bytearray(8 * 10**9)", MEMORY),
    Program("many blocks", "x = []\nwhile True: x.append(bytearray(10**6))", MEMORY),
    Program(
        "many processes, each below the limit",
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        x = bytearray(40 << 20); time.sleep(1000)\nprint(os.wait()[1])",
        {Status.OUT_OF_MEMORY, Status.TIMEOUT_WALL},
    ),
    Program(
        "fills the disk",
        "n = 0\ntry:\n    for k in range(100):\n        with open(f'/tmp/f{k}', 'wb') as f:\n"
        "            for _ in range(8): n += f.write(b'x' * 2**20)\n"
        "except OSError as e: print('stopped', e.errno, n <= 16 * 2**20)",
        {Status.OK},
        "stopped 28 True",
    ),
    Program(
        "dies of a full disk",
        "for k in range(100):\n    with open(f'/tmp/f{k}', 'wb') as f: f.write(b'x' * 2**20)",
        {Status.LIMIT_HIT},
    ),
    Program(
        "fills the inodes",
        "try:\n    for i in range(10**6): open(f'/tmp/i{i}', 'w').close()\n"
        "except OSError as e: print('stopped', e.errno)",
        {Status.OK},
        "stopped 28",
    ),
    Program("sparse file", "open('/tmp/big', 'wb').truncate(10**13)", {Status.EXCEPTION}),
    Program("floods output", "while True: print('A' * 10000)", {Status.OUTPUT_LIMIT}),
    Program("floods error output", "import sys\nwhile True: sys.stderr.write('E' * 10000)", {Status.OUTPUT_LIMIT}),
    Program("one endless line", "import sys\nsys.stdout.write('x' * (50 << 20))", {Status.OUTPUT_LIMIT}),
    Program("prints no text", "import sys\nsys.stdout.buffer.write(bytes(range(256)))", {Status.OK}),
    # Ends
    Program("leaves early with 0", "import os\nos._exit(0)\nassert False", {Status.NO_RESULT}),
    Program("kills itself like an oom", "import os\nos.kill(os.getpid(), 9)", {Status.SIGNAL}),
    Program("exits like an oom", "import os\nos._exit(137)", {Status.EXIT}),
    Program("exits like a timeout", "import os\nos._exit(124)", {Status.EXIT}),
    Program("segmentation fault", "import ctypes\nctypes.string_at(0)", {Status.SIGNAL}),
    Program("aborts", "import os\nos.abort()", {Status.SIGNAL}),
    Program(
        "endless recursion",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
        {Status.SIGNAL, Status.TIMEOUT_WALL, *MEMORY},
    ),
    # Reports
    Program(
        "writes verdicts to every descriptor",
        'import os\nm = b\'{"ended": "end", "fault": "lost"}\\n\'\nfor fd in range(256):\n'
        "    try: os.write(fd, m)\n    except OSError: pass\nos._exit(7)",
        {Status.EXIT},
    ),
    Program(
        "writes setup words to every descriptor, then dies",
        "import os\nfor fd in range(256):\n    try: os.write(fd, b'F no walls')\n    except OSError: pass\n"
        "os.kill(os.getpid(), 9)",
        {Status.SIGNAL},
    ),
    Program(
        "breaks the builtins",
        "import builtins, sys\nsys.stdout.write('poisoned')\nbuiltins.print = builtins.open = None\n"
        "builtins.len = lambda x: 0\nbuiltins.isinstance = None\nsys.modules.clear()",
        {Status.OK},
        "poisoned",
    ),
    Program(
        "leaves things behind, part 1",
        "import builtins, json\nbuiltins.left = 1; json.left = 1\nopen('/tmp/left', 'w').write('x')",
        {Status.OK},
    ),
    Program(
        "leaves things behind, part 2",
        "import builtins, json, os\n"
        "print(hasattr(builtins, 'left'), hasattr(json, 'left'), os.path.exists('/tmp/left'))",
        {Status.OK},
        "False False False",
    ),
    # The host
    Program(
        "environment",
        "import os\nb = open('/proc/self/environ', 'rb').read()\n"
        "print('LEAK' if b'SECRET' in b or 'SECRET_TOKEN' in os.environ else 'clean')",
        {Status.OK, Status.EXCEPTION},
    ),
    Program(
        "descriptors",
        "import os\nprint(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:3])\n"
        "for f in range(3, 1024):\n    try: print('LEAK', f, os.fstat(f))\n    except OSError: pass",
        {Status.OK},
    ),
    Program(
        "reads what is not its own",
        TRY + "for p in ('/etc/shadow', '/proc/1/environ', '/proc/1/mem', '/proc/1/root/etc/passwd', '/root/.bashrc',\n"
        "          '/.host/etc/passwd', '/proc/kcore', '/dev/mem', '/dev/sda', '/dev/vda', '/sys/kernel'):\n"
        "    attempt(p, lambda: open(p, 'rb').read(8))",
        {Status.OK},
    ),
    Program(
        "writes what is not its own",
        TRY + "import os, sys\n"
        "for p in (os.__file__, sys.executable, '/etc/passwd', '/usr/x', '/x', '/proc/self/oom_score_adj',\n"
        "          '/proc/sys/kernel/core_pattern'):\n    attempt(p, lambda: open(p, 'a').write('x'))",
        {Status.OK},
    ),
    Program(
        "network",
        TRY + "import socket\n"
        "attempt('tcp', lambda: socket.create_connection(('127.0.0.1', PORT), 1))\n"
        "attempt('out', lambda: socket.create_connection(('1.1.1.1', 53), 1))\n"
        "attempt('dns', lambda: socket.getaddrinfo('example.org', 443))\n"
        "attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT)))\n"
        "attempt('unix', lambda: socket.socket(socket.AF_UNIX).connect('/run/docker.sock'))\n"
        "attempt('raw', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))",
        {Status.OK},
    ),
    Program(
        "kernel calls",
        "import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\n"
        "for name, args in (('unshare', (0x10000000,)), ('mount', (b'none', b'/tmp', b'tmpfs', 0, None)),\n"
        "                   ('chroot', (b'/tmp',)), ('ptrace', (16, 1, 0, 0)), ('setns', (0, 0)),\n"
        "                   ('umount2', (b'/tmp', 2)), ('personality', (0,)), ('sethostname', (b'x', 1))):\n"
        "    print('LEAK' if getattr(c, name)(*args) != -1 else 'denied', name, ctypes.get_errno())",
        {Status.OK},
    ),
    Program(
        "becomes root", TRY + "import os\nattempt('uid', lambda: os.setuid(0) or open('/etc/x', 'w'))", {Status.OK}
    ),
    Program(
        "raises its limits",
        "import resource as r\ntry:\n    r.setrlimit(r.RLIMIT_AS, (-1, -1)); print('LEAK')\n"
        "except (OSError, ValueError) as e: print(type(e).__name__)",
        {Status.OK},
        "ValueError",
    ),
    Program(
        "changes its init's limits",
        TRY + "import resource as r\nattempt('prlimit', lambda: r.prlimit(1, r.RLIMIT_CPU, (1, 1)))",
        {Status.OK},
    ),
    Program("sets the clock", TRY + "import time\nattempt('set', lambda: time.clock_settime(0, 0))", {Status.OK}),
    Program(
        "types into the terminal",
        TRY + "import fcntl, os, termios\nattempt('push', lambda: fcntl.ioctl(0, termios.TIOCSTI, b'x'))\n"
        "attempt('tty', lambda: os.open('/dev/tty', os.O_RDWR))",
        {Status.OK},
    ),
    Program(
        "searches the frames and the heap above",
        "import gc, sys\nword = 'SEC' + 'RET'\nf, values = sys._getframe().f_back, []\n"
        "while f:\n    values += f.f_locals.values()\n    f = f.f_back\n"
        "gc.unfreeze()\nfor o in gc.get_objects():\n"
        "    values += o.values() if type(o) is dict else o if type(o) in (list, tuple) else ()\n"
        "found = [v for v in values if type(v) in (str, bytes) and word in str(v) and v != word]\n"
        "print('LEAK' if found else 'clean', len(values) > 1000, found[:3])",
        {Status.OK},
        "clean True",
    ),
    Program("link to the host", "import os\nos.symlink('/etc/shadow', '/tmp/a')\nopen('/tmp/a')", {Status.EXCEPTION}),
    Program("fifo", "import os\nos.mkfifo('/tmp/result.json')\nprint('made')", {Status.OK}, "made"),
]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_a_hostile_program_ends_as_expected_and_the_next_run_works(
    slot: SlotClient, program: Program, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "SECRET")
    wall_s = 2.0 if Status.TIMEOUT_WALL in program.ends else PATIENCE_S
    outcome = slot.run(program.code.replace("PORT", str(port)), replace(LIMITS, wall_s=wall_s))
    assert outcome.status in program.ends, outcome
    assert outcome.blame is not Blame.INFRASTRUCTURE
    assert b"LEAK" not in outcome.stdout, outcome.stdout
    assert program.prints.encode() in outcome.stdout, outcome
    after = slot.run("print('fine')")
    assert (after.status, after.stdout) == (Status.OK, b"fine\n"), after


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


def test_a_file_of_the_host_cannot_be_read(slot: SlotClient, tmp_path: Path) -> None:
    path = f"{tmp_path}/canary"
    with open(path, "w") as file:
        file.write("canary")
    os.chmod(path, 0o644)
    places = [path, f"/.host{path}", f"/proc/1/root{path}", f"/proc/self/cwd/..{path}", f"/proc/self/root{path}"]
    code = f"for p in {places!r}:\n    try: print('LEAK', open(p).read())\n    except OSError as e: print(e.errno)"
    outcome = slot.run(code)
    assert outcome.status is Status.OK
    assert b"LEAK" not in outcome.stdout


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
    code = next(p.code for p in PROGRAMS if p.name.startswith("many processes"))
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
