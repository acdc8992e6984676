"""The Python environment: a function is written, tried on examples, and handed in to hidden tests.

What breaks fails at once, is charged where it broke, and can be tried again; what is merely wrong shows only in the
reward. Each run is a fresh process, and the verification has a sandbox of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accredit.envs.catalogue.code import SHOWN, Interpreter, Tree, check_outcome, printed
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.core import ToolEnv
from accredit.envs.errors import EnvError, ToolError
from accredit.envs.state import canonical_json, fingerprint
from accredit.envs.task import Task
from accredit.envs.tools import tool
from accredit.sandboxes import Limits

from .easy import draw_easy
from .hard import draw_hard
from .medium import draw_medium
from .mistakes import broken_program, wrong_program
from .problem import Problem, call_text, draw_inputs
from .verify import Verified, verify

__all__ = ["Python", "Work"]

_DRAFTS = {"easy": draw_easy, "medium": draw_medium, "hard": draw_hard}
_MOST_CODE = 20_000


@dataclass(slots=True)
class Work:
    """What has come of the episode: `verified` is None until a program is handed in.

    `files` are what runs have left behind, for a later run to find.
    """

    verified: Verified | None = None
    files: Tree = field(default_factory=dict)


class Python(ToolEnv):
    """Write a function; the reward is the fraction of hidden tests that it passes.

    Levels: "easy" (one expression on whole numbers), "medium" (loops, conditions, strings), "hard" (lists and mappings
    with edge cases). With `partial=False` the reward is 1 if all tests pass, else 0.
    """

    system = "Write the function f. Try it with run, then submit it."
    levels = tuple(_DRAFTS)
    max_turns = 6
    run_limits = Limits(wall_s=5.0, cpu_s=5.0, output_bytes=65_536)

    state: Work

    def __init__(self, *, partial: bool = True, **settings: Any) -> None:
        super().__init__(**settings)
        self.partial = partial

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a problem of the level in force; its identity is what is asked, without the examples."""
        problem = draw_inputs(rng, _DRAFTS[self.level](rng))
        return Task(problem.prompt, id=f"{self.level}: {problem.text}", data={"problem": problem})

    def setup(self) -> None:
        """Start without an interpreter; the first call opens one."""
        self.close_interpreter()
        self.interpreter = Interpreter(self.run_limits)
        self.state = Work()

    @tool(timeout_s=None, output_limit=SHOWN)
    def run(self, code: str) -> str:
        """Run code on the examples."""
        return self._tried(code)

    @tool(timeout_s=None, output_limit=SHOWN)
    def submit(self, code: str) -> str:
        """Hand in the code."""
        self._tried(code)
        problem = self._problem
        self.state.verified = verify(code, problem.hidden, problem.values(problem.hidden))
        self.finished = True
        return "ok"

    def reward(self) -> float:
        """Return the fraction of hidden tests that the handed-in program passes, 0 if there is none."""
        if self.state.verified is None:
            return 0.0
        share = self.state.verified.share
        return share if self.partial else float(share == 1.0)

    def state_key(self) -> str:
        """Return a hash of the task, the turn, what the last call said, the files left behind, and the tests passed.

        Programs that do the same on the examples lead to one state, whatever their text.
        """
        passed = self.state.verified.passed if self.state.verified else None
        said = self.last_results[-1] if self.last_results else ""
        key = [self.task.key, self.turn, said, self.state.files, passed, bool(self.finished)]
        return fingerprint(canonical_json(key))

    def expert(self) -> Iterator[str]:
        """Try the right program and hand it in."""
        yield format_call("run", code=self._problem.source)
        yield format_call("submit", code=self._problem.source)

    def sloppy(self, rng: np.random.Generator, error_rate: float) -> Iterator[str]:
        """Write like the expert, with mistakes at `error_rate`: what fails is written anew, what is wrong stays.

        What fails has unknown names, an unclosed bracket, undefined functions, values of a wrong type.
        """
        problem = self._problem
        code = wrong_program(problem, rng) if rng.random() < error_rate else problem.source
        for _ in range(2):
            if rng.random() >= error_rate:
                break
            yield format_call("run", code=broken_program(problem, rng))
        yield format_call("run", code=code)
        yield format_call("submit", code=code)

    def close(self) -> None:
        """End the interpreter."""
        self.close_interpreter()
        super().close()

    def close_interpreter(self) -> None:
        """End the interpreter, if one was opened."""
        if "interpreter" in vars(self):
            self.interpreter.close()

    @property
    def _problem(self) -> Problem:
        problem = self.task.data.get("problem")
        if not isinstance(problem, Problem):
            raise EnvError(f"task {self.task.id!r} was not drawn by Python: pass a task of Python.draw_task(rng)")
        return problem

    def _tried(self, code: str) -> str:
        """Run the code and the examples after it; what the policy wrote comes first, so positions stay its own."""
        if len(code) > _MOST_CODE:
            raise ToolError(f"the code has {len(code)} characters, at most {_MOST_CODE} are run", argument="code")
        outcome = self.interpreter.run(f"{code}\n\n{self._examples()}")
        check_outcome(outcome)
        self.state.files = self.interpreter.files()
        return printed(outcome, code)

    def _examples(self) -> str:
        problem = self._problem
        lines = ["for _said, _found, _right in ["]
        for arguments, value in zip(problem.examples, problem.values(problem.examples), strict=True):
            call = call_text(arguments)
            lines.append(f" ({call!r}, {call}, {value!r}),")
        lines += ["]: print(_said, '=', repr(_found), *(() if _found == _right else ('not', repr(_right))))"]
        return "\n".join(lines)
