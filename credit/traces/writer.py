"""The writer of trace files: append-only, safe against a crash at any byte.

The token columns of a step are written first, whole and on disk, before any line points to them. Writing a step again
(after a resume) adds files and lines and removes none: the reader takes the last line of a (step, episode).
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accredit.credit.errors import TraceError
from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory

from .columns import SIGNALS, EpisodeColumns, sync_folder, to_table, tokens_as_given, tokens_of_ids, write_atomically
from .reader import StoredEpisode
from .schema import IndexRow, to_record

__all__ = ["TraceWriter"]

TokenBytes = Callable[[Sequence[int]], Sequence[bytes]]
Signals = Mapping[str, NDArray[np.float32]]

_JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False)


class TraceWriter:
    """Writes the episodes of a run into `folder` (by custom, `traces/` in the run's directory)."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._written: set[tuple[int, str]] = set()

    def write(
        self,
        step: int,
        groups: Sequence[Group],
        credits: Sequence[Sequence[Credit]] | None,
        token_bytes: TokenBytes,
        split: str = "train",
        signals: Sequence[Signals] | None = None,
    ) -> None:
        """Store all episodes of `groups`.

        Args:
            step: the training step that they belong to, 0 or more.
            groups: what was rolled out.
            credits: one `Credit` an episode, in the groups' order; None where no credit function ran.
            token_bytes: gives the exact bytes of each id, special tokens as their text; it is asked once an id.
            split: `train` or `heldout`.
            signals: what the update computed, one mapping an episode in the groups' order: `trainer_logprob` and
                `entropy`, float32 [T] in nats, NaN where it computed nothing. None where there was no update.

        Raises:
            TraceError: an episode has no id or one used before in this step, or lengths do not fit.

        """
        episodes = _flatten(groups, credits, signals)
        keys = self._new_keys(step, episodes)
        self._write(step, episodes, tokens_of_ids([e.trajectory for e in episodes], token_bytes), split, keys)

    def write_stored(self, step: int, episodes: Sequence[StoredEpisode], split: str = "train") -> None:
        """Store episodes that were read elsewhere, as they are.

        Raises:
            TraceError: as for `write`.

        """
        columns = [EpisodeColumns(e.trajectory, e.credit, e.signals) for e in episodes]
        keys = self._new_keys(step, columns)
        self._write(step, columns, tokens_as_given(e.token_bytes for e in episodes), split, keys)

    def _write(
        self, step: int, episodes: Sequence[EpisodeColumns], tokens_N: pa.Array, split: str, keys: set[tuple[int, str]]
    ) -> None:
        if not episodes:
            return
        path = self._free_path(step)
        records: list[dict[str, Any]] = []
        first_row = 0
        for trajectory, credit, signals in episodes:
            _check_signals(signals, trajectory)
            records.append(to_record(trajectory, credit, step, split, path.name, first_row, signals))
            first_row += len(trajectory)
        lines = [_line(record) for record in records]
        write_atomically(to_table(episodes, tokens_N), path)
        fresh = not (self.folder / "index.jsonl").exists()
        offset = self._append("episodes.jsonl", lines)
        rows: list[bytes] = []
        for record, line in zip(records, lines, strict=True):
            row = IndexRow.of_record(record, offset, len(line))
            rows.append(_line(row.to_line()))
            offset += len(line)
        self._append("index.jsonl", rows, durable=False)  # a reader makes lost lines of the records again
        if fresh:
            sync_folder(self.folder)
        self._written |= keys  # what failed may be written again

    def _new_keys(self, step: int, episodes: Sequence[EpisodeColumns]) -> set[tuple[int, str]]:
        if step < 0:
            raise TraceError(f"step is {step}, expected 0 or more")
        keys: set[tuple[int, str]] = set()
        for trajectory, *_ in episodes:
            key = (step, trajectory.episode_id)
            if not trajectory.episode_id:
                raise TraceError(
                    f"an episode of step {step} (task '{trajectory.task_id}') has no episode_id: "
                    "pass one to the Recorder, it is how a stored episode is found again"
                )
            if key in keys or key in self._written:
                raise TraceError(
                    f"episode '{trajectory.episode_id}' is written twice in step {step}: "
                    "give every episode of a step its own episode_id"
                )
            keys.add(key)
        return keys

    def _free_path(self, step: int) -> Path:
        path = self.folder / f"tokens-{step:08d}.parquet"
        attempt = 1
        while path.exists():
            path = self.folder / f"tokens-{step:08d}.{attempt}.parquet"
            attempt += 1
        return path

    def _append(self, name: str, lines: Sequence[bytes], durable: bool = True) -> int:
        """Append whole lines and return the byte offset of the first."""
        with (self.folder / name).open("ab+") as file:
            offset = file.seek(0, os.SEEK_END)
            if offset:
                file.seek(offset - 1)
                if file.read(1) != b"\n":
                    file.write(b"\n")  # closes a line torn by a crash, which the reader skips
                    offset += 1
            file.write(b"".join(lines))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        return offset


def _flatten(
    groups: Sequence[Group],
    credits: Sequence[Sequence[Credit]] | None,
    signals: Sequence[Signals] | None,
) -> list[EpisodeColumns]:
    if credits is not None and [len(c) for c in credits] != [len(g) for g in groups]:
        raise TraceError(
            f"credits are for groups of {[len(c) for c in credits]}, found groups of {[len(g) for g in groups]}: "
            "pass one Credit an episode"
        )
    count = sum(len(group) for group in groups)
    if signals is not None and len(signals) != count:
        raise TraceError(f"signals are for {len(signals)} episodes, found {count}: pass one mapping an episode")
    episodes: list[EpisodeColumns] = []
    for index, group in enumerate(groups):
        for member, trajectory in enumerate(group.trajectories):
            credit = None if credits is None else credits[index][member]
            if credit is not None and {credit.credit.length, credit.advantage.length} != {len(trajectory)}:
                raise TraceError(
                    f"the ledgers have {credit.credit.length} and {credit.advantage.length} tokens but episode "
                    f"'{trajectory.episode_id}' has {len(trajectory)}: pass the credit of this trajectory"
                )
            own = {} if signals is None else signals[len(episodes)]
            episodes.append(EpisodeColumns(trajectory, credit, own))
    return episodes


def _check_signals(signals: Signals, trajectory: Trajectory) -> None:
    for name, values_T in signals.items():
        if name not in SIGNALS:
            raise TraceError(f"signal '{name}' has no column, expected one of {', '.join(SIGNALS)}")
        if values_T.shape != (len(trajectory),):
            raise TraceError(
                f"signal '{name}' has shape {values_T.shape} but episode '{trajectory.episode_id}' has "
                f"{len(trajectory)} tokens: pass a number a token, NaN where there is none"
            )


def _line(record: dict[str, Any]) -> bytes:
    try:
        text = _JSON.encode(record)
    except (TypeError, ValueError) as error:
        raise TraceError(
            f"episode '{record.get('episode_id')}' holds what JSON cannot ({error}): "
            "rewards must be finite; options, seeds, arguments and detail of calls plain JSON values"
        ) from error
    return text.encode() + b"\n"
