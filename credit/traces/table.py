"""The index of a traces folder as columns, kept up to date while the folder is written.

For who lists half a million episodes, or waits for the next ones: no object is made of a row before it is asked for. An
index that does not name every episode (a crash, a lost file) is read through `TraceReader`, which finds them.
"""

import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.json as pj
from numpy.typing import NDArray

from accredit.credit.errors import TraceError

from .reader import TraceReader
from .schema import IndexRow, check_version

__all__ = ["Codes", "IndexTable"]

pc: Any = pyarrow.compute  # its functions are made as it is imported, which no type checker sees
_BLOCK_BYTES = 8 << 20
_BETWEEN = "\x1f"
_TEXTS = ("episode_id", "split", "group", "env_id", "task_id", "stop", "file")
_WHOLE = ("step", "turns", "tokens", "charges", "first_row", "offset", "length")
_SUMMARY = pa.struct(
    [("trained", pa.int64()), ("charged", pa.float64())]
    + [(name, pa.list_(pa.string())) for name in ("tools", "errors")]
    + [(name, pa.float64()) for name in ("credit_low", "credit_high", "on_calls", "on_thoughts")]
)
_SCHEMA = pa.schema(
    [("schema_version", pa.string())]
    + [(name, pa.string()) for name in _TEXTS]
    + [(name, pa.int64()) for name in _WHOLE]
    + [("reward", pa.float64()), ("summary", _SUMMARY)]
)


class Codes(NamedTuple):
    """A column of few distinct values: int32 [N] places in `values`."""

    codes_N: NDArray[np.int32]
    values: list[Any]


