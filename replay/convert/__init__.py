"""Converts stored episodes to and from the files of other projects: verifiers' traces and OpenEnv's training traces.

Token ids, masks, log-probabilities and advantages are kept both ways; what a format has no place for is said. It reads
plain JSON and needs neither package.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from accredit.credit import TraceError
from accredit.credit.traces import StoredEpisode, TraceWriter

from .draft import IMPORTED, Conversion, Texts
from .openenv import read_trace, trace_line
from .verifiers_in import read_episode
from .verifiers_out import episode_line

__all__ = ["FORMATS", "IMPORTED", "Conversion", "Texts", "read_foreign", "write_foreign", "write_run"]

FORMATS = ("verifiers", "openenv")
_TERMS = "of credit and advantage the sum of the advantage's terms is kept, not the terms"


def read_foreign(path: str | Path, texts: Texts | None = None) -> Conversion:
    """Read a file of verifiers (`traces.jsonl`) or OpenEnv (a `TrainingTrace`, as JSON or one a line).

    Args:
        path: the file, or a folder with a `traces.jsonl`.
        texts: gives the bytes of each id, such as a renderer's `token_bytes`; without it the text of a message lies
            on its first token.

    Raises:
        TraceError: it is neither, or broken, with the line.

    """
    path = Path(path)
    path = path / "traces.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise TraceError(f"there is no file {path}: expected traces of {' or '.join(FORMATS)}")
    into = Conversion()
    for name, value in _values(path):
        if isinstance(value, list):  # entries, as a viewer of OpenEnv takes them
            turns = [{**entry, "node_id": entry["metadata"]["node_id"]} for entry in value]
            read_trace({"turns": turns}, name, into, texts)
        elif isinstance(value, dict) and "turns" in value:
            read_trace(value, name, into, texts)
        elif isinstance(value, dict) and ("traces" in value or "nodes" in value):
            read_episode(value, name, into, texts)
        else:
            found = sorted(value)[:6] if isinstance(value, dict) else type(value).__name__
            raise TraceError(
                f"{name} is of no known format: expected 'traces' or 'nodes' (verifiers) or 'turns' (OpenEnv), "
                f"found {found}"
            )
    if texts is None and into.episodes:
        into.notes["without a tokenizer the text of a message lies on its first token"] += len(into.episodes)
    return into


def write_run(conversion: Conversion, run: str | Path) -> Path:
    """Write converted episodes as the traces of a new run and return its folder.

    Raises:
        TraceError: there are traces already, or two episodes of a step have one id.

    """
    run = Path(run)
    if (run / "traces" / "episodes.jsonl").exists():
        raise TraceError(f"{run} holds traces already: choose another folder, nothing was overwritten")
    if not conversion.episodes:
        raise TraceError("no episode to write: the file holds none with token ids")
    writer = TraceWriter(run / "traces")
    steps: dict[tuple[int, str], list[StoredEpisode]] = {}
    for episode in conversion.episodes:
        steps.setdefault((episode.step, episode.split), []).append(episode)
    for (step, split), episodes in sorted(steps.items()):
        writer.write_stored(step, episodes, split)
    return run


def write_foreign(episodes: Iterable[StoredEpisode], out: str | Path, to: str, run: str = "accredit") -> Counter[str]:
    """Write episodes as `verifiers` or `openenv`, one a line, and return what was lost: line -> how often.

    Raises:
        TraceError: `to` is no known format, there is such a file, or there are no episodes.

    """
    if to not in FORMATS:
        raise TraceError(f"there is no format '{to}': expected {' or '.join(FORMATS)}")
    out = Path(out)
    if out.exists():
        raise TraceError(f"{out} exists already: choose another name, nothing was overwritten")
    out.parent.mkdir(parents=True, exist_ok=True)
    lost: Counter[str] = Counter()
    draft = out.with_name(f".{out.name}.unfinished")
    written = 0
    with draft.open("w", encoding="utf-8") as file:
        for episode in episodes:
            if not episode.trajectory.decisions:
                lost["episodes without a sampled token are left out"] += 1
                continue
            line = episode_line(episode, run) if to == "verifiers" else trace_line(episode)
            file.write(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n")
            written += 1
            lost[_TERMS] += episode.credit is not None
            if to == "openenv" and episode.trajectory.decisions[-1].end < len(episode.trajectory):
                lost["tokens after the last decision lie in the metadata only"] += 1
        file.flush()
        os.fsync(file.fileno())
    if not written:
        draft.unlink()
        raise TraceError("no episode to write: none that was chosen has a sampled token")
    draft.replace(out)
    return lost


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (a name, a JSON value): of a whole file, or of each line."""
    text = path.read_text(encoding="utf-8")
    try:
        yield path.stem, json.loads(text)
        return
    except ValueError:
        pass
    for place, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                value = json.loads(line)
            except ValueError as error:
                raise TraceError(f"line {place} of {path} is no JSON ({error})") from error
            yield f"{path.stem}-{place}", value
