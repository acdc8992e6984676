"""PythonMath: number problems where the policy writes Python, reads the output, and answers.

The code runs in a sandbox (`accredit.sandboxes`), a fresh process a call. An exception is charged on the failing
expression, a timeout on the call, an infrastructure fault on nobody; what is printed to stderr costs nothing.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from accredit.credit import CallStatus
from accredit.envs.core import ToolEnv
from accredit.envs.errors import InfrastructureError, ToolError
from accredit.envs.task import Task
from accredit.envs.tools import tool
from accredit.sandboxes import Blame, Limits, Outcome, Status
from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.select import select

from .scripted import format_call

__all__ = ["PythonMath"]

_STATUS = {
    Status.TIMEOUT_CPU: CallStatus.TIMEOUT,
    Status.TIMEOUT_WALL: CallStatus.TIMEOUT,
    Status.OUT_OF_MEMORY: CallStatus.OUT_OF_MEMORY,
    Status.OUTPUT_LIMIT: CallStatus.OUTPUT_LIMIT,
    Status.EXIT: CallStatus.NONZERO_EXIT,
    Status.SIGNAL: CallStatus.NONZERO_EXIT,
    Status.NO_RESULT: CallStatus.NONZERO_EXIT,
    Status.DENIED: CallStatus.REFUSED,
}
_SHOWN = 2000
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
        self.interpreter = _Interpreter(self.run_limits)

    @tool(timeout_s=30.0, output_limit=_SHOWN)
    def python(self, code: str) -> str:
        """Run Python code, see what it prints."""
        outcome = self.interpreter.run(code)
        if outcome.blame is Blame.INFRASTRUCTURE:
            raise InfrastructureError(f"the sandbox failed ({outcome.status}): {outcome.evidence.detail}")
        printed = outcome.stdout.decode("utf-8", errors="replace").rstrip("\n")
        if outcome.blame is not Blame.MODEL:
            return printed
        span = outcome.error_spans[-1] if outcome.error_spans else None
        raise ToolError(
            "\n".join(part for part in (printed, _said(outcome)) if part),
            argument="code" if span else None,
            status=_STATUS.get(outcome.status, CallStatus.TOOL_ERROR),
            source_range=(span.start, span.end) if span else None,
            detail=_detail(outcome),
        )

    def reward(self) -> float:
        """Return 1 if the answer's last whole number is the right one."""
        numbers = _NUMBER.findall(self.answer.replace(",", ""))
        return float(bool(numbers) and int(numbers[-1]) == self.task.answer)

    def state_key(self) -> str:
        """Return a key of the turn and of what the last call printed: no run changes what a later run sees."""
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


class _Interpreter:
    """A sandbox session that is opened at its first run; a copy opens its own."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._session: SlotClient | None = None

    def run(self, code: str) -> Outcome:
        if self._session is None:
            self._session = select().open_blocking(self._limits)
        return self._session.run(code)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Interpreter":
        return _Interpreter(self._limits)


def _said(outcome: Outcome) -> str:
    if outcome.error_spans:
        span = outcome.error_spans[-1]
        return f"{span.error}: {span.message} (line {span.line})"
    return {
        Status.TIMEOUT_CPU: "stopped: too much computing time",
        Status.TIMEOUT_WALL: "stopped: too slow",
        Status.OUT_OF_MEMORY: "stopped: out of memory",
        Status.OUTPUT_LIMIT: "stopped: too much output",
        Status.NO_RESULT: "the program ended before its last line",
    }.get(outcome.status, f"failed: {outcome.status}, exit code {outcome.exit_code}")


def _detail(outcome: Outcome) -> dict[str, Any]:
    return {
        "sandbox_status": str(outcome.status),
        "blame": str(outcome.blame),
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "stdout": outcome.stdout.decode("utf-8", errors="replace")[:_SHOWN],
        "stderr": outcome.stderr.decode("utf-8", errors="replace")[:_SHOWN],
        "wall_s": outcome.usage.wall_s,
        "cpu_s": outcome.usage.cpu_s,
        "peak_memory_mb": outcome.usage.peak_memory_mb,
        "isolation": outcome.isolation_id,
    }


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