class IndexTable:
    """The rows of `folder`, in the order written. `refresh` brings it up to date.

    A cursor counts rows: `since(cursor)` gives those written later. After rows were taken back (a run that goes on from
    a checkpoint cuts off what lies after it) every older cursor gives all rows again.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._table: pa.Table = _SCHEMA.empty_table()
        self._first = 0  # the cursor before the first row of the table
        self._end = 0  # bytes of index.jsonl that are in the table
        self._inode = 0
        self.generation = 0
        """How often rows were taken back."""
        self.refresh()

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def cursor(self) -> int:
        """The cursor after the last row."""
        return self._first + len(self)

    def refresh(self) -> bool:
        """Read what was written since; return whether anything was.

        Raises:
            TraceError: a newer major version wrote it, or a line is no index row.

        """
        path, episodes = self.folder / "index.jsonl", self.folder / "episodes.jsonl"
        if not episodes.is_file():
            return False
        found = path.stat() if path.is_file() else None
        size, inode = (0, self._inode) if found is None else (found.st_size, found.st_ino)
        if len(self) and (size < self._end or inode != self._inode):
            self._begin_anew()
        fresh = self._end == 0
        self._inode = inode
        before = len(self)
        if size > self._end:
            with path.open("rb") as file:
                file.seek(self._end)
                raw = file.read(size - self._end)
            raw = raw[: raw.rfind(b"\n") + 1]  # the rest is still being written
            self._table = pa.concat_tables([self._table, _parsed(raw, path, self._end)])
            self._end += len(raw)
        if fresh and episodes.stat().st_size > self._covered():
            rows = [_writable(row.to_line()) for row in TraceReader(self.folder).rows()]
            if len(rows) < before:
                self._begin_anew()
            self._table = pa.Table.from_pylist(rows, schema=_SCHEMA)
        return len(self) != before or (fresh and len(self) > 0)

    def _begin_anew(self) -> None:
        self._first = self.cursor + 1
        self._table, self._end = _SCHEMA.empty_table(), 0
        self.generation += 1

    def row(self, place: int) -> IndexRow:
        """Return one row."""
        return IndexRow.of_line(self._table.slice(place, 1).to_pylist()[0])

    def find(self, step: int, episode_id: str) -> IndexRow | None:
        """Return the row of an episode, the one written last; None where there is none."""
        places = self._places(pc.and_(pc.equal(self._table["step"], step), self._is("episode_id", episode_id)))
        return self.row(int(places[-1])) if places.size else None

    def group(self, row: IndexRow) -> list[IndexRow]:
        """Return the rows of the whole group of `row`, itself included; without a group it is alone."""
        if not row.group:
            return [row]
        same = pc.and_(pc.equal(self._table["step"], row.step), self._is("group", row.group))
        places = self._places(pc.and_(same, self._is("split", row.split)))
        return list({found.episode_id: found for found in map(self.row, places.tolist())}.values())

    def numbers(self, name: str, cursor: int = 0) -> NDArray[np.float64] | None:
        """Return a column of numbers, float64 [N], NaN for null; None where an older version wrote no summary."""
        column = self._column(name, cursor)
        return None if column is None else np.asarray(column.cast(pa.float64()).to_numpy())

    def codes(self, name: str, cursor: int = 0) -> Codes | None:
        """Return a column of texts, or of lists of texts; None where an older version wrote no summary."""
        column = self._column(name, cursor)
        if column is None:
            return None
        listed = pa.types.is_list(column.type)
        if listed:
            column = pc.binary_join(column, _BETWEEN)
        encoded = column.combine_chunks().dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        texts = encoded.dictionary.to_pylist()
        values = [text.split(_BETWEEN) if text else [] for text in texts] if listed else texts
        return Codes(np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int32), values)

    def ids(self, cursor: int = 0) -> tuple[NDArray[np.uint32], bytes]:
        """Return the length of every episode id in bytes, uint32 [N], and the ids in UTF-8, joined."""
        column = self._since(cursor)["episode_id"]
        lengths = pc.binary_length(column).to_numpy().astype(np.uint32)
        return lengths, "".join(column.to_pylist()).encode()

    def _since(self, cursor: int) -> pa.Table:
        return self._table.slice(max(0, cursor - self._first) if cursor >= self._first else 0)

    def _column(self, name: str, cursor: int) -> pa.ChunkedArray | None:
        rows = self._since(cursor)
        if name in rows.column_names:
            return rows[name]
        summary = rows["summary"]
        return None if summary.null_count or not len(summary) else pc.struct_field(summary, name)

    def _is(self, name: str, text: str) -> Any:
        return pc.equal(self._table[name], text)

    @staticmethod
    def _places(mask: Any) -> NDArray[np.int64]:
        return np.flatnonzero(np.asarray(mask.to_numpy(), dtype=np.bool_))

    def _covered(self) -> int:
        """Return where the last episode that the table names ends in `episodes.jsonl`, provided no byte is missed."""
        if not len(self):
            return 0
        offsets, lengths = self._table["offset"].to_numpy(), self._table["length"].to_numpy()
        order = np.argsort(offsets)
        starts, ends = offsets[order], (offsets + lengths)[order]
        gaps = starts[1:] - ends[:-1]
        return 0 if starts[0] > 1 or bool(np.any(gaps > 1)) else int(ends.max())


def _parsed(raw: bytes, path: Path, start: int) -> pa.Table:
    if not raw:
        return _SCHEMA.empty_table()
    try:
        table = pj.read_json(
            pa.BufferReader(raw),
            read_options=pj.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore"),
        ).select(_SCHEMA.names)
    except pa.ArrowInvalid:  # a line torn by a crash, or an id that is no valid text
        return _parsed_by_line(raw, path, start)
    for version in pc.unique(table["schema_version"]).to_pylist():
        check_version({} if version is None else {"schema_version": version}, str(path))
    missing = [name for name in (*_TEXTS, *_WHOLE) if table[name].null_count]
    if missing:
        raise TraceError(f"{path} lacks {missing[0]} in a line after byte {start}: delete it and read again")
    return table.cast(_SCHEMA)


def _parsed_by_line(raw: bytes, path: Path, start: int) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for line in raw.splitlines():
        try:
            parsed = json.loads(line)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            check_version(parsed, str(path))
            try:
                rows.append(_writable(IndexRow.of_line(parsed).to_line()))
            except KeyError as error:
                raise TraceError(f"{path} lacks {error} after byte {start}: delete it and read again") from error
        elif line.strip():
            logging.getLogger(__name__).warning("%s: skipped a torn line of %d bytes", path, len(line))
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _writable(value: Any) -> Any:
    """Replace what is no valid text (halves of characters), also in the summary, which Arrow cannot hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {name: _writable(inner) for name, inner in value.items()}
    return [_writable(inner) for inner in value] if isinstance(value, list | tuple) else value
