"""The Shell environment: a small project in a sandbox, one tool that runs shell commands, and a check of every file.

Commands run with bash and `pipefail` (plain `sh` where there is no bash), each in a fresh process: files stay, the
current folder and variables do not. A command that fails is charged where it failed: on the failing part of a list or a
pipeline, on the name that is not found, on the token that the shell cannot read, and on the call where it ran out of
time or memory. `grep` that finds nothing and the like answer with status 1 and are not charged (see `blame`).

The reward is 1 if the files are exactly what was asked for, and nothing else has changed, or if the answer is right and
nothing has changed at all; else 0. Files are read from outside the sandbox.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from accredit.credit import CallStatus
from accredit.envs.catalogue.code import MOST_FILES, Tree, check_outcome, outcome_detail, tool_error
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.core import ToolEnv
from accredit.envs.errors import EnvError, ToolError
from accredit.envs.state import canonical_json, fingerprint
from accredit.envs.task import Task
from accredit.envs.tools import tool
from accredit.sandboxes import Limits, Status

from .blame import ANSWERS, judge, syntax_place
from .jobs import LEVELS, Job
from .parsing import Script, parse
from .workspace import Done, Workspace

__all__ = ["Shell"]

_SHOWN = 2000
_LONGEST_COMMAND = 8_000


@dataclass
class Files:
    """What the project's folder holds."""

    tree: Tree = field(default_factory=dict)


class Shell(ToolEnv):
    """Do a job in a small project with shell commands; the reward is 1 if it is done and nothing else has changed.

    Levels: "easy" (one or two commands), "medium" (rules over many files), "hard" (several steps, or a script to fix).
    """

    system = "Do the job in the project with shell commands, then say done or answer."
    levels = tuple(LEVELS)
    max_turns = 10
    run_limits = Limits(wall_s=5.0, cpu_s=10.0, output_bytes=65_536, disk_mb=16)
    answers: ClassVar[Mapping[str, frozenset[int]]] = ANSWERS

    state: Files
    workspace: Workspace

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a job of the level in force."""
        makers = LEVELS[self.level]
        job = makers[int(rng.integers(len(makers)))](rng)
        return Task(job.text, id=f"{self.level}: {job.identity}", data={"job": job})

    def setup(self) -> None:
        """Lay out the project; the first command opens a session."""
        self.close_workspace()
        self.workspace = Workspace(self._job.files, self.run_limits)
        self.state = Files(self.workspace.tree())

    @tool(timeout_s=None, output_limit=_SHOWN)
    def shell(self, command: str) -> str:
        """Run a command."""
        if "\0" in command or len(command) > _LONGEST_COMMAND:
            raise ToolError(f"a command has at most {_LONGEST_COMMAND} characters, none of them null", "command")
        script = parse(command)
        done = self.workspace.run(script)
        check_outcome(done.outcome)
        self.state.tree = self.workspace.tree()
        if len(self.state.tree) > MOST_FILES:
            self.finished = True  # what cannot be read whole can be neither scored nor copied for a fork
            raise ToolError(f"the project may hold {MOST_FILES} files at most", status=CallStatus.OUTPUT_LIMIT)
        return self._told(script, done)

    def reward(self) -> float:
        """Return 1 if every file is as it should be, and the answer is right where one was asked for."""
        job, tree = self._job, self.state.tree
        if job.answer is not None and _last_word(self.answer) != job.answer:
            return 0.0
        if job.fixed is None:
            return float(tree == job.tree)
        kept = {path: text for path, text in tree.items() if path != job.fixed}
        if kept != {path: text for path, text in job.tree.items() if path != job.fixed} or job.fixed not in tree:
            return 0.0
        return float(self._passes(job, tree[job.fixed]))

    def state_key(self) -> str:
        """Return a hash of the task and of all files."""
        job = canonical_json([self._job.files, self.state, self.answer, bool(self.finished)])
        return fingerprint(f"{self.task.key} {job}")

    def expert(self) -> Iterator[str]:
        """Run the job's commands one by one, then say the answer."""
        for command in self._job.commands:
            yield format_call("shell", command=command)
        yield self._job.answer or "Done."

    def sloppy(self, rng: np.random.Generator, error_rate: float) -> Iterator[str]:
        """Do as the expert does, but leave out each command, or get the answer wrong, with probability `error_rate`."""
        for command in self._job.commands:
            if rng.random() >= error_rate:
                yield format_call("shell", command=command)
        yield "Done." if rng.random() < error_rate else self._job.answer or "Done."

    def close(self) -> None:
        """End the session."""
        self.close_workspace()
        super().close()

    def close_workspace(self) -> None:
        """End the session, if one was opened."""
        if "workspace" in vars(self):
            self.workspace.close()

    @property
    def _job(self) -> Job:
        job = self.task.data.get("job")
        if not isinstance(job, Job):
            raise EnvError(f"task {self.task.id!r} was not drawn by Shell: pass a task of Shell.draw_task(rng)")
        return job

    def _told(self, script: Script, done: Done) -> str:
        """Return what the policy reads; raise `ToolError` for a failure."""
        outcome = done.outcome
        if outcome.status not in (Status.OK, Status.EXIT, Status.NO_RESULT) or outcome.exit_code is None:
            raise tool_error(outcome, script.text, "command")
        output = outcome.stdout.decode("utf-8", "replace").rstrip("\n")
        said = "\n".join(part for part in (output, done.stderr) if part)
        code = outcome.exit_code
        broken = syntax_place(script, done.stderr) if code == 2 or not script.traced else None
        failed, place = (True, broken) if broken else judge(script, code, done.ran, done.stderr, self.answers)
        if not failed:
            return said or (f"(exit {code})" if code else "(no output)")
        raise ToolError(
            said or f"exit {code}",
            argument="command",
            status=CallStatus.NONZERO_EXIT,
            source_range=place,
            detail=outcome_detail(outcome) | {"stderr": done.stderr[:_SHOWN]},
        )

    def _passes(self, job: Job, fixed: str) -> bool:
        """Run the hidden check in a session of its own, over the files as they should be and the policy's fixed one."""
        files = {path: text for path, text in job.tree.items() if text != "<folder>"}
        fresh = Workspace({**files, str(job.fixed): fixed}, self.run_limits)
        try:
            outcome = fresh.run_program(["python3", "-c", job.probe])
        finally:
            fresh.close()
        check_outcome(outcome)
        return outcome.ok and outcome.stdout.decode("utf-8", "replace") == job.printed


def _last_word(answer: str) -> str:
    """Return the last word of an answer without the signs around it."""
    words = answer.split()
    return words[-1].strip("`'\"*.,:;()").removeprefix("./") if words else ""
