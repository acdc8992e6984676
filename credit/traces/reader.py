"""The reader of trace files.

Reads what is whole and says what it skipped: a line torn by a crash is logged and left out. Of an episode that was
written more than once in a step (a resumed run), the last line counts.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import TraceError
from accredit.credit.ledger import Credit
from accredit.credit.notebook import html_of
from accredit.credit.trajectory import Trajectory

from .columns import read_rows
from .schema import IndexRow, check_version, from_record
from .where import Condition, parse_where

__all__ = ["StoredEpisode", "TraceReader", "open_run"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class StoredEpisode:
    """One episode as it was stored.

    `credit` is None where no credit function ran. `signals` is what the update computed, by name (`trainer_logprob`,
    `entropy`): float32 [T] in nats, NaN where it computed nothing; empty where no update was made.
    """

    trajectory: Trajectory
    credit: Credit | None
    token_bytes: list[bytes]
    step: int
    split: str
    signals: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """Show the episode in a notebook: its text with the mask and its credit, calls and charges."""
        return html_of(self.trajectory, self.token_bytes, self.credit)


class TraceReader:
    """Reads a traces folder, also while it is being written."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / "episodes.jsonl").is_file():
            raise TraceError(f"{self.folder} has no episodes.jsonl: expected a traces folder")

    def index(self) -> list[IndexRow]:
        """Return one row an episode, in the order written."""
        rows: dict[tuple[int, str], IndexRow] = {}
        again = 0
        for row in self.rows():
            again += (row.step, row.episode_id) in rows
            rows.pop((row.step, row.episode_id), None)
            rows[row.step, row.episode_id] = row
        if again:
            _log.info("%s: %d episodes were written again after a resume, the last of each counts", self.folder, again)
        return list(rows.values())

    def episode(self, episode_id: str, step: int | None = None) -> StoredEpisode:
        """Read one episode whole; without `step`, the one written last under this id.

        Raises:
            TraceError: there is no such episode, or its files are broken.

        """
        rows = self.index()
        found = [row for row in rows if row.episode_id == episode_id and step in (None, row.step)]
        if not found:
            steps = sorted({row.step for row in rows if row.episode_id == episode_id})
            near = get_close_matches(episode_id, {row.episode_id for row in rows}, n=3)
            hint = f"nearest: {', '.join(near)}" if near else "`accredit replay show RUN` lists them"
            hint = f"it is stored for steps {steps}" if steps else hint
            raise TraceError(
                f"no episode '{episode_id}'{'' if step is None else f' at step {step}'} in {self.folder} "
                f"({len(rows)} episodes): {hint}"
            )
        return self.load(found[-1])

    def episodes(
        self, *, step: int | None = None, split: str | None = None, where: str = ""
    ) -> Iterator[StoredEpisode]:
        """Read the episodes that fit, in the order written, each when it is asked for.

        Args:
            step: this step only.
            split: this split only (`train`, `heldout`).
            where: a filter such as `reward < 0 and tool:python` (`accredit.credit.traces.where` has the words),
                answered from the index wherever that says enough.

        Raises:
            TraceError: the filter cannot be read (at once, before the first episode), or files are broken.

        """
        return map(self.load, self.select(step=step, split=split, where=where))

    def select(self, *, step: int | None = None, split: str | None = None, where: str = "") -> Iterator[IndexRow]:
        """Yield the index rows of the episodes that fit; the arguments are those of `episodes`."""
        conditions = parse_where(where)
        return (
            row
            for row in self.index()
            if step in (None, row.step) and split in (None, row.split) and self.fits(row, conditions)
        )

    def fits(self, row: IndexRow, conditions: Sequence[Condition]) -> bool:
        """Whether all conditions hold; the episode is read only where its index row does not say."""
        told = [condition.of_index(row) for condition in conditions]
        if all(told):
            return True
        if False in told:
            return False
        episode = self.load(row)
        return all(
            condition.of_episode(episode.trajectory, episode.credit)
            for condition, known in zip(conditions, told, strict=True)
            if known is None
        )

    def load(self, row: IndexRow) -> StoredEpisode:
        """Read the episode of an index row."""
        path = self.folder / "episodes.jsonl"
        with path.open("rb") as file:
            file.seek(row.offset)
            line = file.read(row.length)
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("no object")
        except ValueError as error:
            raise TraceError(f"{path} is broken at byte {row.offset}: delete index.jsonl and read again") from error
        check_version(record, f"episode '{row.episode_id}' of {path}")
        if (record.get("episode_id"), record.get("step")) != (row.episode_id, row.step):
            raise TraceError(
                f"{path} holds episode '{record.get('episode_id')}' of step {record.get('step')} at byte {row.offset}, "
                f"the index says '{row.episode_id}' of step {row.step}: delete index.jsonl and read again"
            )
        columns = read_rows(self.folder / record["tokens"]["file"], record["tokens"]["first_row"], record)
        trajectory = from_record(record, columns.token_ids_T, columns.logprobs_T)
        about = (record["step"], record["split"])
        return StoredEpisode(trajectory, columns.credit, columns.token_bytes, *about, columns.signals)

    def rows(self) -> list[IndexRow]:
        """Return a row for every whole line of `episodes.jsonl`, in order, whether the index names it or not."""
        path, index_path = self.folder / "episodes.jsonl", self.folder / "index.jsonl"
        rows: list[IndexRow] = []
        for line, offset, _ in _lines(index_path, 0) if index_path.is_file() else ():
            check_version(line, f"the line at byte {offset} of {index_path}")
            try:
                rows.append(IndexRow.of_line(line))
            except KeyError as error:
                raise TraceError(f"{index_path} lacks {error} at byte {offset}: delete it and read again") from error
        # A crash between the two files leaves episodes that no index line names; a lost index is all of them.
        rows.sort(key=lambda row: row.offset)
        at = 0
        for start, end in [*((row.offset, row.offset + row.length) for row in rows), (path.stat().st_size, 0)]:
            for record, offset, length in _lines(path, at, start) if start > at else ():
                check_version(record, f"the line at byte {offset} of {path}")
                try:
                    rows.append(IndexRow.of_record(record, offset, length))
                except (KeyError, TypeError) as error:
                    raise TraceError(
                        f"the line at byte {offset} of {path} is no episode ({type(error).__name__}: {error}): "
                        "expected lines as TraceWriter writes them"
                    ) from error
            at = max(at, end)
        return sorted(rows, key=lambda row: row.offset)


