"""Chooses a backend: tries each on this machine and takes the strongest that really works.

It fails closed. A sandbox below the floor (level 3: own namespaces and a filter on system calls) is only given to a
caller who says `allow_weaker=True`. Nothing is concluded from configuration: each backend opens a slot, shows its
layers and runs a canary.
"""

import logging
import threading
from typing import NamedTuple

from .embedded.session import EmbeddedSandbox
from .errors import SandboxError
from .protocol import IsolationReport, Level, Limits
from .verdict import Status

FLOOR = Level.L3
"""The weakest level that is used without being asked for."""

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_reports: dict[frozenset[str], IsolationReport] = {}
_logged: set[str] = set()


class Choice(NamedTuple):
    """A sandbox and what it isolates."""

    sandbox: EmbeddedSandbox
    report: IsolationReport


def select(allow_weaker: bool = False) -> EmbeddedSandbox:
    """Return the strongest sandbox that works here; raise `SandboxError` that names each backend tried and why."""
    return choose([EmbeddedSandbox()], allow_weaker).sandbox


def choose(candidates: list[EmbeddedSandbox], allow_weaker: bool = False) -> Choice:
    """Probe the candidates and return the strongest with its report."""
    refusals: list[str] = []
    working: list[Choice] = []
    for candidate in candidates:
        try:
            working.append(Choice(candidate, probe(candidate)))
        except SandboxError as error:
            refusals.append(str(error))
    working.sort(key=lambda choice: choice.report.level, reverse=True)
    if working and (allow_weaker or working[0].report.level >= FLOOR):
        _say_once(working[0].report)
        return working[0]
    refusals += [f"{choice.report.describe()} (below {FLOOR.name})" for choice in working]
    advice = "allow_weaker=True accepts the weaker one" if working else "no backend works on this machine"
    raise SandboxError(
        f"expected a sandbox of level {FLOOR.name} or more, found none: {'; '.join(refusals) or 'none tried'}; {advice}"
    )


def probe(sandbox: EmbeddedSandbox) -> IsolationReport:
    """Open a slot, run a canary and return the layers found; remembered for the life of this process."""
    with _lock:
        if sandbox.without not in _reports:
            client = sandbox.open_blocking(Limits(wall_s=20.0))
            try:
                outcome = client.run("print(6 * 7)")
            finally:
                client.close()
            if outcome.status is not Status.OK or outcome.stdout != b"42\n":
                raise SandboxError(
                    f"embedded: expected the canary to print 42, actually {outcome.status} "
                    f"{outcome.stdout[:100]!r} {outcome.stderr[-300:]!r} {outcome.evidence.detail}".rstrip()
                )
            _reports[sandbox.without] = client.report
        return _reports[sandbox.without]


def _say_once(report: IsolationReport) -> None:
    if report.level < Level.L4 and report.isolation_id not in _logged:
        _logged.add(report.isolation_id)
        _log.warning("this sandbox is not the strongest kind: %s", report.describe())
