"""Drawing a SQL task: a question, the names it is asked in, and rows that tell right from careless answers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accredit.envs.errors import EnvError

from .answers import same_answer
from .engine import Database, Table
from .questions import LEVELS, Question
from .world import Names, creation, draw_names, draw_rows

__all__ = ["Pair", "SQLTask", "draw_task", "make_pair"]

_MOST_DRAWS = 400


@dataclass(frozen=True, slots=True)
class SQLTask:
    """One drawn task; the databases follow from `seed`."""

    level: str
    names: Names
    question: Question
    seed: int


@dataclass(frozen=True)
class Pair:
    """The database that the policy sees and the one that only the checker sees, with the right answer on each."""

    seen: Database
    hidden: Database
    right: tuple[Table, Table]

    def close(self) -> None:
        """Forget both."""
        self.seen.close()
        self.hidden.close()


def draw_task(rng: np.random.Generator, level: str) -> SQLTask:
    """Draw one task of a level."""
    names = draw_names(rng, whole=level != "easy")
    makers = LEVELS[level]
    question = makers[int(rng.integers(len(makers)))](rng, names)
    return SQLTask(level, names, question, int(rng.integers(2**53)))


def make_pair(task: SQLTask) -> Pair:
    """Build the task's databases, the same at every call.

    Raises:
        EnvError: no rows were found that tell the right query from its rivals.

    """
    rng = np.random.default_rng(task.seed)
    statements = creation(task.names)
    kept: Database | None = None
    for _ in range(_MOST_DRAWS):
        database = Database(statements, draw_rows(rng, task.names, task.question.wanted))
        if not _telling(database, task.question):
            database.close()
        elif kept is None:
            kept = database
        else:
            right = kept.run(task.question.sql), database.run(task.question.sql)
            if not same_answer(*right, ordered=task.question.ordered):
                return Pair(kept, database, right)
            database.close()
    raise EnvError(f"SQL: no rows tell the answer to {task.question.text!r} from its rivals: draw another task")


def _telling(database: Database, question: Question) -> bool:
    """Tell whether the right answer holds something, all rivals differ from it, and all twins do not."""
    right = database.run(question.sql)
    if not right.rows or any(value is None for row in right.rows for value in row):
        return False

    def same(queries: tuple[str, ...]) -> Iterator[bool]:
        return (same_answer(right, database.run(query), ordered=question.ordered) for query in queries)

    return all(same(question.twins)) and not any(same(question.rivals))
