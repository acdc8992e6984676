"""Runs one read-only query on a database in memory, within bounds of time and memory.

The database is SQLite in this process, which holds no file: nothing but its own tables can be read, and nothing
written. That is a choice against a sandbox, for speed and for machines without one, and it rests on four bounds. An
authorizer allows reading the tables and a list of functions, and nothing else. No value may be longer than
`VALUE_BYTES`, so no single step is long or large. A handler that SQLite calls every few hundred steps ends a query that
took too many of them, too much time, or too much memory. The text itself is short and a single statement.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import apsw

from .places import keyword_place, place_of, second_statement, unusable

__all__ = ["Database", "Failure", "QueryError", "Table", "Value"]

Value = str | int | float | bytes | None
"""What a cell of a result may hold."""

VALUE_BYTES = 20_000
SQL_CHARACTERS = 4_000
MOST_ROWS = 1_000
MOST_STEPS = 4_000_000
MOST_S = 5.0
MOST_MEMORY = 64 << 20
MOST_RESULT = 1 << 20
_BETWEEN = 200
_LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: VALUE_BYTES,
    apsw.SQLITE_LIMIT_COLUMN: 40,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 60,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    apsw.SQLITE_LIMIT_VDBE_OP: 20_000,
    apsw.SQLITE_LIMIT_FUNCTION_ARG: 20,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_FUNCTIONS = frozenset(
    """
    abs avg ceil ceiling char coalesce concat concat_ws count cume_dist dense_rank first_value
    floor format glob group_concat hex ifnull iif instr lag last_value lead length like likelihood
    likely lower ltrim max min mod nth_value ntile nullif percent_rank power printf quote rank replace round
    row_number rtrim sign sqrt string_agg substr substring sum total trim trunc typeof unicode
    unlikely upper zeroblob
    """.split()
)


class Failure(StrEnum):
    """Why a query has no result."""

    ERROR = "error"
    DENIED = "denied"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"


class QueryError(Exception):
    """A query has no result. `place` is the half-open range of its characters that is to blame, None for all of it."""

    def __init__(self, failure: Failure, message: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.failure, self.message, self.place = failure, message, place


@dataclass(frozen=True, slots=True)
class Table:
    """A result: names of columns, and rows. `cut` says that there were more than `MOST_ROWS`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    cut: bool = False


