"""Many mixed runs, and what they leave behind on the machine and in this process: nothing, if all is well.

Runs end well and badly, by time, memory and output, with files, commands, cells and branches, in sessions that come
and go. What is counted is counted while no session is open: before, halfway and after.
"""

import gc
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from accredit.sandboxes.embedded.cgroup import groups
from accredit.sandboxes.embedded.confine import is_programs_uid
from accredit.sandboxes.embedded.place import abandoned_places
from accredit.sandboxes.errors import SandboxError
from accredit.sandboxes.protocol import BlockingSession, Limits, Outcome, Sandbox
from accredit.sandboxes.verdict import Blame, Status

from .program import LIMITS, MEMORY

_RSS_ROOM_MB = 8.0
_SHORT = replace(LIMITS, wall_s=0.3)
_OPENINGS = 0.05
_OK = frozenset({Status.OK})
_Pids = set[int]


class Counts(NamedTuple):
    """What there is while no session is open.

    `descriptors`, `children` and `rss_mb` are this process's. The others are the machine's, as far as they can be a
    sandbox's: `mounts` without those of container engines; `files` are slots' folders that no living slot holds, and
    what the programs' own users have left in shared memory. What a program leaves there as this very user is not told
    from the files of other programs.
    """

    descriptors: int
    mounts: int
    groups: int
    children: int
    zombies: int
    files: int
    rss_mb: float


class Kind(NamedTuple):
    """A kind of run: how often it comes, what it does, and the ends it may come to."""

    name: str
    weight: int
    do: Callable[[BlockingSession, int], Outcome]
    ends: frozenset[Status]


class Soak(NamedTuple):
    """What a soak showed. `ended` counts kinds and statuses, `problems` has all that should not have been."""

    before: Counts
    half: Counts
    after: Counts
    ended: Counter[tuple[str, Status]]
    problems: tuple[str, ...]

    @property
    def growth(self) -> tuple[str, ...]:
        """What there is more of than before, and memory that grew from halfway on."""
        grown = [
            f"{name}: expected {was} as before, actually {now}"
            for name, was, now in zip(Counts._fields[:-1], self.before, self.after, strict=False)
            if now > was
        ]
        if self.after.rss_mb > self.half.rss_mb + _RSS_ROOM_MB:
            grown.append(f"rss_mb: expected {self.half.rss_mb:.1f} as halfway, actually {self.after.rss_mb:.1f}")
        return tuple(grown)


