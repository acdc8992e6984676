"""Programs that use too much: time, processes, memory, disk, output; and programs that end in odd ways."""

from accredit.sandboxes.verdict import Status

from .program import MEMORY, Program, ends

_OK, _WALL = ends(Status.OK), ends(Status.TIMEOUT_WALL)

RESOURCES = (
    # Time
    Program("loops", "while True: pass", _WALL),
    Program("sleeps", "import time\ntime.sleep(1e6)", _WALL),
    Program(
        "ignores every signal",
        "import signal, time\n"
        "for s in range(1, 65):\n"
        "    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while True: time.sleep(1)",
        _WALL,
    ),
    Program(
        "swallows every exception",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        _WALL,
    ),
    Program("backtracks in C", "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')", _WALL),
    Program("huge power", "x = 10 ** (10 ** 9)", _WALL | MEMORY),
    Program("stops itself", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", _WALL),
    Program(
        "is stopped by its child",
        "import os\nos.posix_spawn('/bin/sh', ['sh', '-c', 'kill -STOP $PPID; exec sleep NAP'], os.environ)\nos.wait()",
        _WALL,
    ),
    Program(
        "waits for a child that stopped in its own memory",
        "import ctypes, os, platform\nn = 56 if platform.machine() == 'x86_64' else 220\n"
        "if ctypes.CDLL(None).syscall(n, 0x4100 | 17, 0, 0, 0, 0) == 0: os.kill(os.getpid(), 19)",
        _WALL,
    ),
    Program(
        "becomes a copy of its init",
        "import os\nos.execv('/.init', ['init'])",
        _WALL | ends(Status.EXCEPTION),
    ),
    Program(
        "thread never ends",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,)).start()\nprint('main done')",
        _WALL,
    ),
    Program("never leaves its exit functions", "import atexit, time\natexit.register(time.sleep, 1e6)", _WALL),
    Program(
        "burns its processor time deaf to the warning",
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        ends(Status.TIMEOUT_CPU, Status.TIMEOUT_WALL),
        wall_s=2.0,
    ),
    # Processes
    Program(
        "fork bomb",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        ends(Status.TIMEOUT_WALL, Status.OUT_OF_MEMORY),
        ends_with={"own_kernel": ends(Status.LIMIT_HIT)},
    ),
    Program(
        "forks until refused",
        "import os, time\nn = 0\ntry:\n    for _ in range(10_000):\n        if os.fork() == 0: time.sleep(1000)\n"
        "        n += 1\nexcept OSError as e: print('refused', e.errno, n < 64)",
        _OK,
        "refused 11 True",
        ends_with={"own_kernel": ends(Status.LIMIT_HIT)},
    ),
    Program(
        "forks and dies of it",
        "import os, time\nfor _ in range(10_000):\n    if os.fork() == 0: time.sleep(1000)",
        ends(Status.LIMIT_HIT, Status.EXCEPTION),
    ),
    Program(
        "thread bomb",
        "import threading, time\nn = 0\ntry:\n    while n < 5000:\n"
        "        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start(); n += 1\n"
        "except BaseException as e: print('bounded', n < 5000)",
        ends(Status.OK, Status.OUT_OF_MEMORY),
        "bounded True",
        ends_with={"own_kernel": ends(Status.LIMIT_HIT)},
    ),
    Program(
        "leaves a daemon",
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(1000)\n"
        "    os._exit(0)\nprint('parent done')",
        _OK,
        "parent done",
    ),
    Program("child sleeps", "import subprocess\nsubprocess.run(['sleep', 'NAP'])", _WALL),
    Program(
        "leaves a daemon of another program",
        "import subprocess\nsubprocess.Popen(['sleep', 'NAP'], start_new_session=True)\nprint('parent done')",
        _OK,
        "parent done",
    ),
    Program(
        "leaves orphans that fork while it ends",
        "import os, time\nuntil = time.monotonic() + 0.2\ntry:\n    for _ in range(12):\n        if os.fork() == 0:\n"
        "            while True:\n                try:\n                    if os.fork(): os._exit(0)\n"
        "                    os.setsid()\n                except OSError: pass\nexcept OSError: pass\n"
        "while time.monotonic() < until: pass\nos._exit(7)",
        ends(Status.EXIT, Status.LIMIT_HIT),
    ),
    Program(
        "keeps its orphans to itself",
        "import ctypes, os, time\nfor option in (36, 1): ctypes.CDLL(None).prctl(option, option == 36, 0, 0, 0)\n"
        "if os.fork() == 0:\n    for _ in range(5):\n        if os.fork() == 0: os.setsid(); time.sleep(1000)\n"
        "    os._exit(0)\nos.wait()\nprint('done')",
        _OK,
        "done",
    ),
    Program(
        "kills all it can",
        "import os\nos.kill(-1, 9)\nprint('alone')",
        ends(Status.OK, Status.EXCEPTION),
        ends_with={"container": ends(Status.SIGNAL)},
    ),
    Program(
        "kills every number",
        "import os\nfor pid in range(1, 5000):\n    if pid == os.getpid(): continue\n"
        "    for s in (19, 9):\n        try: os.kill(pid, s)\n        except OSError: pass\nprint('still here')",
        _OK,
        "still here",
    ),
    Program(
        "kills its init",
        "import os, time\nfor s in (2, 9, 15):\n    for pid in {1, os.getppid()} - {0}:\n"
        "        try: os.kill(pid, s)\n        except OSError: pass\ntime.sleep(0.1)\nprint('still here')",
        _OK,
        "still here",
    ),
    Program(
        "sends its init every signal",
        "import os\nfor s in 50 * list(range(1, 65)):\n    for pid in {1, os.getppid()} - {0}:\n"
        "        try: os.kill(pid, s)\n        except OSError: pass\n"
        "if os.fork() == 0: os._exit(0)\nprint('still here', os.wait()[1])",
        _OK,
        "still here 0",
    ),
    Program("kills its parent's number", "import os\nos.kill(os.getppid(), 9)", ends(Status.SIGNAL, Status.EXCEPTION)),
    # Memory, disk, output
    Program("one big block", "x = bytearray(8 * 10**9)", MEMORY),
    Program("many blocks", "x = []\nwhile True: x.append(bytearray(10**6))", MEMORY),
    Program(
        "many processes, each below the limit",
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        x = bytearray(40 << 20); time.sleep(1000)\nprint(os.wait()[1])",
        ends(Status.OUT_OF_MEMORY),
        wall_s=5.0,
        ends_without={"cgroup": _WALL},
    ),
    Program(
        "memory in a file without a name",
        "import os\nfd = os.memfd_create('x')\nwhile True: os.write(fd, b'x' * 2**20)",
        MEMORY | ends(Status.LIMIT_HIT),
    ),
    Program(
        "memory that may not be swapped",
        "import ctypes, mmap\nm = mmap.mmap(-1, 1 << 20)\nc = ctypes.CDLL(None, use_errno=True)\n"
        "print('locked' if c.mlockall(1) == 0 else 'refused')",
        _OK,
        "refused",
        ends_with={"own_kernel": _OK},
    ),
    Program(
        "fills the disk",
        "import os\nn = 0\nos.chdir(os.environ['TMPDIR'])\n"
        "try:\n    for k in range(100):\n        with open(f'f{k}', 'wb') as f:\n"
        "            for _ in range(8): n += f.write(b'x' * 2**20)\n"
        "except OSError as e: print('stopped', e.errno, n <= 16 * 2**20)",
        _OK,
        "stopped 28 True",
    ),
    Program(
        "dies of a full disk",
        "import os\nos.chdir(os.environ['TMPDIR'])\n"
        "for k in range(100):\n    with open(f'f{k}', 'wb') as f: f.write(b'x' * 2**20)",
        ends(Status.LIMIT_HIT),
    ),
    Program(
        "fills the inodes",
        "import os\nos.chdir(os.environ['TMPDIR'])\ntry:\n    for i in range(10**6): open(f'i{i}', 'w').close()\n"
        "except OSError as e: print('stopped', e.errno)",
        _OK,
        "stopped 28",
        ends_with={"own_kernel": ends(Status.TIMEOUT_CPU, Status.OUT_OF_MEMORY)},
    ),
    Program(
        "fills its folder",
        "for k in range(100):\n    with open(f'f{k}', 'wb') as f: f.write(b'x' * 2**20)",
        ends(Status.LIMIT_HIT),
        alone=True,
    ),
    Program(
        "sparse file",
        "import os\nwith open(os.environ['TMPDIR'] + '/big', 'wb') as f: f.truncate(10**13)",
        ends(Status.EXCEPTION, Status.SIGNAL, Status.LIMIT_HIT),
    ),
    Program("opens too many files", "x = [open('/dev/null') for _ in range(10**5)]", ends(Status.EXCEPTION)),
    Program("floods output", "while True: print('A' * 10000)", ends(Status.OUTPUT_LIMIT)),
    Program("floods error output", "import sys\nwhile True: sys.stderr.write('E' * 10000)", ends(Status.OUTPUT_LIMIT)),
    Program("one endless line", "import sys\nsys.stdout.write('x' * (50 << 20))", ends(Status.OUTPUT_LIMIT)),
    Program("prints no text", "import sys\nsys.stdout.buffer.write(bytes(range(256)))", _OK),
    Program("prints half a character", "print(chr(0xd800), '\\x1b]0;owned\\x07')", _OK, "\\ud800"),
    Program("asks for input", "print(repr(input('?')))", ends(Status.EXCEPTION)),
    # Source
    Program("null characters in the source", "print('a\0b')", ends(Status.SYNTAX_ERROR, Status.EXCEPTION)),
    Program("half a character in the source", "x = '\ud800'", ends(Status.SYNTAX_ERROR, Status.EXCEPTION)),
    Program("deep brackets", "(" * 100_000, ends(Status.SYNTAX_ERROR, Status.EXCEPTION, Status.SIGNAL)),
    Program(
        "deep expression",
        "-" * 200_000 + "1",
        ends(Status.SYNTAX_ERROR, Status.SIGNAL) | MEMORY,
    ),
    # Ends
    Program("simply works", "print(6 * 7)", _OK, "42"),
    Program("leaves early with 0", "import os\nos._exit(0)\nassert False", ends(Status.NO_RESULT)),
    Program("kills itself like an oom", "import os\nos.kill(os.getpid(), 9)", ends(Status.SIGNAL)),
    Program("exits like an oom", "import os\nos._exit(137)", ends(Status.EXIT)),
    Program("exits like a timeout", "import os\nos._exit(124)", ends(Status.EXIT)),
    Program("exits with a number too large", "import os\nos._exit(256)", ends(Status.NO_RESULT)),
    Program(
        "its first thread leaves",
        "import ctypes, os, platform, threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), os._exit(5))).start()\n"
        "ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)",
        ends(Status.EXIT),
    ),
    Program(
        "a thread becomes another program",
        "import os, threading, time\n"
        "threading.Thread(target=os.execv, args=('/bin/sh', ['sh', '-c', 'sleep 0.2; exit 9'])).start()\n"
        "time.sleep(60)",
        ends(Status.EXIT),
    ),
    Program(
        "takes a name that is no text",
        "import ctypes, time\n"
        "ctypes.CDLL(None).prctl(15, b'\\xff\\xfe) Z 1 \\n', 0, 0, 0)\ntime.sleep(1)\nprint('done')",
        _OK,
        "done",
    ),
    Program("dies like one at its processor limit", "import os\nos.kill(os.getpid(), 24)", ends(Status.SIGNAL)),
    Program("segmentation fault", "import ctypes\nctypes.string_at(0)", ends(Status.SIGNAL)),
    Program("aborts", "import os\nos.abort()", ends(Status.SIGNAL)),
    Program(
        "endless recursion",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
        ends(Status.SIGNAL, Status.TIMEOUT_WALL) | MEMORY,
        wall_s=3.0,
    ),
    Program("closes every descriptor", "import os\nos.closerange(0, 1 << 16)", ends(Status.OK, Status.EXIT)),
)
"""Programs that use too much, and that end in odd ways."""
