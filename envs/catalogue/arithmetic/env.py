"""The Arithmetic environment: a calculator of one operation a call, and a number to arrive at.

The order of the operations is the policy's to find; only the final number is scored.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from accredit.envs.catalogue.scripted import format_call
from accredit.envs.core import ToolEnv
from accredit.envs.state import fingerprint
from accredit.envs.task import Task
from accredit.envs.tools import tool

from .calculator import calculate, show
from .expressions import Tokens, draw_expression, next_step, reduce_step, without_brackets
from .stories import draw_story

__all__ = ["Arithmetic", "Results"]

_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(slots=True)
class Results:
    """What the calculator has given so far: all that an answer can be read from."""

    seen: set[str] = field(default_factory=set)


class Arithmetic(ToolEnv):
    """Work out a number with a calculator that does one operation a call; the reward is 1 for the exact number, else 0.

    Levels: "easy" (2 operations, 3 turns), "medium" (4 or 5 with nested brackets, 5 or 6 turns), "hard" (word problems,
    4 to 13 turns).
    """

    system = "Use calc, one operation a call. Then answer with the number."
    max_turns = 16
    levels = ("easy", "medium", "hard")
    hook_timeout_s = None

    state: Results

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a task of the level in force; its identity is its expression."""
        if self.level == "hard":
            prompt, tokens = draw_story(rng, events=int(rng.integers(3, 6)))
        else:
            tokens = draw_expression(rng, 2 if self.level == "easy" else int(rng.integers(4, 6)))
            prompt = f"Compute {' '.join(tokens)}."
        expression = " ".join(tokens)
        return Task(prompt, answer=int(calculate(expression)), id=expression, data={"expression": expression})

    def setup(self) -> None:
        """Clear the calculator."""
        self.state = Results()

    @tool(timeout_s=None)
    def calc(self, expression: str) -> str:
        """Compute one operation."""
        result = show(calculate(expression, most_steps=1))
        self.state.seen.add(result)
        return result

    def reward(self) -> float:
        """Return 1 if the answer holds one number and it is the right one; 25 and 25.0 are the same number."""
        numbers = _NUMBER.findall(self.answer)
        return float(len(numbers) == 1 and Fraction(numbers[0]) == self.task.answer)

    def state_key(self) -> str:
        """Return a hash of the task, the calculator's results so far (in any order), and the answer."""
        return fingerprint(f"{self.task.key} {sorted(self.state.seen)} {self.answer}")

    def expert(self) -> Iterator[str]:
        """Compute by precedence and brackets, reading each result."""
        return self._work(lambda: True)

    def sloppy(self, rng: np.random.Generator, error_rate: float) -> Iterator[str]:
        """Compute like the expert, but at each operation go left to right, past all brackets, with `error_rate`."""
        return self._work(lambda: bool(rng.random() >= error_rate))

    def _work(self, right: Callable[[], bool]) -> Iterator[str]:
        tokens: Tokens = str(self.task.data["expression"]).split()
        while len(tokens) > 1:
            if right():
                at = next_step(tokens)
            else:
                tokens, at = without_brackets(tokens)
            yield format_call("calc", expression=" ".join(tokens[at - 1 : at + 2]))
            result = self.last_results[-1]
            if _NUMBER.fullmatch(result) is None:
                break
            tokens = reduce_step(tokens, at, result)
        yield tokens[0]
