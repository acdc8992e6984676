"""The lines of a run's `metrics.jsonl` for a page that stays open: each is told once, whatever happens in between.

A page holds a position: all before it was told. A position proves itself, since it carries a checksum of the bytes
before it: where they are others now (a run that went on from a checkpoint wrote its file again, another run stands in
its place), the page is told the whole file anew. So nothing has to be remembered of a page between two connections.
"""

import re
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from accredit.replay.metrics import metric_lines, thinned

__all__ = ["MetricsNews", "Position", "metrics_since", "whole_metrics"]

_CHECKED_BYTES = 1024  # enough for the times of the last step, which no two runs share
_WRITTEN = re.compile(r"([0-9]{1,18})-([0-9a-f]{8})")


class Position(NamedTuple):
    """A place in a file: its byte, and the CRC-32 of the last 1024 bytes before it."""

    offset: int = 0
    check: int = 0

    def __str__(self) -> str:
        return f"{self.offset}-{self.check:08x}"

    @classmethod
    def parse(cls, text: str) -> "Position | None":
        """Read what `str` wrote; None where it is something else."""
        found = _WRITTEN.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2], 16))


class MetricsNews(NamedTuple):
    """What a page has not been told: lines, each with the position behind it.

    `anew`: the lines are those of the whole file, thinned where they are many, and what was told before is void.
    """

    anew: bool
    lines: list[tuple[dict[str, Any], Position]]
    end: Position


def metrics_since(path: Path, position: Position | None) -> MetricsNews:
    """Return the whole lines behind `position`; all of them, anew, where the file before it is another (or None)."""
    end = Position() if position is None else position
    start = max(0, end.offset - _CHECKED_BYTES)
    raw, at = _read(path, start), end.offset - start
    anew = position is None or len(raw) < at or crc32(raw[:at]) != end.check
    if anew:
        raw = _read(path, 0) if start else raw
        start, at, end = 0, 0, Position()
    lines: list[tuple[dict[str, Any], Position]] = []
    for line in raw[at : raw.rfind(b"\n") + 1].splitlines(keepends=True):
        at += len(line)
        end = Position(start + at, crc32(raw[max(0, at - _CHECKED_BYTES) : at]))
        lines += [(found, end) for found in metric_lines(line)]
    return MetricsNews(anew, thinned(lines) if anew else lines, end)


def _read(path: Path, start: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""


def whole_metrics(path: Path) -> tuple[list[dict[str, Any]], Position]:
    """Return the lines that a page draws, and the position behind them. Of many every k-th is taken, and the last."""
    news = metrics_since(path, None)
    return [line for line, _ in news.lines], news.end
