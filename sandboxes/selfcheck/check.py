"""Runs hostile programs against a backend, some side by side, and collects what should not have been.

It judges by what it sees from outside: verdicts, output, processes of the whole machine, files read by the caller, and
whether the next run works.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from accredit.sandboxes.errors import SandboxError
from accredit.sandboxes.protocol import BlockingSession, IsolationReport, Limits, Outcome, Sandbox
from accredit.sandboxes.verdict import Blame, Status

from .host import Hosted, Trace
from .program import LIMITS, PATIENCE_S, Program

_SURVIVORS_S = 20.0
_AFTER = Limits(wall_s=PATIENCE_S, cpu_s=10.0, memory_mb=128, disk_mb=LIMITS.disk_mb, pids=LIMITS.pids)
_AFTER_CODE = (
    "import glob\nnames = []\nfor p in glob.glob('/proc/[0-9]*/comm'):\n"
    "    try: names.append(open(p, errors='replace').read().strip())\n    except OSError: pass\n"
    "print('LEAK a process' if {name!r} in names else 'fine')"
)


class Finding(NamedTuple):
    """How one program ended, and what was wrong with that; no problems is what is wanted."""

    program: str
    statuses: tuple[Status, ...]
    wall_s: float
    problems: tuple[str, ...]


class Report(NamedTuple):
    """What a backend let through. `connections` counts programs that reached the host's server.

    `refused` names programs that it refuses to run at all, as some backends do with cells.
    """

    isolation: IsolationReport
    findings: tuple[Finding, ...]
    connections: int
    refused: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """All that should not have been, one line each."""
        found = [f"{finding.program}: {problem}" for finding in self.findings for problem in finding.problems]
        if self.connections:
            found.append(f"the host's network: expected no connection to its server, actually {self.connections}")
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON fields."""
        return {
            "isolation": self.isolation.describe(),
            "programs": len(self.findings),
            "refused": list(self.refused),
            "problems": list(self.problems),
            "statuses": {finding.program: list(finding.statuses) for finding in self.findings},
        }


