"""Metrics of a run: one JSON object a line, and the trackers.

A name says what is measured, and its unit where it has one. A step has one line of training and at most one of
evaluation: a run that goes on from a checkpoint first cuts off what lies after it.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .trackers import Trackers
from .whole_file import replace_file

__all__ = ["MetricsWriter", "cut_after", "open_metrics", "read_metrics"]


class MetricsWriter:
    """Appends to `metrics.jsonl` under `folder`, and hands every number to the trackers (default: TensorBoard)."""

    def __init__(self, folder: Path, trackers: Trackers | None = None) -> None:
        torn = _is_torn(folder / "metrics.jsonl")
        self._file = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")  # closes a line torn by a crash, or it would swallow the next
        self._trackers = Trackers(folder) if trackers is None else trackers

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write one step's metrics. A value that is not finite is kept as null."""
        kept = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in metrics.items()}
        self._file.write(json.dumps({"step": step, **kept}) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._trackers.log(step, kept)

    def close(self) -> None:
        """Close both."""
        self._file.close()
        self._trackers.close()


def open_metrics(folder: Path, trackers: Sequence[str], settings: dict[str, Any], done: int) -> MetricsWriter:
    """Open the metrics of a run that has `done` steps in a checkpoint; those of later steps are cut off."""
    path = folder / "metrics.jsonl"
    goes_on = path.exists()
    kept = done or -1  # without a checkpoint even the evaluation of step 0 is made again
    cut_after(path, kept)
    return MetricsWriter(folder, Trackers(folder, trackers, settings, kept if goes_on else None))


def cut_after(path: Path, step: int) -> None:
    """Remove the lines after `step`, and torn ones, from `path`, whole or not at all."""
    if not path.exists():
        return
    kept = [text for text, line in _whole_lines(path) if line["step"] <= step]
    replace_file(path, "".join(f"{text}\n" for text in kept))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl`; a torn line is skipped, the later of two lines for one step and kind counts."""
    return list({(line["step"], "eval/success" in line): line for _, line in _whole_lines(path)}.values())


def _whole_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append((text, json.loads(text)))
        except json.JSONDecodeError:
            continue
    return found


def _is_torn(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() != b"\n"
