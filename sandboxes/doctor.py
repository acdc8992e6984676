"""Examines every backend on this machine: opens it, runs a canary, times warm runs, and shows the layers it really has.

Nothing here chooses or repairs; `select` chooses, and each finding says what it would take.
"""

import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from .errors import SandboxError
from .protocol import IsolationReport, Limits
from .select import BACKENDS, load, select
from .verdict import Status

__all__ = ["Examination", "Finding", "examine", "examine_all"]

WARM_RUNS = 20
_CANARY = "print(6 * 7)"
_LIMITS = Limits(wall_s=20.0)


class Finding(NamedTuple):
    """What one backend showed. `report` and the times are `None` where it did not get that far; `problem` says why."""

    name: str
    report: IsolationReport | None
    open_s: float | None
    warm_s: float | None
    problem: str
    advice: str

    @property
    def works(self) -> bool:
        """Whether it ran the canary every time."""
        return not self.problem

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON fields."""
        layers = self.report.layers if self.report else ()
        return {
            "name": self.name,
            "works": self.works,
            "level": self.report.level.name if self.report else None,
            "isolation_id": self.report.isolation_id if self.report else None,
            "open_s": self.open_s,
            "warm_median_s": self.warm_s,
            "layers": [{"name": layer.name, "on": layer.on, "reason": layer.reason} for layer in layers],
            "problem": self.problem,
            "advice": "" if self.works else self.advice,
        }


class Examination(NamedTuple):
    """All findings, the name of what `select()` gives here, or why it gives nothing."""

    findings: tuple[Finding, ...]
    default: str | None
    refusal: str


def examine_all(names: Sequence[str] = ()) -> Examination:
    """Examine these backends (all that have a name, if none is given), one after another."""
    findings = tuple(examine(name) for name in names or BACKENDS)
    try:
        return Examination(findings, select().name, "")
    except SandboxError as error:
        return Examination(findings, None, str(error))


def examine(name: str) -> Finding:
    """Open a backend, run the canary once cold and `WARM_RUNS` times warm."""
    advice = BACKENDS[name].advice if name in BACKENDS else "start the server, or correct its address"
    report = open_s = None
    try:
        sandbox, began = load(name), time.perf_counter()
        session = sandbox.open_blocking(_LIMITS)
        try:
            open_s, report, times = time.perf_counter() - began, session.report, list[float]()
            for _ in range(1 + WARM_RUNS):
                began = time.perf_counter()
                outcome = session.run(_CANARY)
                times.append(time.perf_counter() - began)
                if outcome.status is not Status.OK or outcome.stdout != b"42\n":
                    said = f"{outcome.status} {outcome.stdout[:100]!r} {outcome.evidence.detail}".rstrip()
                    return Finding(name, report, open_s, None, f"the canary did not print 42, actually {said}", advice)
        finally:
            session.close()
    except SandboxError as error:
        return Finding(name, report, open_s, None, str(error), advice)
    return Finding(name, report, open_s, median(times[1:]), "", advice)
