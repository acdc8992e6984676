"""PythonMath: number problems where the policy writes Python, reads the output, and answers.

The code runs in a sandbox (`accredit.sandboxes`), a fresh process a call. An exception is charged on the failing
expression, a timeout on the call, an infrastructure fault on nobody; what is printed to stderr costs nothing.
"""

import re
from collections.abc import Iterator

import numpy as np

from accredit.envs.core import ToolEnv
from accredit.envs.task import Task
from accredit.envs.tools import tool
from accredit.sandboxes import Limits

from .code import SHOWN, Interpreter, printed
from .scripted import format_call

__all__ = ["PythonMath"]

_NUMBER = re.compile(r"-?\d+")


class PythonMath(ToolEnv):
    """Compute with Python and answer with one whole number; the reward is 1 if it is right, else 0.

    Levels: "easy" (one expression), "medium" (a sum or a count over a range), "hard" (two computations, the second on
    the first's result).
    """

    system = "Compute with Python, then answer with the number."
    levels = ("easy", "medium", "hard")
    max_turns = 6
    run_limits = Limits(wall_s=5.0, cpu_s=5.0, output_bytes=65_536)

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a problem of the level in force."""
        problem, steps, answer = {"easy": _expression, "medium": _range, "hard": _two_steps}[self.level](rng)
        return Task(problem, answer=answer, id=f"{self.level}: {problem}", data={"steps": steps})

    def setup(self) -> None:
        """Start without an interpreter; the first call opens one."""
        self.close_interpreter()
        self.interpreter = Interpreter(self.run_limits)

    @tool(timeout_s=None, output_limit=SHOWN)
    def python(self, code: str) -> str:
        """Run Python code, see what it prints."""
        return printed(self.interpreter.run(code), code)

    def reward(self) -> float:
        """Return 1 if the answer's last whole number is the right one."""
        numbers = _NUMBER.findall(self.answer.replace(",", ""))
        return float(bool(numbers) and int(numbers[-1]) == self.task.answer)

    def state_key(self) -> str:
        """Return a key of the turn and of what the last call printed; files that a run leaves behind are left out."""
        return f"{self.turn} {self.last_results[-1] if self.last_results else ''} {self.answer}"

    def expert(self) -> Iterator[str]:
        """Run the problem's program, step by step, and answer with what it prints."""
        for step in self.task.data["steps"]:
            said = self.last_results[-1] if self.last_results else ""
            yield format_call("python", code=step.replace("LAST", said))
        yield self.last_results[-1]

    def close(self) -> None:
        """End the interpreter."""
        self.close_interpreter()
        super().close()

    def close_interpreter(self) -> None:
        """End the interpreter, if one was opened."""
        if "interpreter" in vars(self):
            self.interpreter.close()


def _expression(rng: np.random.Generator) -> tuple[str, list[str], int]:
    a, b, c = (int(n) for n in rng.integers(2, 100, 3))
    text, value = [
        (f"{a} * {b} + {c}", a * b + c),
        (f"{a} * {b} - {c}", a * b - c),
        (f"{a} + {b} * {c}", a + b * c),
        (f"({a} + {b}) * {c}", (a + b) * c),
    ][int(rng.integers(4))]
    return f"What is {text}?", [f"print({text})"], value


def _range(rng: np.random.Generator) -> tuple[str, list[str], int]:
    first, count, step = int(rng.integers(1, 30)), int(rng.integers(5, 60)), int(rng.integers(2, 10))
    numbers = range(first, first + count)
    over = f"range({first}, {first + count})"
    said = f"from {first} to {first + count - 1}"
    kind = int(rng.integers(3))
    if kind == 0:
        return f"Sum of the numbers {said}?", [f"print(sum({over}))"], sum(numbers)
    if kind == 1:
        program = f"print(sum(i * i for i in {over}))"
        return f"Sum of the squares {said}?", [program], sum(i * i for i in numbers)
    program = f"print(sum(i % {step} == 0 for i in {over}))"
    return f"How many numbers {said} does {step} divide?", [program], sum(i % step == 0 for i in numbers)


def _two_steps(rng: np.random.Generator) -> tuple[str, list[str], int]:
    problem, programs, value = _range(rng)
    factor = int(rng.integers(2, 20))
    return f"{problem} Multiply that by {factor}.", [*programs, f"print(LAST * {factor})"], value * factor
