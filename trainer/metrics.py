"""Metrics of a run: one JSON object a line, and TensorBoard.

A name says what is measured, and its unit where it has one. After a resume a step may stand twice; the later counts.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["MetricsWriter", "read_metrics"]


class MetricsWriter:
    """Appends to `metrics.jsonl` and to a TensorBoard folder under `folder`."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        torn = _is_torn(folder / "metrics.jsonl")
        self._file = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        if torn:
            self._file.write("\n")  # closes a line torn by a crash, or it would swallow the next
        self._board = SummaryWriter(str(folder / "tensorboard"))

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write one step's metrics. A value that is not finite is kept as null."""
        kept = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in metrics.items()}
        self._file.write(json.dumps({"step": step, **kept}) + "\n")
        self._file.flush()
        for name, value in kept.items():
            if isinstance(value, int | float):
                self._board.add_scalar(name, value, step)
        self._board.flush()

    def close(self) -> None:
        """Close both."""
        self._file.close()
        self._board.close()


def _is_torn(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read() != b"\n"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read `metrics.jsonl`; a torn line is skipped, the later of two lines for one step and kind counts."""
    lines: dict[tuple[int, str], dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        lines[(line["step"], "eval" if "eval/success" in line else "train")] = line
    return list(lines.values())