class Database:
    """Tables in memory, opened at the first query; a copy opens its own, so that threads never share a connection.

    Args:
        creation: statements that make the tables.
        rows: rows of each table, by its name.

    """

    def __init__(self, creation: Sequence[str], rows: dict[str, list[tuple[Value, ...]]]) -> None:
        self._creation, self._rows = tuple(creation), rows
        self._connection: apsw.Connection | None = None
        self._lock = threading.Lock()

    def run(self, sql: str) -> Table:
        """Run one query.

        Raises:
            QueryError: it is wrong, not allowed, or takes more than it may.

        """
        if len(sql) > SQL_CHARACTERS:
            raise QueryError(Failure.ERROR, f"the query has {len(sql)} characters, at most {SQL_CHARACTERS} are read")
        _refuse_at_sight(sql)
        with self._lock, _ALONE:
            if self._connection is None:
                self._connection = self._open()
            return _run(self._connection, sql)

    def close(self) -> None:
        """Forget the tables; a later query makes them anew."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Database":
        return Database(self._creation, self._rows)

    def _open(self) -> apsw.Connection:
        connection = apsw.Connection(":memory:")
        connection.execute("PRAGMA temp_store = memory")  # what a sort needs is counted as memory, never a file
        for statement in self._creation:
            connection.execute(statement)
        for table, rows in self._rows.items():
            if rows:
                connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        connection.execute("PRAGMA query_only = on")
        for limit, value in _LIMITS.items():
            connection.limit(limit, value)
        tables = frozenset((*self._rows, "sqlite_master", "sqlite_schema"))
        connection.authorizer = lambda *asked: _authorize(tables, *asked)
        return connection


_ALONE = threading.Lock()
"""Memory is counted for the process: one query at a time, so that none pays for what another takes."""


class _Meter:
    """Counts what a query takes; SQLite asks it every few hundred steps whether to stop."""

    def __init__(self) -> None:
        self.stopped: Failure | None = None
        self._calls, self._started, self._memory = 0, time.thread_time(), apsw.memory_used()

    def __call__(self) -> bool:
        self._calls += 1
        if apsw.memory_used() - self._memory > MOST_MEMORY:
            self.stopped = Failure.OUT_OF_MEMORY
        elif self._calls * _BETWEEN > MOST_STEPS or time.thread_time() - self._started > MOST_S:
            self.stopped = Failure.TIMEOUT
        return self.stopped is not None


def _run(connection: apsw.Connection, sql: str) -> Table:
    meter = _Meter()
    columns: list[str] = []
    connection.set_progress_handler(meter, _BETWEEN)
    cursor = connection.cursor()
    cursor.exec_trace = lambda begun, _sql, _values: _note_columns(begun, columns)
    try:
        rows: list[tuple[Value, ...]] = []
        size = 0
        for row in cursor.execute(sql):
            if len(rows) == MOST_ROWS:
                return Table(tuple(columns), tuple(rows), cut=True)
            size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
            if size > MOST_RESULT:
                raise QueryError(Failure.OUT_OF_MEMORY, "stopped: the result is too large")
            rows.append(tuple(row))
        return Table(tuple(columns), tuple(rows))
    except apsw.InterruptError as error:
        said = "out of memory" if meter.stopped is Failure.OUT_OF_MEMORY else "it takes too long"
        raise QueryError(meter.stopped or Failure.TIMEOUT, f"stopped: {said}") from error
    except UnicodeError as error:
        raise QueryError(Failure.ERROR, "a text in the query or its result is no valid UTF-8") from error
    except apsw.Error as error:
        raise _told(error, sql) from error
    finally:
        cursor.close(True)
        connection.set_progress_handler(None)


def _note_columns(cursor: apsw.Cursor, columns: list[str]) -> bool:
    """Keep the names of the columns before the first step: a query without rows is over after it."""
    columns[:] = [str(column[0]) for column in cursor.get_description()]
    return True


def _refuse_at_sight(sql: str) -> None:
    """Refuse what the text alone shows: nothing to run, two statements, something else than a query, placeholders."""
    start, end, keyword = keyword_place(sql)
    if not keyword:
        raise QueryError(Failure.ERROR, "the query is empty")
    if keyword in ("ALTER", "ATTACH", "CREATE", "DELETE", "DROP", "INSERT", "PRAGMA", "REPLACE", "UPDATE", "VACUUM"):
        raise QueryError(Failure.DENIED, f"{keyword} is not allowed: only queries that read are", (start, end))
    place = second_statement(sql)
    if place is not None:
        raise QueryError(Failure.ERROR, "one statement a call", place)
    place = unusable(sql)
    if place is not None:
        raise QueryError(Failure.ERROR, f"unrecognized token: {sql[slice(*place)]!r}", place)


def _told(error: apsw.Error, sql: str) -> QueryError:
    message = str(error)
    denied = isinstance(error, apsw.AuthError) or "not authorized" in message or "prohibited" in message
    place = place_of(sql, message, getattr(error, "error_offset", -1))
    if denied and place is None:
        place = keyword_place(sql)[:2]
    return QueryError(Failure.DENIED if denied else Failure.ERROR, message, place)


def _authorize(
    tables: frozenset[str],
    action: int,
    first: str | None,
    second: str | None,
    database: str | None,
    _source: str | None,
) -> int:
    if action in (apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE):
        return apsw.SQLITE_OK
    if action == apsw.SQLITE_READ:
        # a name that only this query gives (WITH, a subquery) is read without a column and in no database
        inside = first in tables or (database is None and second == "")
        return apsw.SQLITE_OK if inside else apsw.SQLITE_DENY
    if action == apsw.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS:
        return apsw.SQLITE_OK
    return apsw.SQLITE_DENY
