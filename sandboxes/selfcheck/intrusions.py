"""Programs that reach for the host, the kernel, the slot, or the report of their own end."""

from accredit.sandboxes.verdict import Status

from .program import MEMORY, TRY, Program, ends

_OK = ends(Status.OK)
_FORGED = (
    "import os, struct, sys\nf = sys._getframe()\nwhile 'page' not in f.f_locals: f = f.f_back\n"
    "page = f.f_locals['page']\n"
    'text = b\'{"ended": "end", "fault": "lost", "place": [0, 0, 0, 0]}\'\n'
    "page.write(page._nonce + struct.pack('<I', len(text)) + text)\n"
)

INTRUSIONS = (
    # Reports
    Program(
        "writes verdicts to every descriptor",
        'import os\nm = b\'{"ended": "end", "fault": "lost", "reward": 1.0}\\n\'\nfor fd in range(256):\n'
        "    try: os.write(fd, m)\n    except OSError: pass\nos._exit(7)",
        ends(Status.EXIT),
    ),
    Program(
        "writes setup words to every descriptor, then dies",
        "import os\nfor fd in range(256):\n    try: os.write(fd, b'F no walls')\n    except OSError: pass\n"
        "os.kill(os.getpid(), 9)",
        ends(Status.SIGNAL),
    ),
    Program(
        "writes an end into the pipes of others",
        "import os, stat, struct\nfor p in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for fd in range(64 if int(p) != os.getpid() else 0):\n        try:\n"
        "            pipe = os.open(f'/proc/{p}/fd/{fd}', os.O_WRONLY | os.O_NONBLOCK)\n"
        "            os.write(pipe, struct.pack('<i?', 0, False))\n"
        "            if not stat.S_ISCHR(os.fstat(pipe).st_mode): print('LEAK', p, fd)\n        except OSError: pass\n"
        "os._exit(7)",
        ends(Status.EXIT),
    ),
    Program("forges the page, then fails", _FORGED + "os._exit(1)", ends(Status.EXIT, Status.EXCEPTION)),
    Program("forges the page, then dies", _FORGED + "os.kill(os.getpid(), 9)", ends(Status.SIGNAL)),
    Program(
        "breaks the builtins",
        "import builtins, sys\nsys.stdout.write('poisoned')\nbuiltins.print = builtins.open = None\n"
        "builtins.len = lambda x: 0\nbuiltins.isinstance = None\nsys.modules.clear()",
        _OK,
        "poisoned",
    ),
    Program(
        "starts itself anew with Python's variables",
        "import os, sys\nd = os.environ['TMPDIR']\nopen(d + '/sitecustomize.py', 'w').write(\"print('anew')\")\n"
        "e = dict(os.environ, PYTHONPATH=d, PYTHONSTARTUP=d + '/sitecustomize.py', PYTHONINSPECT='1')\n"
        "os.execve(sys.executable, [sys.executable, '-c', 'print(1)'], e)",
        ends(Status.NO_RESULT),
    ),
    Program(
        "becomes another program out of memory",
        "import os\nfd = os.memfd_create('x', 0)\nos.write(fd, open('/bin/sh', 'rb').read())\n"
        "os.execve(fd, ['sh', '-c', 'exit 3'], {})",
        ends(Status.EXIT, Status.EXCEPTION),
    ),
    Program(
        "takes its interpreter away",
        TRY + "import sys\nattempt('exe', lambda: open('/proc/self/exe', 'r+b'))\n"
        "attempt('file', lambda: open(sys.executable, 'r+b'))",
        _OK,
    ),
    # The host
    Program(
        "environment",
        "import os\nb = open('/proc/self/environ', 'rb').read()\nprint(b, dict(os.environ))",
        ends(Status.OK, Status.EXCEPTION),
    ),
    Program(
        "environment of others",
        "import os\nfor p in filter(str.isdigit, os.listdir('/proc')):\n"
        "    for f in ('environ', 'cmdline'):\n"
        "        try: print(open(f'/proc/{p}/{f}', 'rb').read()[:4000])\n        except OSError: pass",
        _OK,
    ),
    Program(
        "descriptors",
        "import os\nprint(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:3])\n"
        "for f in range(3, 1024):\n    try: print('LEAK', f, os.fstat(f))\n    except OSError: pass",
        _OK,
    ),
    Program(
        "reads a file of the host",
        "for p in ('CANARY', '/.hostCANARY', '/oldrootCANARY', '/proc/1/rootCANARY', '/proc/self/rootCANARY',\n"
        "          '/proc/self/cwd/..CANARY', '/proc/self/cwd/../../..CANARY'):\n"
        "    try: print(open(p).read())\n    except OSError as e: print(e.errno)",
        _OK,
    ),
    Program(
        "reads what is not its own",
        TRY + "import os\nfor p in ('/etc/shadow', '/etc/gshadow', '/proc/1/mem',\n"
        "          '/proc/1/root/etc/shadow', '/root/.bashrc', '/.host/etc/passwd', '/proc/kcore', '/dev/mem',\n"
        "          '/dev/kmsg', '/dev/sda', '/dev/vda', '/proc/%d/mem' % os.getppid()):\n"
        "    attempt(p, lambda: open(p, 'rb').read(8))",
        _OK,
    ),
    Program(
        "writes what is not its own",
        TRY + "import os, sys\n"
        "for p in (os.__file__, sys.executable, '/etc/passwd', '/usr/x', '/x', '/etc/cron.d/x',\n"
        "          '/proc/sys/kernel/core_pattern', '/sys/kernel/uevent_helper', '/sys/fs/cgroup/x/cgroup.procs'):\n"
        "    attempt(p, lambda: open(p, 'a').write('x'))\n"
        "def disk(major, path=os.environ['TMPDIR'] + '/disk'):\n    os.mknod(path, 0o60600, os.makedev(major, 0))\n"
        "    return open(path, 'rb').read(8)\n"
        "for major in (8, 254): attempt('device', lambda: disk(major))",
        _OK,
    ),
    Program(
        "leaves its root by a door held open",
        TRY + "import os\nfd = os.open('/', os.O_RDONLY)\nos.chdir(os.environ['TMPDIR'])\nos.mkdir('c')\n"
        "attempt('chroot', lambda: os.chroot('c'))\n"
        "for _ in range(50): os.chdir('..')\n"
        "attempt('above', lambda: open('.CANARY').read())\n"
        "attempt('beside', lambda: os.open('../../../..CANARY', os.O_RDONLY, dir_fd=fd))",
        _OK,
    ),
    Program(
        "network",
        TRY + "import socket\n"
        "attempt('tcp', lambda: socket.create_connection(('127.0.0.1', PORT), 1).recv(99))\n"
        "attempt('out', lambda: socket.create_connection(('1.1.1.1', 53), 1))\n"
        "attempt('dns', lambda: socket.getaddrinfo('example.org', 443))\n"
        "attempt('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT)))\n"
        "attempt('unix', lambda: socket.socket(socket.AF_UNIX).connect('/run/docker.sock'))\n"
        "attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0/run/systemd/private'))\n"
        "attempt('vsock', lambda: socket.socket(40, socket.SOCK_STREAM).connect((2, 2024)))\n"
        "attempt('netlink', lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))\n"
        "attempt('raw', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))",
        _OK,
    ),
    Program(
        "listens",
        TRY + "import socket\ndef listen():\n    s = socket.socket(); s.bind(('0.0.0.0', 0)); s.listen()\n"
        "attempt('listen', listen)",
        _OK,
    ),
    # The kernel
    Program(
        "kernel calls",
        "import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\n"
        "for name, args in (('unshare', (0x10000000,)), ('mount', (b'none', b'/tmp', b'tmpfs', 0, None)),\n"
        "                   ('chroot', (b'/tmp',)), ('ptrace', (16, 1, 0, 0)), ('ptrace', (16, os.getppid(), 0, 0)),\n"
        "                   ('setns', (0, 0)), ('umount2', (b'/tmp', 2)), ('personality', (0,)),\n"
        "                   ('sethostname', (b'x', 1)), ('swapon', (b'/tmp', 0)), ('acct', (0,))):\n"
        "    print('LEAK' if getattr(c, name)(*args) != -1 else 'denied', name, ctypes.get_errno())",
        _OK,
    ),
    Program(
        "rare kernel calls",
        "import ctypes, platform\nc = ctypes.CDLL(None, use_errno=True)\n"
        "x86 = platform.machine() == 'x86_64'\n"
        "for name, n in (('add_key', 248 if x86 else 217), ('keyctl', 250 if x86 else 219),\n"
        "                ('bpf', 321 if x86 else 280),\n"
        "                ('perf_event_open', 298 if x86 else 241), ('userfaultfd', 323 if x86 else 282),\n"
        "                ('open_by_handle_at', 304 if x86 else 265), ('io_uring_setup', 425), ('fsopen', 430),\n"
        "                ('open_tree', 428), ('pidfd_getfd', 438), ('kexec_load', 246 if x86 else 104)):\n"
        "    print('LEAK' if c.syscall(n, 0, 0, 0, 0, 0) != -1 else 'denied', name, ctypes.get_errno())",
        _OK,
    ),
    Program(
        "new namespaces by clone",
        "import ctypes, os, platform\nc = ctypes.CDLL(None, use_errno=True)\n"
        "n = 56 if platform.machine() == 'x86_64' else 220\n"
        "for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000):\n"
        "    pid = c.syscall(n, flag | 17, 0, 0, 0, 0)\n    if pid == 0: os._exit(0)\n"
        "    print('LEAK' if pid != -1 else 'denied', hex(flag), ctypes.get_errno())",
        _OK,
    ),
    Program(
        "makes siblings of itself",
        "import ctypes, os, platform\nc = ctypes.CDLL(None)\nn = 56 if platform.machine() == 'x86_64' else 220\n"
        "whole = (ctypes.c_uint64 * 11)(0x8000, 0, 0, 0, 17)\n"
        "for call in ((n, 0x8000 | 17, 0, 0, 0, 0), (n, 0x8000, 0, 0, 0, 0), (435, whole, 64), (435, whole, 88)):\n"
        "    pid = c.syscall(*call)\n    if pid == 0: os._exit(0)\n"
        "    print('LEAK' if pid != -1 else 'denied', call[0])",
        _OK,
        "denied",
    ),
    Program(
        "calls of another machine",
        "import ctypes, mmap, platform\nif platform.machine() != 'x86_64': raise SystemExit(1)\n"
        "m = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes.fromhex('b814000000cd80c3'))\n"
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
        "pid = f()\nprint('LEAK' if pid > 0 else 'refused', pid)",
        ends(Status.SIGNAL, Status.EXIT),
        ends_with={"own_kernel": ends(Status.OK)},
    ),
    Program(
        "becomes root",
        TRY + "import os\nattempt('uid', lambda: os.setuid(0) or open('/etc/x', 'w'))\n"
        "attempt('gid', lambda: os.setgroups([0]) or open('/etc/x', 'w'))",
        _OK,
    ),
    Program(
        "asks programs with more rights",
        "import os, shutil, subprocess\nfor c in (['su', '-c', 'id -u'], ['mount', '-t', 'tmpfs', 'x', '/tmp'],\n"
        "          ['chsh', '-s', '/tmp/x'], ['newgrp', 'root'], ['unshare', '-r', 'true'], ['sudo', '-n', 'id']):\n"
        "    if shutil.which(c[0]):\n"
        "        done = subprocess.run(c, capture_output=True, stdin=subprocess.DEVNULL)\n"
        "        print('LEAK' if done.returncode == 0 else 'denied', c[0])",
        _OK,
    ),
    Program(
        "raises its limits",
        "import resource as r\ntry: r.setrlimit(r.RLIMIT_AS, (-1, -1)); print('LEAK')\n"
        "except (OSError, ValueError) as e: print(type(e).__name__)",
        _OK,
        "ValueError",
    ),
    Program(
        "changes its init's limits",
        TRY + "import os, resource as r\nfor pid in {1, os.getppid()} - {0}:\n"
        "    attempt('prlimit', lambda: r.prlimit(pid, r.RLIMIT_CPU, (1, 1)))",
        _OK,
    ),
    Program(
        "reaches for its init by a descriptor",
        TRY + "import ctypes, os, signal\nc = ctypes.CDLL(None)\n"
        "try: fd = os.pidfd_open(1)\nexcept OSError: raise SystemExit(3)\n"
        "attempt('wait', lambda: os.waitid(os.P_PIDFD, fd, os.WEXITED | os.WNOHANG))\n"
        "for n in (438, 440, 448): print('LEAK' if c.syscall(n, fd, 0, 0, 0, 0) != -1 else 'denied', n)\n"
        "try: signal.pidfd_send_signal(fd, 9)\nexcept OSError: pass",
        ends(Status.OK, Status.EXIT),
    ),
    Program(
        "changes what its init is",
        TRY + "import os\nfiles = ('comm', 'oom_score_adj', 'clear_refs', 'timerslack_ns', 'mem', 'fd/1', 'uid_map')\n"
        "for f in files: attempt(f, lambda: os.write(os.open(f'/proc/1/{f}', os.O_WRONLY), b'1'))\n"
        "t = os.environ['TMPDIR'] + '/init'\nattempt('open', lambda: os.open('/.init', os.O_WRONLY))\n"
        "attempt('mode', lambda: os.chmod('/.init', 0o777))\nattempt('name', lambda: os.rename('/.init', t))",
        _OK,
    ),
    Program(
        "puts itself above others",
        TRY + "import os\nattempt('nice', lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))\n"
        "attempt('realtime', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)))",
        _OK,
    ),
    Program(
        "puts itself last among those who die for memory",
        "import os\nos.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')\nos._exit(9)",
        ends(Status.EXCEPTION),
        ends_with={"own_kernel": ends(Status.EXIT)},
    ),
    Program("sets the clock", TRY + "import time\nattempt('set', lambda: time.clock_settime(0, 0))", _OK),
    Program(
        "types into the terminal",
        TRY + "import fcntl, os, termios\n"
        "for fd in (0, 1, 2): attempt('push', lambda: fcntl.ioctl(fd, termios.TIOCSTI, b'x'))\n"
        "attempt('tty', lambda: os.open('/dev/tty', os.O_RDWR))",
        _OK,
    ),
    Program(
        "searches the frames and the heap above",
        "import gc, sys\nword = 'accredit-' + 'canary'\nf, values = sys._getframe().f_back, []\n"
        "while f:\n    values += f.f_locals.values()\n    f = f.f_back\n"
        "gc.unfreeze()\nfor o in gc.get_objects():\n"
        "    values += o.values() if type(o) is dict else o if type(o) in (list, tuple) else ()\n"
        "found = [v for v in values if type(v) in (str, bytes) and word in str(v) and v != word]\n"
        "print('LEAK' if found else 'clean', len(values) > 1000, found[:3])",
        _OK,
        "clean True",
    ),
    Program(
        "searches all of its memory",
        "word = b'accredit-' + b'canary-'\nfound = 0\n"
        "with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as memory:\n"
        "    for line in maps:\n        span, rights = line.split()[:2]\n"
        "        first, last = (int(x, 16) for x in span.split('-'))\n"
        "        if 'r' in rights and last - first < 1 << 26:\n"
        "            try: memory.seek(first); part = memory.read(last - first)\n"
        "            except (OSError, ValueError): continue\n"
        "            while (at := part.find(word)) >= 0:\n"
        "                if part[at + len(word):at + len(word) + 8].isalnum(): print(part[at:at + 60])\n"
        "                part = part[at + 1:]\nprint('searched')",
        ends(Status.OK) | MEMORY,
    ),
)
"""Programs that reach for what is not theirs."""
