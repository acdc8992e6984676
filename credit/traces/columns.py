"""The token columns of episodes as one Parquet table: a row a token.

Masked log-probabilities, absent ledger terms, and signals where nothing was computed are null, never 0. Terms are
float64, so that a ledger comes back exactly; they are constant over long stretches and cost little once encoded.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from accredit.credit.errors import TraceError
from accredit.credit.ledger import Credit, Ledger
from accredit.credit.trajectory import Trajectory

__all__ = [
    "SIGNALS",
    "EpisodeColumns",
    "TokenColumns",
    "read_rows",
    "sync_folder",
    "to_table",
    "tokens_as_given",
    "tokens_of_ids",
    "write_atomically",
]

ROW_GROUP_TOKENS = 65_536
_FORM: dict[str, Any] = {
    "compression": "zstd",
    "row_group_size": ROW_GROUP_TOKENS,
    "use_dictionary": ["episode_id", "kind", "turn", "token"],  # numbers get smaller, and sooner, without
    "write_statistics": ["episode_id"],
}

SIGNALS = ("trainer_logprob", "entropy")
"""What an update computes of a token before it moves a weight, in nats: the trainer's log-probability, the entropy."""


class EpisodeColumns(NamedTuple):
    """What one episode contributes to a table, beside the bytes of its tokens."""

    trajectory: Trajectory
    credit: Credit | None
    signals: Mapping[str, NDArray[np.float32]]


class TokenColumns(NamedTuple):
    """What comes back of one episode."""

    token_ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    token_bytes: list[bytes]
    credit: Credit | None
    signals: dict[str, NDArray[np.float32]]


def to_table(episodes: Sequence[EpisodeColumns], tokens_N: pa.Array) -> pa.Table:
    """Return the table of `episodes`, one below the other; `tokens_N` has the bytes of all their tokens."""
    lengths = [len(e.trajectory) for e in episodes]
    kinds: list[str] = []
    kind_lengths: list[int] = []
    turns: list[int] = []
    for episode in episodes:
        for span in episode.trajectory.spans:
            kinds.append(str(span.kind))
            kind_lengths.append(len(span))
            turns.append(span.turn)
    columns: dict[str, Any] = {
        "episode_id": _repeated([e.trajectory.episode_id for e in episodes], lengths),
        "position": pa.array(_joined([np.arange(n, dtype=np.int32) for n in lengths], np.int32)),
        "token_id": pa.array(_joined([e.trajectory.token_ids for e in episodes], np.int32)),
        "logprob": _numbers_or_null([e.trajectory.logprobs for e in episodes]),
        "kind": _repeated(kinds, kind_lengths),
        "turn": pa.array(np.repeat(np.array(turns, dtype=np.int32), kind_lengths)),
        "token": tokens_N,
    }
    terms: dict[str, Any] = {}
    for quantity in ("credit", "advantage"):
        ledgers = [None if e.credit is None else _ledger(e.credit, quantity) for e in episodes]
        columns[quantity] = _nullable([None if x is None else x.total for x in ledgers], lengths)
        for name in dict.fromkeys(name for x in ledgers if x is not None for name in x.terms):
            parts = [None if x is None else x.terms.get(name) for x in ledgers]
            terms[f"{quantity}:{name}"] = _nullable(parts, lengths)
    nothing = [np.full(n, np.nan, dtype=np.float32) for n in lengths]
    for name in SIGNALS:
        columns[name] = _numbers_or_null(
            [e.signals.get(name, none_T) for e, none_T in zip(episodes, nothing, strict=True)]
        )
    return pa.table(columns | terms)


def tokens_of_ids(
    trajectories: Sequence[Trajectory], token_bytes: Callable[[Sequence[int]], Sequence[bytes]]
) -> pa.Array:
    """Return the bytes of all tokens of `trajectories`, one after the other; `token_bytes` is asked once an id.

    Raises:
        TraceError: it gave more or fewer byte strings than ids.

    """
    ids_N = pa.array(_joined([t.token_ids for t in trajectories], np.int32)).dictionary_encode()
    used_V = ids_N.dictionary.to_pylist()
    found = token_bytes(used_V)
    if len(found) != len(used_V):
        raise TraceError(f"token_bytes gave {len(found)} byte strings for {len(used_V)} ids: return one a token")
    entries: dict[bytes, int] = {}
    entry_V = np.array([entries.setdefault(raw, len(entries)) for raw in found], dtype=np.int32)
    entry_N = entry_V[ids_N.indices.to_numpy()]
    return pa.DictionaryArray.from_arrays(pa.array(entry_N), pa.array(list(entries), pa.binary()))


