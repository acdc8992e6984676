"""The SQL environment: a schema to read, queries to try, and the last one is the answer.

The reward is 1 if the last query that ran gives the right rows, both on the database that the policy sees and on a
second one with the same schema that it does not see: a number that was copied into the query is right on one of them
only. A query that fails is charged on the token that the database names, a denied statement on its first word, and one
that takes too long on the call.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.credit import CallStatus
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.core import ToolEnv
from accredit.envs.errors import EnvError, ToolError
from accredit.envs.state import canonical_json, fingerprint
from accredit.envs.task import Task
from accredit.envs.tools import tool

from .answers import same_answer
from .engine import Failure, QueryError, Table, Value
from .questions import LEVELS
from .tasks import Pair, SQLTask, draw_task, make_pair
from .world import creation

__all__ = ["SQL"]

_SHOWN_ROWS = 20
_LONGEST_VALUE = 200
_STATUS: Mapping[Failure, CallStatus] = {
    Failure.ERROR: CallStatus.TOOL_ERROR,
    Failure.DENIED: CallStatus.REFUSED,
    Failure.TIMEOUT: CallStatus.TIMEOUT,
    Failure.OUT_OF_MEMORY: CallStatus.OUT_OF_MEMORY,
}


@dataclass
class Progress:
    """What an episode has come to: whether the schema was read, and what the last query gave on both databases."""

    schema_read: bool = False
    seen: Table | None = None
    hidden: Table | None = None
    """None also where the query ran on the seen database only."""


class SQL(ToolEnv):
    """Answer a question with a query; the reward is 1 if the last query that ran is right, else 0.

    Levels: "easy" (one table), "medium" (joins and groups), "hard" (queries in queries, HAVING, windows). Tables and
    columns are named anew in every task.
    """

    system = "Find the answer with SQL (SQLite). The last query counts; then say done."
    levels = tuple(LEVELS)
    max_turns = 8

    state: Progress
    _pair: Pair

    def draw_task(self, rng: np.random.Generator) -> Task:
        """Draw a question of the level in force."""
        drawn = draw_task(rng, self.level)
        return Task(drawn.question.text, id=f"{self.level}: {drawn.question.identity}", data={"drawn": drawn})

    def setup(self) -> None:
        """Fill both databases."""
        self._forget()
        self._pair = make_pair(self._drawn)
        self.state = Progress()

    @tool(timeout_s=None)
    def schema(self) -> str:
        """List tables and columns."""
        self.state.schema_read = True
        return "\n".join(statement.removeprefix("CREATE TABLE ") for statement in creation(self._drawn.names))

    @tool(timeout_s=None)
    def query(self, sql: str) -> str:
        """Run a query."""
        try:
            seen = self._pair.seen.run(sql)
        except QueryError as error:
            raise ToolError(
                error.message,
                argument=None if error.failure in (Failure.TIMEOUT, Failure.OUT_OF_MEMORY) else "sql",
                status=_STATUS[error.failure],
                source_range=error.place,
                detail={"failure": str(error.failure)},
            ) from error
        try:
            hidden = self._pair.hidden.run(sql)
        except QueryError:
            hidden = None
        self.state.seen, self.state.hidden = seen, hidden
        return _shown(seen)

    def reward(self) -> float:
        """Return 1 if the last query gives the right rows on both databases."""
        found, ordered = (self.state.seen, self.state.hidden), self._drawn.question.ordered
        return float(
            all(
                given is not None and same_answer(right, given, ordered=ordered)
                for right, given in zip(self._pair.right, found, strict=True)
            )
        )

    def state_key(self) -> str:
        """Return a hash of the task, of whether its schema was read, and of what the last query gave."""
        drawn = self._drawn
        return fingerprint(f"{self.task.key} {drawn.seed} {canonical_json(self.state)} {self.answer != ''}")

    def expert(self) -> Iterator[str]:
        """Read the schema, run the right query, say done."""
        yield format_call("schema")
        yield format_call("query", sql=self._drawn.question.sql)
        yield "Done."

    def sloppy(self, rng: np.random.Generator, error_rate: float) -> Iterator[str]:
        """Do as the expert does, but write a rival of the right query with probability `error_rate`."""
        question = self._drawn.question
        wrong = rng.random() < error_rate
        rivals = question.rivals or ("SELECT 0",)
        yield format_call("schema")
        yield format_call("query", sql=rivals[int(rng.integers(len(rivals)))] if wrong else question.sql)
        yield "Done."

    def close(self) -> None:
        """Forget the databases."""
        self._forget()
        super().close()

    @property
    def _drawn(self) -> SQLTask:
        drawn = self.task.data.get("drawn")
        if not isinstance(drawn, SQLTask):
            raise EnvError(f"task {self.task.id!r} was not drawn by SQL: pass a task of SQL.draw_task(rng)")
        return drawn

    def _forget(self) -> None:
        if "_pair" in vars(self):
            self._pair.close()


def _shown(table: Table) -> str:
    """Write a result for the policy: names, then a line a row, at most `_SHOWN_ROWS`."""
    lines = [" | ".join(map(_cell, row)) for row in (table.columns, *table.rows[:_SHOWN_ROWS])]
    more = len(table.rows) - _SHOWN_ROWS
    if not table.rows:
        lines.append("(no rows)")
    elif table.cut:
        lines.append(f"(more than {len(table.rows)} rows)")
    elif more > 0:
        lines.append(f"({more} more rows)")
    return "\n".join(lines)


def _cell(value: Value) -> str:
    said: Any = "NULL" if value is None else value
    if isinstance(value, bytes):
        said = f"x'{value[:_LONGEST_VALUE].hex()}'"
    elif isinstance(value, float):
        said = f"{value:.10g}"
    text = str(said)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
