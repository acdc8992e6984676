"""Cutting a traces folder back to a step, for a run that goes on from a checkpoint and lives the later steps again."""

import json
import os
from pathlib import Path

from .columns import sync_folder
from .reader import TraceReader

__all__ = ["cut_after"]


def cut_after(folder: str | Path, step: int) -> None:
    """Remove the episodes after `step` from `folder`, with torn lines and token files that no episode names.

    Steps are written in order, so what goes is the end of `episodes.jsonl`. A kill at any point leaves a folder that
    reads, and that cutting again brings to the same end: the index goes first, then the lines, then the token files.
    """
    folder = Path(folder)
    episodes = folder / "episodes.jsonl"
    rows = TraceReader(folder).rows() if episodes.is_file() else []
    while rows and rows[-1].step > step:
        rows.pop()
    if episodes.is_file():
        draft = folder / ".index.jsonl.unfinished"
        with draft.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row.to_line(), separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / "index.jsonl")
        with episodes.open("rb+") as file:
            file.truncate(rows[-1].offset + rows[-1].length if rows else 0)
            os.fsync(file.fileno())
    named = {row.file for row in rows}
    for path in [*folder.glob("tokens-*.parquet"), *folder.glob(".*.unfinished")]:
        if path.name not in named:
            path.unlink()
    if folder.is_dir():
        sync_folder(folder)
