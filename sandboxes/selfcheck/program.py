"""What a hostile program is: code, the ends it may come to, and what else must hold.

Words in capitals in the code are replaced for each run: PORT (of a server on the host that tells a secret), CANARY (a
file of the host that holds one), NAP (a number of seconds for `sleep`, by which it is found again), MINE (this
session's word).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from accredit.sandboxes.protocol import IsolationReport, Limits
from accredit.sandboxes.verdict import Status

PATIENCE_S = 60.0
"""For programs that end by themselves, on the busiest machine."""

LIMITS = Limits(wall_s=PATIENCE_S, cpu_s=10.0, memory_mb=128, output_bytes=1 << 18, disk_mb=16, pids=24)
"""What hostile programs may use."""

MEMORY = frozenset({Status.OUT_OF_MEMORY, Status.EXCEPTION})
"""How too much memory ends: at a control group, or refused by the process's own limit."""

TRY = "def attempt(name, call):\n    try: print('LEAK', name, call())\n    except OSError as e: print(name, e.errno)\n"
"""Begins a program that attempts what must fail with an ordinary error."""


@dataclass(frozen=True, slots=True)
class Program:
    """A hostile program.

    `ends` are the statuses it may come to; `ends_without` adds those that it may come to where a layer is off, and
    `ends_with` where one is on. `prints` is in its standard output then, if its status is `ok`. `wall_s` is what it
    gets if it may end by the clock. `before` runs first, in the same session, or in another one if `across`; `together`
    runs it in two sessions at once. `traps` are paths that cannot be read from outside afterwards. An `alone` program
    has a session of its own, since it leaves things there. A `cell` runs in the live interpreter, which it may end if
    it `loses_names`; `argv` is a command.
    """

    name: str
    code: str
    ends: frozenset[Status]
    prints: str = ""
    wall_s: float = 1.0
    ends_without: Mapping[str, frozenset[Status]] = field(default_factory=dict[str, frozenset[Status]])
    ends_with: Mapping[str, frozenset[Status]] = field(default_factory=dict[str, frozenset[Status]])
    before: str = ""
    across: bool = False
    together: bool = False
    traps: tuple[str, ...] = ()
    alone: bool = False
    cell: bool = False
    loses_names: bool = False
    argv: tuple[str, ...] = ()

    def expected(self, report: IsolationReport) -> frozenset[Status]:
        """Return the ends it may come to with these layers."""
        ends = set(self.ends)
        for name, more in self.ends_without.items():
            if not report.has(name):
                ends |= more
        for name, more in self.ends_with.items():
            if report.has(name):
                ends |= more
        return frozenset(ends)


def ends(*statuses: Status) -> frozenset[Status]:
    """Return the ends of a program."""
    return frozenset(statuses)
