"""What a run's evidence means: one status, and who is to blame for it.

A pure table over facts that the supervisor saw from outside (wait status, its own clock, kernel counters). The
program's own report is only ever used to tell apart two statuses that cost the model the same; it cannot turn a
failure into `ok`, a model's failure into infrastructure's, or the reverse. This module runs nothing.

Words: *evidence* is what was seen; a *fault* is a host-side failure, which is never the model's; the *end nonce* is a
random value that only reaches the supervisor if the last statement of the program ran.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from os import WIFSIGNALED, WTERMSIG, waitstatus_to_exitcode
from signal import SIGKILL, SIGXCPU, SIGXFSZ
from typing import Any, NamedTuple


class Status(StrEnum):
    """How a run ended."""

    OK = "ok"
    NO_RESULT = "no_result"
    SYNTAX_ERROR = "syntax_error"
    EXCEPTION = "exception"
    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT_CPU = "timeout_cpu"
    TIMEOUT_WALL = "timeout_wall"
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_LIMIT = "output_limit"
    LIMIT_HIT = "limit_hit"
    DENIED = "denied"
    UNSUPPORTED = "unsupported"
    VERIFIER_ERROR = "verifier_error"
    START_FAILED = "start_failed"
    LOST = "lost"
    BACKEND_TIMEOUT = "backend_timeout"
    OVERLOADED = "overloaded"
    PROTOCOL = "protocol"
    CANCELLED = "cancelled"


class Blame(StrEnum):
    """Whose doing a status is: only `MODEL` may cost the policy reward."""

    NOBODY = "nobody"
    MODEL = "model"
    AUTHOR = "author"
    INFRASTRUCTURE = "infrastructure"


class Stopped(StrEnum):
    """Why the supervisor itself ended a run."""

    WALL = "wall"
    OUTPUT = "output"
    CPU = "cpu"
    PROCESSES = "processes"


class Reported(StrEnum):
    """How the program's own process says it ended (forgeable, so never enough alone)."""

    END = "end"
    EXIT = "exit"
    SYNTAX_ERROR = "syntax_error"
    EXCEPTION = "exception"


FAULTS = frozenset({Status.START_FAILED, Status.LOST, Status.BACKEND_TIMEOUT, Status.OVERLOADED, Status.PROTOCOL})
"""Statuses that only the host side can cause."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of one run from outside. `None` = not measured there, 0 = measured and none.

    `wait_status` is the raw status of `wait(2)`, so that `exit(137)` and a death by signal 9 stay apart. `command` says
    that a command ran, not Python source: it has no end nonce, so that its exit code 0 is all that it can show.
    """

    fault: Status | None = None
    detail: str = ""
    verifier_failed: bool = False
    cancelled: bool = False
    unsupported: bool = False
    denied: bool = False
    stopped: Stopped | None = None
    wait_status: int | None = None
    reported: Reported | None = None
    cpu_s: float = 0.0
    cpu_limit_s: float | None = None
    wall_s: float = 0.0
    oom_kills: int | None = None
    pids_refused: int | None = None
    disk_full: bool | None = None
    command: bool = False

    def __post_init__(self) -> None:
        if self.fault is not None and self.fault not in FAULTS:
            raise ValueError(f"expected a host-side fault ({', '.join(sorted(FAULTS))}), actually {self.fault!r}")

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Evidence":
        """Rebuild evidence that crossed a process border as JSON."""
        kinds = {"fault": Status, "stopped": Stopped, "reported": Reported}
        values: dict[str, Any] = dict(fields)
        for name, kind in kinds.items():
            if values.get(name) is not None:
                values[name] = kind(values[name])
        return cls(**values)


class Verdict(NamedTuple):
    """Status and blame of one run."""

    status: Status
    blame: Blame


def classify(evidence: Evidence) -> Verdict:
    """Read the table from top to bottom; the first row that fits wins."""
    if evidence.fault is not None:
        return Verdict(evidence.fault, Blame.INFRASTRUCTURE)
    if evidence.verifier_failed:
        return Verdict(Status.VERIFIER_ERROR, Blame.AUTHOR)
    if evidence.cancelled:
        return Verdict(Status.CANCELLED, Blame.NOBODY)
    if evidence.unsupported:
        return Verdict(Status.UNSUPPORTED, Blame.NOBODY)
    if evidence.stopped is Stopped.OUTPUT:
        return Verdict(Status.OUTPUT_LIMIT, Blame.MODEL)
    if evidence.stopped is Stopped.PROCESSES:
        return Verdict(Status.LIMIT_HIT, Blame.MODEL)
    if evidence.stopped is Stopped.CPU:
        return Verdict(Status.TIMEOUT_CPU, Blame.MODEL)
    if evidence.stopped is Stopped.WALL:
        return Verdict(Status.TIMEOUT_WALL, Blame.MODEL)
    if evidence.wait_status is None:
        return Verdict(Status.LOST, Blame.INFRASTRUCTURE)
    if evidence.oom_kills:
        return Verdict(Status.OUT_OF_MEMORY, Blame.MODEL)  # also at exit 0: the killed one may have been a child
    if WIFSIGNALED(evidence.wait_status):
        if WTERMSIG(evidence.wait_status) == SIGXFSZ:
            return Verdict(Status.LIMIT_HIT, Blame.MODEL)  # a file longer than may be
        return Verdict(Status.TIMEOUT_CPU if _died_of_cpu_limit(evidence) else Status.SIGNAL, Blame.MODEL)
    return _classify_exit(evidence, waitstatus_to_exitcode(evidence.wait_status))


def _classify_exit(evidence: Evidence, code: int) -> Verdict:
    if code == 0:
        if evidence.command or evidence.reported is Reported.END:
            return Verdict(Status.OK, Blame.NOBODY)
        if evidence.reported is Reported.EXIT:
            return Verdict(Status.EXIT, Blame.NOBODY)  # sys.exit(0) is no failure, but the last line did not run
        return Verdict(Status.NO_RESULT, Blame.MODEL)
    if evidence.denied:
        return Verdict(Status.DENIED, Blame.MODEL)
    if evidence.pids_refused or evidence.disk_full:
        return Verdict(Status.LIMIT_HIT, Blame.MODEL)
    if code == 1 and evidence.reported is Reported.SYNTAX_ERROR:
        return Verdict(Status.SYNTAX_ERROR, Blame.MODEL)
    if code == 1 and evidence.reported is Reported.EXCEPTION:
        return Verdict(Status.EXCEPTION, Blame.MODEL)
    return Verdict(Status.EXIT, Blame.MODEL)


def _died_of_cpu_limit(evidence: Evidence) -> bool:
    """Tell the kernel's signal at the cpu limit from one a program sends itself: the cpu counter has to agree.

    The kernel enforces the limit by sampled ticks, which on a busy machine run ahead of the exact counter.
    """
    if evidence.cpu_limit_s is None or evidence.wait_status is None:
        return False
    used = evidence.cpu_s / evidence.cpu_limit_s
    number = WTERMSIG(evidence.wait_status)
    return (number == SIGXCPU and used >= 0.5) or (number == SIGKILL and used >= 0.8)
