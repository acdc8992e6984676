"""Programs that want to be found by another run, or to spoil it: the next run, another session, the caller's hands."""

from accredit.sandboxes.verdict import Status

from .program import MEMORY, Program, ends

_OK = ends(Status.OK)
_HIDE = (
    "import builtins, json, os, time\nbuiltins.left = 1; json.left = 1\n"
    "for p in ('/tmp/left', '/dev/shm/left', '/var/tmp/left', '/run/left', '/dev/mqueue/left'):\n"
    "    try: open(p, 'w').write('x')\n    except OSError: pass\n"
)
_SEEK = (
    "import builtins, json, os\n"
    "places = ('/tmp/left', '/dev/shm/left', '/var/tmp/left', '/run/left', '/dev/mqueue/left')\n"
    "print(hasattr(builtins, 'left'), hasattr(json, 'left'), any(os.path.exists(p) for p in places))"
)
_SHADOWS = ("json", "os", "site", "sitecustomize", "usercustomize", "encodings", "threading", "traceback", "accredit")

SESSIONS = (
    Program("leaves things for the next run", _SEEK, _OK, "False False False", before=_HIDE),
    Program("leaves things for another session", _SEEK, _OK, "False False False", before=_HIDE, across=True),
    Program(
        "shares memory across runs",
        "from multiprocessing import shared_memory\n"
        "try: print('LEAK', bytes(shared_memory.SharedMemory('left').buf[:3]))\n"
        "except OSError as e: print('none', e.errno)",
        _OK,
        "none",
        before="from multiprocessing import shared_memory as s\ns.SharedMemory('left', True, 99).buf[:3] = b'abc'",
        across=True,
    ),
    Program(
        "shares memory of the old kind",
        "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\n"
        "for f, a in (('shmget', (77, 4096, 0o1666)), ('semget', (77, 1, 0o1666)), ('msgget', (77, 0o1666))):\n"
        "    print('LEAK' if getattr(c, f)(*a) != -1 else 'denied', f)",
        _OK,
        "denied",
    ),
    Program(
        "writes the verifier's files beforehand",
        "import os\nfiles = ('conftest.py', 'result.json', 'reward.txt', 'test_solution.py', '.pytest_cache')\n"
        "print([p for p in files if os.path.exists(p)], os.listdir('.'))",
        _OK,
        "[] []",
        before="import os\nfor p in ('conftest.py', 'result.json', 'reward.txt', 'test_solution.py'):\n"
        "    open(p, 'w').write('{\"reward\": 1.0}')\nos.mkdir('.pytest_cache')",
        across=True,
        alone=True,
    ),
    Program(
        "hides Python's own modules",
        "print('next')",
        _OK,
        "next",
        before=f"for name in {_SHADOWS!r}:\n    open(name + '.py', 'w').write(\"import sys; sys.exit('LEAK')\")",
        alone=True,
    ),
    Program(
        "locks its folder",
        "print('next')",
        _OK,
        "next",
        before="import os\nopen('x', 'w').close()\nos.chmod('.', 0)",
        alone=True,
    ),
    Program(
        "removes its folder",
        "open('x', 'w').write('1')\nprint('next')",
        _OK,
        "next",
        before="import os, shutil\nfor p in ('.', os.getcwd()):\n    try: os.rmdir(p)\n    except OSError: pass\n"
        "try: os.rename(os.getcwd(), '/tmp/moved')\nexcept OSError: pass",
        alone=True,
    ),
    Program(
        "deep folders",
        "import os\nfor _ in range(1500):\n    os.mkdir('d' * 50)\n    os.chdir('d' * 50)\nprint('deep')",
        _OK,
        "deep",
        alone=True,
    ),
    Program(
        "two runs that look for each other",
        "import glob, os, time\nmine = 'tok-MINE'\n"
        "for d in ('.', '/tmp', '/dev/shm', '/var/tmp'):\n"
        "    try: open(f'{d}/{mine}', 'w').close()\n    except OSError: pass\n"
        "until = time.monotonic() + 1.5\nwhile time.monotonic() < until:\n"
        "    for d in ('.', '/tmp', '/dev/shm', '/var/tmp', '/proc/*/cwd', '/proc/*/root/tmp'):\n"
        "        for p in glob.glob(f'{d}/tok-*'):\n            if not p.endswith(mine): print('LEAK', p)\n"
        "    time.sleep(0.05)\nprint('alone')",
        _OK,
        "alone",
        together=True,
        alone=True,
    ),
    # The caller's hands
    Program(
        "link to the host",
        "import os\nos.symlink('/etc/shadow', '/tmp/a')\nopen('/tmp/a')",
        ends(Status.EXCEPTION),
    ),
    Program(
        "traps for who reads its files",
        "import os\nos.symlink('CANARY', 'link')\nos.symlink('/', 'root')\nos.symlink('/proc/self/environ', 'env')\n"
        "os.mkfifo('pipe')\nos.mkdir('folder')\nos.symlink('loop', 'loop')\nos.symlink('/dev/zero', 'zero')\n"
        "try: open('sparse', 'wb').truncate(1 << 23)\nexcept OSError: pass\nprint('made')",
        _OK,
        "made",
        traps=("link", "rootCANARY", "env", "pipe", "folder", "loop", "zero", "sparse", "../..CANARY", "CANARY"),
        alone=True,
    ),
    # Commands
    Program(
        "a shell's fork bomb",
        "",
        ends(Status.TIMEOUT_WALL, Status.EXIT, Status.LIMIT_HIT, Status.SIGNAL) | MEMORY,
        argv=("sh", "-c", "b() { b | b & b; }; b", "NAP"),
    ),
    Program("a command's flood", "", ends(Status.OUTPUT_LIMIT), argv=("yes",)),
    Program("a command leaves a daemon", "", _OK, "done", argv=("sh", "-c", "setsid sleep NAP & echo done")),
    Program("a command that is not there", "", ends(Status.EXIT), argv=("/nowhere/at all",)),
    Program(
        "a command kills all it can", "", ends(Status.SIGNAL, Status.EXIT, Status.OK), argv=("sh", "-c", "kill -9 -1")
    ),
    # Cells
    Program("a cell loops", "while True: pass", ends(Status.TIMEOUT_WALL), cell=True),
    Program("a cell dies", "import os\nos.kill(os.getpid(), 9)", ends(Status.SIGNAL), cell=True),
    Program("a cell leaves with 0", "import os\nos._exit(0)", ends(Status.NO_RESULT), cell=True),
    Program("a cell uses too much memory", "x = []\nwhile True: x.append(bytearray(10**6))", MEMORY, cell=True),
    Program("a cell floods", "while True: print('A' * 10000)", ends(Status.OUTPUT_LIMIT), cell=True),
    Program(
        "a cell kills every number",
        "import os\nfor pid in range(1, 5000):\n    if pid == os.getpid(): continue\n    for s in (19, 9):\n"
        "        try: os.kill(pid, s)\n        except OSError: pass",
        ends(Status.OK, Status.NO_RESULT, Status.SIGNAL),
        cell=True,
        alone=True,
    ),
    Program("a cell stops itself", "import os\nos.kill(os.getpid(), 19)", ends(Status.TIMEOUT_WALL), cell=True),
    Program(
        "a cell leaves orphans that fork while it ends",
        "import os\nfor _ in range(8):\n    if os.fork() == 0:\n        while True:\n            try:\n"
        "                if os.fork(): os._exit(0)\n                os.setsid()\n            except OSError: pass\n"
        "print('done')",
        _OK,
        "done",
        cell=True,
        alone=True,
    ),
    Program(
        "a cell fills the inodes",
        "import os\nos.chdir(os.environ['TMPDIR'])\ntry:\n    for i in range(10**6): open(f'i{i}', 'w').close()\n"
        "except OSError as e: print('stopped', e.errno)",
        _OK,
        "stopped 28",
        cell=True,
        alone=True,
    ),
    Program(
        "a cell leaves a daemon",
        "import subprocess\nsubprocess.Popen(['sleep', 'NAP'], start_new_session=True)\nprint('done')",
        _OK,
        "done",
        cell=True,
    ),
    Program(
        "a cell says it is another process",
        "import os, struct\nfor fd in range(3, 64):\n    for m in (struct.pack('<cI', b'S', 1), b'S', b''):\n"
        "        try: os.write(fd, m)\n        except OSError: pass\nos._exit(0)",
        ends(Status.NO_RESULT),
        cell=True,
        loses_names=True,
        alone=True,
    ),
    Program(
        "a cell's fork bomb",
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        ends(Status.TIMEOUT_WALL, Status.OUT_OF_MEMORY),
        ends_with={"own_kernel": ends(Status.LIMIT_HIT)},
        cell=True,
    ),
)
"""Programs that are after other runs."""