def soak(
    sandbox: Sandbox, runs: int, *, seed: int = 0, beside: int = 4, tell: Callable[[int, Counts], None] | None = None
) -> Soak:
    """Do so many runs, `beside` of them at a time; `tell` hears the counts at the beginning, halfway and at the end."""
    ended, problems, pids, old = Counter[tuple[str, Status]](), list[str](), _Pids(), groups().keys()
    _phase(sandbox, 4 * beside, beside, random.Random(seed), Counter(), problems, pids)  # what is made once
    seen: list[Counts] = []
    for part, done in ((0, 0), (runs // 2, runs // 2), (runs - runs // 2, runs)):
        _phase(sandbox, part, beside, random.Random(seed + done + 1), ended, problems, pids)
        seen.append(count(pids, old))
        if tell is not None:
            tell(done, seen[-1])
    return Soak(seen[0], seen[1], seen[2], ended, tuple(problems))


def count(pids: _Pids, old: Collection[str]) -> Counts:
    """Count now; `pids` are the slots whose control groups are looked for, `old` groups were there before them."""
    gc.collect()
    left = sum(pid in pids for path, pid in groups().items() if path not in old)
    with open("/proc/self/mountinfo") as file:
        mounts = sum(not _is_an_engines(line) for line in file)
    with open("/proc/self/statm") as file:
        rss_mb = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    states = _states_of_children()
    files = len(abandoned_places()) + sum(map(_is_a_programs, os.listdir("/dev/shm")))
    descriptors = len(os.listdir("/proc/self/fd"))
    return Counts(descriptors, mounts, left, len(states), states.count("Z"), files, rss_mb)


def _is_an_engines(mount: str) -> bool:
    """Whether a mount is a container's root or network, or its engine's data, which it binds onto themselves."""
    facts, _, source = mount.partition(" - ")
    root, where = facts.split(" ")[3:5]
    return source.startswith(("overlay ", "nsfs ")) or root == where != "/" or "docker" in mount


def _is_a_programs(name: str) -> bool:
    """Whether something in shared memory belongs to a user that only sandboxed programs are."""
    with suppress(OSError):
        return is_programs_uid(os.stat(f"/dev/shm/{name}", follow_symlinks=False).st_uid)
    return False


def _states_of_children() -> list[str]:
    found: list[str] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:
            state, parent, *_ = file.read().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.append(state)
    return found


def _phase(
    sandbox: Sandbox,
    runs: int,
    beside: int,
    rng: random.Random,
    ended: Counter[tuple[str, Status]],
    problems: list[str],
    pids: _Pids,
) -> None:
    """Do some runs in sessions that are all closed at the end."""
    kinds = rng.choices(KINDS, [kind.weight for kind in KINDS], k=runs)
    lock = threading.Lock()

    def work(mine: list[Kind], own: random.Random) -> None:
        session: BlockingSession | None = None
        try:
            for number, kind in enumerate(mine):
                if session is not None and own.random() < _OPENINGS:
                    session.close()
                    session = None
                try:
                    session = session or sandbox.open_blocking(LIMITS)
                    outcome = kind.do(session, number)
                except SandboxError as error:
                    problems.append(f"{kind.name}: {error}")
                    continue
                with lock:
                    pids.add(getattr(session, "pid", 0))
                    ended[kind.name, outcome.status] += 1
                if outcome.status not in kind.ends or outcome.blame is Blame.INFRASTRUCTURE:
                    said = f"{outcome.stdout[-100:]!r} {outcome.stderr[-200:]!r} {outcome.evidence.detail}"
                    problems.append(f"{kind.name}: expected {' or '.join(kind.ends)}, actually {outcome.status} {said}")
        finally:
            if session is not None:
                session.close()

    threads = [
        threading.Thread(target=work, args=(kinds[number::beside], random.Random(rng.random())))
        for number in range(beside)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _runs(code: str, limits: Limits = LIMITS) -> Callable[[BlockingSession, int], Outcome]:
    return lambda session, _: session.run(code, limits)


def _cell(code: str, limits: Limits = LIMITS) -> Callable[[BlockingSession, int], Outcome]:
    return lambda session, _: session.run_cell(code, limits)


def _files(session: BlockingSession, number: int) -> Outcome:
    name, data = f"in/{number % 8}", os.urandom(4096)
    session.write(name, data)
    outcome = session.run(f"d = open('{name}', 'rb').read()\nopen('out', 'wb').write(d[::-1])", LIMITS)
    if session.read("out") != data[::-1] or "out" not in {entry.path for entry in session.list()}:
        raise SandboxError("a file came back other than it was written")
    return outcome


def _branch(session: BlockingSession, number: int) -> Outcome:
    session.run_cell(f"n = {number}", LIMITS)
    other = session.branch()
    try:
        other.run_cell("n = 'other'", LIMITS)
        outcome = session.run_cell("print(n)", LIMITS)
    finally:
        other.close()
    if outcome.stdout != f"{number}\n".encode():
        raise SandboxError(f"expected a branch to leave {number}, actually {outcome.stdout!r}")
    return outcome


KINDS = (
    Kind("ok", 30, _runs("print(6 * 7)"), _OK),
    Kind("exception", 10, _runs("{}['k']"), frozenset({Status.EXCEPTION})),
    Kind("syntax error", 4, _runs("def"), frozenset({Status.SYNTAX_ERROR})),
    Kind("exit", 4, _runs("import os\nos._exit(3)"), frozenset({Status.EXIT})),
    Kind("signal", 4, _runs("import os\nos.abort()"), frozenset({Status.SIGNAL})),
    Kind("timeout", 4, _runs("while True: pass", _SHORT), frozenset({Status.TIMEOUT_WALL})),
    Kind("out of memory", 3, _runs("x = []\nwhile True: x.append(bytearray(10**6))"), MEMORY),
    Kind("flood", 3, _runs("while True: print('A' * 10000)"), frozenset({Status.OUTPUT_LIMIT})),
    Kind(
        "forks",
        4,
        _runs("import os, time\nfor _ in range(6):\n    if os.fork() == 0: os.setsid(); time.sleep(1000)"),
        _OK,
    ),
    Kind("command", 6, lambda session, _: session.run(["sh", "-c", "cat | wc -c"], LIMITS, stdin=b"x" * 9000), _OK),
    Kind("files", 8, _files, _OK),
    Kind("cell", 8, _cell("m = globals().get('m', 0) + 1\nm"), _OK),
    Kind("cell fails", 3, _cell("1 / 0"), frozenset({Status.EXCEPTION})),
    Kind("cell dies", 2, _cell("import os\nos.abort()"), frozenset({Status.SIGNAL})),
    Kind("cell out of time", 2, _cell("while True: pass", _SHORT), frozenset({Status.TIMEOUT_WALL})),
    Kind("branch", 3, _branch, _OK),
)
"""All kinds of runs of a soak."""