def check(sandbox: Sandbox, programs: Sequence[Program], *, beside: int = 4) -> Report:
    """Run the programs, `beside` of them at a time; raise `SandboxError` if no session can be opened at all."""
    todo: queue.SimpleQueue[Program] = queue.SimpleQueue()
    found: list[Finding] = []
    with Hosted() as host:
        first = sandbox.open_blocking(LIMITS)
        isolation, cells = first.report, _has_cells(first)
        refused = tuple(program.name for program in programs if program.cell and not cells)
        for program in sorted(programs, key=lambda program: -_longest_s(program)):
            if program.name not in refused:
                todo.put(program)
        workers = [_Worker(sandbox, isolation, host, todo, found, first if n == 0 else None) for n in range(beside)]
        threads = [threading.Thread(target=worker.work, name="accredit-hostile") for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        order = {program.name: number for number, program in enumerate(programs)}
        found.sort(key=lambda finding: order[finding.program])
        return Report(isolation, tuple(found), host.connections, refused)


def _longest_s(program: Program) -> float:
    return program.wall_s if Status.TIMEOUT_WALL in program.ends else program.alone * 0.5


def _has_cells(session: BlockingSession) -> bool:
    try:
        session.run_cell("pass", _AFTER)
    except SandboxError:
        return False
    return True


class _Worker:
    """Attacks through a session of its own until nothing is left to do."""

    def __init__(
        self,
        sandbox: Sandbox,
        isolation: IsolationReport,
        host: Hosted,
        todo: "queue.SimpleQueue[Program]",
        found: list[Finding],
        session: BlockingSession | None,
    ) -> None:
        self._sandbox, self._isolation, self._host = sandbox, isolation, host
        self._todo, self._found, self._session = todo, found, session

    def work(self) -> None:
        """Take programs until there are none."""
        try:
            while True:
                try:
                    program = self._todo.get_nowait()
                except queue.Empty:
                    return
                self._found.append(self._attack(program))
        finally:
            self._end_session()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _attack(self, program: Program) -> Finding:
        began, trace = time.monotonic(), Trace()
        opened: list[BlockingSession] = []

        def open_one() -> BlockingSession:
            opened.append(self._sandbox.open_blocking(LIMITS))
            return opened[-1]

        outcomes: list[Outcome] = []
        problems: list[str] = []
        try:
            if program.alone or program.together:
                session = open_one()
            else:
                self._session = session = self._session or self._sandbox.open_blocking(LIMITS)
            if program.before:
                where = open_one() if program.across else session
                problems += self._leaks(where.run(self._filled(trace.naming + program.before, trace), LIMITS))
            sessions = [session, open_one()] if program.together else [session]
            outcomes = self._run(program, sessions, trace)
            for outcome in outcomes:
                problems += self._judge(program, outcome)
            problems += self._traps(program, session)
            if left := trace.survivors(_SURVIVORS_S):
                problems.append(f"expected no process to survive, actually {len(left)} did")
            problems += self._next(program, session, trace)
        except SandboxError as error:
            problems.append(f"expected the session to go on, actually {error}")
        finally:
            for one in opened:
                one.close()
            if problems:
                self._end_session()
        return Finding(
            program.name,
            tuple(one.status for one in outcomes),
            time.monotonic() - began,
            tuple(dict.fromkeys(problems)),
        )

    def _run(self, program: Program, sessions: list[BlockingSession], trace: Trace) -> list[Outcome]:
        by_clock = Status.TIMEOUT_WALL in program.expected(self._isolation)
        limits = replace(LIMITS, wall_s=program.wall_s if by_clock else PATIENCE_S)

        def run(number: int) -> Outcome:
            session = sessions[number]
            if program.argv:
                return session.run([self._filled(part, trace) for part in program.argv], limits)
            naming = "" if program.cell else trace.naming  # the interpreter lives on, under the cell's name
            code = self._filled(naming + program.code, trace).replace("MINE", str(number))
            return session.run_cell(code, limits) if program.cell else session.run(code, limits)

        return _side_by_side([lambda number=number: run(number) for number in range(len(sessions))])

    def _filled(self, text: str, trace: Trace) -> str:
        for word, value in (("PORT", str(self._host.port)), ("CANARY", self._host.path), ("NAP", trace.nap)):
            text = text.replace(word, value)
        return text

    def _judge(self, program: Program, outcome: Outcome) -> list[str]:
        problems = self._leaks(outcome)
        expected = program.expected(self._isolation)
        said = (
            f"{outcome.status} {outcome.stdout[-200:]!r} {outcome.stderr[-300:]!r} {outcome.evidence.detail}".rstrip()
        )
        if outcome.status not in expected:
            problems.append(f"expected the end {' or '.join(sorted(expected))}, actually {said}")
        if outcome.blame is Blame.INFRASTRUCTURE:
            problems.append("expected the blame not to be the infrastructure's")
        if outcome.status is Status.OK and program.prints.encode() not in outcome.stdout:
            problems.append(f"expected it to print {program.prints!r}, actually {outcome.stdout[-200:]!r}")
        if len(outcome.stdout) + len(outcome.stderr) > LIMITS.output_bytes:
            problems.append(f"expected at most {LIMITS.output_bytes} bytes of output")
        return problems

    def _leaks(self, outcome: Outcome) -> list[str]:
        text = outcome.stdout + outcome.stderr
        if self._host.canary.encode() in text:
            return [f"a secret of the host was read: {text[-300:]!r}"]
        lines = [line for line in text.splitlines() if line.startswith(b"LEAK")]
        return [f"something came through: {lines[:3]}"] if lines else []

    def _traps(self, program: Program, session: BlockingSession) -> list[str]:
        problems: list[str] = []
        for path in program.traps:
            with suppress(SandboxError):
                data = session.read(self._host.path if path == "CANARY" else path.replace("CANARY", self._host.path))
                problems.append(f"expected reading {path!r} from outside to be refused, actually {data[:40]!r}")
        return problems

    def _next(self, program: Program, session: BlockingSession, trace: Trace) -> list[str]:
        runs = [session.run(_AFTER_CODE.format(name=trace.name), _AFTER)]
        if program.cell:
            after = session.run_cell("print('fine')", _AFTER)
            if program.loses_names and after.blame is Blame.MODEL:  # it is told so once
                after = session.run_cell("print('fine')", _AFTER)
            runs.append(after)
        return [
            f"expected the next run to print 'fine', actually {after.status} {after.stdout[-200:]!r} "
            f"{after.stderr[-200:]!r} {after.evidence.detail}".rstrip()
            for after in runs
            if after.status is not Status.OK or after.stdout != b"fine\n"
        ]


def _side_by_side(works: Sequence[Callable[[], Outcome]]) -> list[Outcome]:
    """Do all at once; raises what the first that failed has raised."""
    if len(works) == 1:
        return [works[0]()]
    done: dict[int, Outcome | SandboxError] = {}

    def do(number: int) -> None:
        try:
            done[number] = works[number]()
        except SandboxError as error:
            done[number] = error

    threads = [threading.Thread(target=do, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in done.values():
        if isinstance(result, SandboxError):
            raise result
    return [result for _, result in sorted(done.items()) if not isinstance(result, SandboxError)]