def tokens_as_given(token_bytes: Iterable[Sequence[bytes]]) -> pa.Array:
    """Return the bytes of all tokens, given an episode at a time: where one id may stand for several texts."""
    return pa.array([raw for tokens in token_bytes for raw in tokens], type=pa.binary()).dictionary_encode()


def write_atomically(table: pa.Table, path: Path) -> None:
    """Write `table` so that `path` either does not exist or is whole and on disk."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    pq.write_table(table, unfinished, **_FORM)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_rows(path: Path, first_row: int, record: Mapping[str, Any]) -> TokenColumns:
    """Read the rows of one episode. `record` names its ledger terms, in their order.

    Raises:
        TraceError: the file is missing, broken, or holds another episode at these rows.

    """
    rows: int = record["tokens"]["rows"]
    credit_terms, advantage_terms = record["credit_terms"], record["advantage_terms"]
    terms = [*(f"credit:{n}" for n in credit_terms or ()), *(f"advantage:{n}" for n in advantage_terms or ())]
    signals: list[str] = [name for name in record.get("signals", ()) if name in SIGNALS]
    table = _slice(path, first_row, rows, ["episode_id", "token_id", "logprob", "token", *signals, *terms])
    found = table["episode_id"].unique().to_pylist()
    if table.num_rows != rows or (rows and found != [record["episode_id"]]):
        raise TraceError(
            f"{path} holds {table.num_rows} rows of {found} from row {first_row}, expected {rows} of "
            f"'{record['episode_id']}': the folder mixes files of two runs, copy it again as a whole"
        )
    credit = None
    if credit_terms is not None and advantage_terms is not None:
        credit = Credit(
            credit=Ledger(rows, {name: _numbers(table, f"credit:{name}") for name in credit_terms}),
            advantage=Ledger(rows, {name: _numbers(table, f"advantage:{name}") for name in advantage_terms}),
        )
    return TokenColumns(
        table["token_id"].to_numpy().astype(np.int32),
        table["logprob"].to_numpy().astype(np.float32),
        table["token"].cast(pa.binary()).to_pylist(),
        credit,
        {name: table[name].to_numpy().astype(np.float32) for name in signals},
    )


def _slice(path: Path, first_row: int, rows: int, columns: list[str]) -> pa.Table:
    try:
        with pq.ParquetFile(path) as file:
            groups: list[int] = []
            group_start = at = 0
            for index in range(file.num_row_groups):
                end = at + file.metadata.row_group(index).num_rows
                if at < first_row + rows and end > first_row:
                    group_start = group_start if groups else at
                    groups.append(index)
                at = end
            table = file.read_row_groups(groups, columns=columns)
    except FileNotFoundError as error:
        raise TraceError(f"the token columns {path} are missing: copy the whole traces folder") from error
    except (pa.ArrowInvalid, OSError, KeyError) as error:
        raise TraceError(f"the token columns {path} cannot be read ({error}): copy the whole traces folder") from error
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise TraceError(f"{path} has no column {missing}: copy the whole traces folder")
    return table.slice(first_row - group_start, rows)


def _numbers(table: pa.Table, name: str) -> NDArray[np.float64]:
    return np.asarray(table[name].to_numpy(), dtype=np.float64)


def _ledger(credit: Credit, quantity: str) -> Ledger:
    return credit.credit if quantity == "credit" else credit.advantage


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype=dtype), *parts]).astype(dtype, copy=False)


def _numbers_or_null(parts: Sequence[NDArray[np.float32]]) -> pa.Array:
    return pa.array(_joined(parts, np.float32), from_pandas=True)  # NaN is null


def _repeated(values: Sequence[str], lengths: Sequence[int]) -> pa.DictionaryArray:
    places: dict[str, int] = {}
    codes = np.array([places.setdefault(value, len(places)) for value in values], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(np.repeat(codes, lengths)), pa.array(list(places), pa.string()))


def _nullable(parts: Sequence[NDArray[np.float64] | None], lengths: Sequence[int]) -> pa.Array:
    if all(part is not None for part in parts):
        return pa.array(_joined([part for part in parts if part is not None], np.float64))
    absent_N = np.repeat(np.array([part is None for part in parts], dtype=np.bool_), lengths)
    filled = [np.zeros(n) if part is None else part for part, n in zip(parts, lengths, strict=True)]
    return pa.array(_joined(filled, np.float64), mask=absent_N)
