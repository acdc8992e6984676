"""The listing: one row an episode, as columns, so that half a million rows reach the page in one piece.

What a row says beyond the index of a traces folder (`tools`, `errors`, the extremes of credit) is known only to who has
read the episode; a listing without it lacks the column, and the page says which word of a filter it cannot answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from accredit.credit.traces import IndexRow, StoredEpisode

from .pack import Columns, block

__all__ = ["Row", "listing_block"]

_NAMES = ("split", "group", "env", "task", "stop")


@dataclass(frozen=True, slots=True)
class Row:
    """One episode of a listing. None = not known here (see the module's text); of `reward`, unscored."""

    id: str
    step: int
    split: str
    group: str
    env: str
    task: str
    stop: str
    reward: float | None
    turns: int
    tokens: int
    charges: int
    charged: float | None = None
    """Sum of the charges' amounts, in reward."""
    trained: int | None = None
    """Number of tokens under the policy mask."""
    credit_low: float | None = None
    """The least credit of a token; None without credit."""
    credit_high: float | None = None
    on_calls: float | None = None
    """Sum of the credit of decision tokens inside a call; `on_thoughts`: outside of all calls."""
    on_thoughts: float | None = None
    tools: tuple[str, ...] | None = None
    errors: tuple[str, ...] | None = None
    """Statuses of calls that did not run, and reasons of charges, each once."""

    @classmethod
    def of_index(cls, row: IndexRow) -> "Row":
        """Make the row of an index line: what is known without reading the episode."""
        return cls(
            row.episode_id, row.step, row.split, row.group, row.env_id, row.task_id, row.stop, row.reward, row.turns,
            row.tokens, row.charges,
        )  # fmt: skip

    @classmethod
    def of_episode(cls, episode: StoredEpisode) -> "Row":
        """Make the full row of an episode that was read."""
        t = episode.trajectory
        mask_T = t.credit_mask
        in_call_T = np.zeros(len(t), dtype=bool)
        for call in t.calls:
            in_call_T[call.start : call.end] = True
        failed = [call.status.value for call in t.calls if not call.status.ran]
        credit_T = None if episode.credit is None else episode.credit.credit.total
        priced = credit_T is not None and bool(mask_T.any())
        return cls(
            t.episode_id, episode.step, episode.split, t.group, t.env_id, t.task_id, t.stop.value, t.reward, t.turns,
            len(t), len(t.charges),
            charged=float(sum(charge.amount for charge in t.charges)),
            trained=int(mask_T.sum()),
            credit_low=float(credit_T[mask_T].min()) if priced and credit_T is not None else None,
            credit_high=float(credit_T[mask_T].max()) if priced and credit_T is not None else None,
            on_calls=None if credit_T is None else float(credit_T[mask_T & in_call_T].sum()),
            on_thoughts=None if credit_T is None else float(credit_T[mask_T & ~in_call_T].sum()),
            tools=tuple(sorted({call.name for call in t.calls if call.name})),
            errors=tuple(sorted({*failed, *(charge.reason for charge in t.charges)})),
        )  # fmt: skip


def listing_block(rows: Sequence[Row], next_cursor: int = 0) -> bytes:
    """Return `rows` as one block (layout: `pack.block`).

    Header: `rows`, `next` (pass it as `from` to get what came later), `tables` (texts that the code columns point to;
    of `tools` and `errors` a list of texts). Columns: `id_length` u4 and `id` u1 (UTF-8, joined), `step` i4, codes
    `split` `group` `env` `task` `stop` i4, `reward` f4 (NaN = unscored), `turns` `tokens` `charges` i4; where known
    `charged` f4, `trained` i4, `credit_low` `credit_high` `on_calls` `on_thoughts` f4 (NaN = no credit), codes
    `tools` `errors` i4.
    """
    ids = [row.id.encode("utf-8", "replace") for row in rows]
    columns: Columns = {
        "id_length": np.array([len(name) for name in ids], dtype="<u4"),
        "id": np.frombuffer(b"".join(ids), dtype="u1"),
        "step": _integers(rows, lambda row: row.step),
    }
    tables: dict[str, list[Any]] = {}
    for name in _NAMES:
        columns[name], tables[name] = _codes([getattr(row, name) for row in rows])
    columns["reward"] = _floats(rows, lambda row: row.reward)
    for name in ("turns", "tokens", "charges"):
        columns[name] = _integers(rows, lambda row, name=name: getattr(row, name))
    if rows and all(row.trained is not None for row in rows):
        columns["trained"] = _integers(rows, lambda row: row.trained or 0)
        for name in ("charged", "credit_low", "credit_high", "on_calls", "on_thoughts"):
            columns[name] = _floats(rows, lambda row, name=name: getattr(row, name))
        for name in ("tools", "errors"):
            columns[name], found = _codes([getattr(row, name) or () for row in rows])
            tables[name] = [list(words) for words in found]
    return block({"rows": len(rows), "next": next_cursor, "tables": tables}, columns)


def _codes(values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
    table: dict[Any, int] = {}
    codes = np.fromiter((table.setdefault(value, len(table)) for value in values), dtype="<i4", count=len(values))
    return codes, list(table)


def _integers(rows: Sequence[Row], of: Callable[[Row], int]) -> np.ndarray:
    return np.fromiter((of(row) for row in rows), dtype="<i4", count=len(rows))


def _floats(rows: Sequence[Row], of: Callable[[Row], float | None]) -> np.ndarray:
    return np.array([np.nan if of(row) is None else of(row) for row in rows], dtype="<f4")
