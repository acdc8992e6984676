"""The PythonRepl environment: cells in a live interpreter that holds the tables, and an answer.

Names stay from cell to cell. What breaks is charged where it broke, also where the broken line stands in a function of
this cell; the answer is compared with what the host computed from its own copy of the tables.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from accredit.envs.catalogue.code import SHOWN, Interpreter, printed
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.core import ToolEnv
from accredit.envs.errors import EnvError
from accredit.envs.state import fingerprint
from accredit.envs.task import Task
from accredit.envs.tools import tool
from accredit.sandboxes import Limits

from .mistakes import broken_cell
from .questions import LEVELS, Question
from .tables import Tables, draw_tables

__all__ = ["Notebook", "PythonRepl"]

_WORD = re.compile(r"-?\d+(?:\.\d+)?|[a-z]+")
"""A number with its decimals is one word: the end of 12.0 is no answer 0."""


@dataclass(slots=True)
class Notebook:
    """The cells that were run, in order: all that the interpreter's names can depend on."""

    cells: list[str] = field(default_factory=list)


class PythonRepl(ToolEnv):
    """Answer a question on small tables with a live interpreter; the reward is 1 for the right answer, else 0.

    Levels: "easy" (filter and count, one cell), "medium" (group, two cells), "hard" (join two tables, three or four).
    """

    levels = tuple(LEVELS)
    max_turns = 10
    run_limits = Limits(wall_s=5.0, cpu_s=5.0, output_bytes=65_536)

    state: Notebook

    def __init__(self, *, system: str | None = None, **settings: Any) -> None:
        super().__init__(system=system, **settings)
        self._own_text = system

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a question of the level in force, and tables; its identity is the question."""
        draft, tables = LEVELS[self.level](rng), draw_tables(rng)
        return Task(
            draft.text,
            answer=draft.answer(tables),
            id=f"{self.level}: {draft.text}",
            data={"question": draft.question, "tables": tables},
        )

    def setup(self) -> None:
        """Start without an interpreter; the first cell opens one and fills it."""
        question = self._question
        if self._own_text is None:
            prices = " prices is CSV text of item,price." if question.with_prices else ""
            self.system = (
                f"rows is a list of dicts with name, item, qty, day.{prices} Use cells of Python, then answer with the "
                "number or word."
            )
        self.close_interpreter()
        self.interpreter = Interpreter(self.run_limits, self._tables.setup_cell(question.with_prices))
        self.state = Notebook()

    @tool(timeout_s=None, output_limit=SHOWN)
    def python(self, code: str) -> str:
        """Run a cell."""
        outcome = self.interpreter.run_cell(code)
        self.state.cells.append(code)
        return printed(outcome, code)

    def reward(self) -> float:
        """Return 1 if the answer's last number or word is the right one."""
        words = _WORD.findall(self.answer.lower().replace(",", ""))
        return float(bool(words) and words[-1] == str(self.task.answer))

    def state_key(self) -> str:
        """Return a hash of the task, the tables, the turn, the cells that were run, and the answer."""
        tables = self._tables.setup_cell(True)
        return fingerprint(repr([self.task.key, tables, self.turn, self.state.cells, self.answer]))

    def expert(self) -> Iterator[str]:
        """Run the question's cells and answer with what the last one prints."""
        for cell in self._question.cells:
            yield format_call("python", code=cell)
        yield self._last_word()

    def sloppy(self, rng: np.random.Generator, error_rate: float) -> Iterator[str]:
        """Work like the expert, with mistakes at `error_rate`: what fails is written anew, a wrong idea stays."""
        question = self._question
        cells = question.cells
        if rng.random() < error_rate:
            old, new = question.slips[int(rng.integers(len(question.slips)))]
            cells = tuple(cell.replace(old, new) for cell in cells)
        for cell in cells:
            if rng.random() < error_rate:
                yield format_call("python", code=broken_cell(cell, rng))
            yield format_call("python", code=cell)
        yield self._last_word()

    def close(self) -> None:
        """End the interpreter."""
        self.close_interpreter()
        super().close()

    def close_interpreter(self) -> None:
        """End the interpreter, if one was opened."""
        if "interpreter" in vars(self):
            self.interpreter.close()

    @property
    def _question(self) -> Question:
        return self._drawn("question", Question)

    @property
    def _tables(self) -> Tables:
        return self._drawn("tables", Tables)

    def _drawn(self, name: str, kind: type[Any]) -> Any:
        found = self.task.data.get(name)
        if not isinstance(found, kind):
            raise EnvError(f"task {self.task.id!r} was not drawn by PythonRepl: pass a task of PythonRepl.draw_task")
        return found

    def _last_word(self) -> str:
        """Return what was printed last; after a failure that is no answer, but said all the same."""
        said = self.last_results[-1].strip().splitlines()
        return said[-1] if said else "none"