def open_run(path: str | Path) -> TraceReader:
    """Open the traces of a run; `path` is the run's directory or its `traces` folder.

    Raises:
        TraceError: there are none, with the runs found below `path`.

    """
    path = Path(path)
    for folder in (path / "traces", path):
        if (folder / "episodes.jsonl").is_file():
            return TraceReader(folder)
    if not path.exists():
        raise TraceError(f"there is no run at {path}: pass the directory of a run, or its traces folder")
    below = sorted(str(found.parent.parent) for found in path.glob("*/traces/episodes.jsonl"))
    hint = f"did you mean one of {', '.join(below[-5:])}?" if below else "a run writes them there as it trains"
    raise TraceError(f"{path} holds no traces (expected {path / 'traces' / 'episodes.jsonl'}): {hint}")


def _lines(path: Path, start: int, end: int | None = None) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the whole JSON lines of bytes [start, end) with offset and length; log what is skipped."""
    with path.open("rb") as file:
        file.seek(start)
        offset = start
        for line in file:
            if end is not None and offset >= end:
                return
            try:
                parsed = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                parsed = None
            if isinstance(parsed, dict):
                yield parsed, offset, len(line)
            elif line.strip():
                _log.warning("%s: skipped a torn line of %d bytes at byte %d", path, len(line), offset)
            offset += len(line)
