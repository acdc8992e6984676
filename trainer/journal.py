"""The journal: the episodes that have ended since the newest checkpoint, so that a killed run need not live them again.

One append-only file of JSON lines, an episode each, written as it ends; emptied when a checkpoint holds what was learnt
from them. It keeps no credit and is nobody's record of a run: that is `traces/`.
"""

import base64
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from accredit.credit import StopReason, TraceError, Trajectory
from accredit.credit.traces.schema import check_version, from_record, to_record

__all__ = ["Journal", "read_episodes", "write_episodes"]

_log = logging.getLogger(__name__)


class Journal:
    """Keeps ended episodes in `path`, and gives back those that an earlier process left there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = read_episodes(path) if path.exists() else {}
        self._file = path.open("ab")

    def ended(self, version: int) -> Mapping[str, Trajectory]:
        """Return the episodes, by id, of which every turn was decided by policy `version`."""
        return {name: kept for name, kept in self._kept.items() if set(kept.policy_versions) <= {version}}

    def add(self, trajectory: Trajectory) -> None:
        """Keep an episode that has ended. One that a machine's failure ended is not kept: it is worth another try."""
        if trajectory.stop is StopReason.INFRASTRUCTURE:
            return
        line = _line(trajectory)
        if line is not None:
            self._file.write(line)
            self._file.flush()  # a killed process loses nothing then; a machine without power may

    def clear(self) -> None:
        """Forget every episode."""
        self._kept = {}
        os.ftruncate(self._file.fileno(), 0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def write_episodes(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """Write episodes into a new file that `read_episodes` reads."""
    path.write_bytes(b"".join(line for trajectory in trajectories if (line := _line(trajectory)) is not None))


def read_episodes(path: Path) -> dict[str, Trajectory]:
    """Read the whole lines, an episode each, by id; cut off what a kill tore."""
    found: dict[str, Trajectory] = {}
    whole = 0
    with path.open("rb+") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                record = json.loads(line)
                check_version(record, f"a line of {path}")
                found[record["episode_id"]] = from_record(
                    record, _column(record, "token_ids", np.int32), _column(record, "logprobs", np.float32)
                )
            except TraceError:
                raise
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("%s: skipped a broken line (%s)", path, error)
        file.truncate(whole)
    return found


def _line(trajectory: Trajectory) -> bytes | None:
    """Return the line of an episode; None, and a word in the log, if a value of it has no JSON."""
    record = to_record(trajectory, None, 0, "", "", 0)
    columns = {"token_ids": _text(trajectory.token_ids), "logprobs": _text(trajectory.logprobs)}
    try:
        return json.dumps({**record, **columns}, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        _log.warning("episode '%s' would be lived again after a kill: %s", trajectory.episode_id, error)
        return None


def _text(column: np.ndarray) -> str:
    return base64.b64encode(column.tobytes()).decode()


def _column(record: Mapping[str, Any], name: str, dtype: Any) -> np.ndarray:
    return np.frombuffer(base64.b64decode(record[name]), dtype=dtype).copy()
