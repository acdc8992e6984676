"""The listing: one row an episode, as columns, so that half a million rows reach the page in one piece.

A row is that of the index of a traces folder. Where an older version wrote it there is no summary (`tools`, `errors`,
the extremes of credit): the listing then lacks its columns, and the page says which word of a filter it cannot answer.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from accredit.credit.traces import IndexRow, StoredEpisode
from accredit.credit.traces.schema import to_record

from .pack import Columns, block

__all__ = ["CODES", "FIGURES", "listing_block", "row_of"]

CODES = {"split": "split", "group": "group", "env": "env_id", "task": "task_id", "stop": "stop"}
"""Columns that point to a table of texts -> their field of an index row; `tools` and `errors` point to lists."""
FIGURES = ("charged", "credit_low", "credit_high", "on_calls", "on_thoughts")
"""Numbers of a summary, NaN where there is no credit."""


def row_of(episode: StoredEpisode) -> IndexRow:
    """Return the row of an episode at hand, with its summary also where an older version stored none."""
    record = to_record(episode.trajectory, episode.credit, episode.step, episode.split, "", 0)
    return IndexRow.of_record(record, 0, 0)


def listing_block(rows: Sequence[IndexRow], next_cursor: int = 0) -> bytes:
    """Return `rows` as one block (layout: `pack.block`).

    Header: `rows`, `next` (pass it as `from` to get what came later), `tables` (texts that the code columns point to;
    of `tools` and `errors` a list of texts). Columns: `id_length` u4 and `id` u1 (UTF-8, joined), `step` i4, codes
    `split` `group` `env` `task` `stop` i4, `reward` f4 (NaN = unscored), `turns` `tokens` `charges` i4; where known
    `charged` f4, `trained` i4, `credit_low` `credit_high` `on_calls` `on_thoughts` f4 (NaN = no credit), codes
    `tools` `errors` i4.
    """
    ids = [row.episode_id.encode("utf-8", "replace") for row in rows]
    columns: Columns = {
        "id_length": np.array([len(name) for name in ids], dtype="<u4"),
        "id": np.frombuffer(b"".join(ids), dtype="u1"),
        "step": _integers([row.step for row in rows]),
    }
    tables: dict[str, list[Any]] = {}
    for name, field in CODES.items():
        columns[name], tables[name] = _codes([getattr(row, field) for row in rows])
    columns["reward"] = _floats([row.reward for row in rows])
    for name in ("turns", "tokens", "charges"):
        columns[name] = _integers([getattr(row, name) for row in rows])
    summaries = [row.summary for row in rows if row.summary is not None]
    if rows and len(summaries) == len(rows):
        columns["trained"] = _integers([summary.trained for summary in summaries])
        for name in FIGURES:
            columns[name] = _floats([getattr(summary, name) for summary in summaries])
        for name in ("tools", "errors"):
            columns[name], tables[name] = _codes([getattr(summary, name) for summary in summaries])
    return block({"rows": len(rows), "next": next_cursor, "tables": tables}, columns)


def _codes(values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    table: dict[Any, int] = {}
    codes = np.fromiter((table.setdefault(value, len(table)) for value in values), dtype="<i4", count=len(values))
    return codes, list(table)


def _integers(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype="<i4")


def _floats(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype="<f4")
