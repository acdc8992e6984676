"""Writes chosen episodes of a run as one self-contained HTML file.

Says what it left out, in the log and in the page: nothing is dropped in silence.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accredit.credit.errors import TraceError
from accredit.credit.traces import IndexRow, StoredEpisode, TraceReader, open_run

from .bundle import bundle
from .overlays import group_scales
from .pack import pack

__all__ = ["export", "page_of"]

_log = logging.getLogger(__name__)
_PAGE_BYTES = 100_000  # the page itself, before any episode


@dataclass(frozen=True, slots=True)
class _Chosen:
    episodes: list[StoredEpisode]
    packed: list[str]
    notice: str


def export(
    run: str | Path | TraceReader,
    out: str | Path,
    *,
    episodes: Sequence[str] | None = None,
    group: str | None = None,
    step: int | None = None,
    split: str | None = None,
    top: int | None = None,
    budget_mb: float = 20.0,
    title: str | None = None,
) -> Path:
    """Write one HTML file with the chosen episodes and return its path.

    Args:
        run: a run's directory, its traces folder, or an open reader.
        out: the file to write.
        episodes: ids to take, in this order; None for all.
        group: take the rollouts of this group only.
        step: take this step only. Without it, an id that several steps used gives the latest.
        split: take this split only (`train`, `heldout`).
        top: of what is left, take the `top` highest rewards; unscored episodes come last.
        budget_mb: the size of the file at which to stop adding episodes; the first one is always taken.
        title: the page's title; by default the run's name.

    Raises:
        TraceError: nothing matches, or an id is unknown.

    """
    reader = run if isinstance(run, TraceReader) else open_run(run)
    rows = _select(reader, episodes, group, step, split)
    if top is not None:
        # An ordered choice by reward, kept in the order written so that groups stay together.
        rows = sorted(rows, key=lambda row: (row.reward is None, -(row.reward or 0.0)))[:top]
        rows.sort(key=lambda row: row.offset)
    chosen = _within(reader, rows, budget_mb)
    if chosen.notice:
        _log.warning("%s", chosen.notice)
    if title is None:
        title = reader.folder.resolve().parent.name if reader.folder.name == "traces" else reader.folder.name
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.unfinished")
    unfinished.write_text(_render(title, chosen), encoding="utf-8")
    unfinished.replace(out)
    return out


def page_of(episodes: Sequence[StoredEpisode], title: str = "episodes") -> str:
    """Return the page of episodes at hand, without a run on disk."""
    return _render(title, _Chosen(list(episodes), [pack(episode) for episode in episodes], ""))


def _select(
    reader: TraceReader, ids: Sequence[str] | None, group: str | None, step: int | None, split: str | None
) -> list[IndexRow]:
    rows = reader.index()
    total = len(rows)
    for name, wanted in (("group", group), ("step", step), ("split", split)):
        if wanted is not None:
            kept = [row for row in rows if getattr(row, name) == wanted]
            if not kept:
                present = sorted({str(getattr(row, name)) for row in rows})
                shown = ", ".join(present[:8]) + (", ..." if len(present) > 8 else "")
                raise TraceError(f"no episode of {reader.folder} has {name} {wanted!r}: there are {shown or 'none'}")
            rows = kept
    if ids is not None:
        latest = {row.episode_id: row for row in rows}
        missing = [name for name in ids if name not in latest]
        if missing:
            raise TraceError(
                f"no episode {missing[0]!r} among the {len(rows)} that match (of {total}): see index.jsonl"
            )
        rows = [latest[name] for name in ids]
    if not rows:
        raise TraceError(f"{reader.folder} holds no episodes yet: run a step first")
    return rows


def _within(reader: TraceReader, rows: Sequence[IndexRow], budget_mb: float) -> _Chosen:
    """Load rows, newest steps first, until the budget is spent; give them back in the order asked for."""
    room = budget_mb * 1e6 - _PAGE_BYTES
    taken: dict[int, tuple[StoredEpisode, str]] = {}
    newest_first = sorted(range(len(rows)), key=lambda index: -rows[index].step)
    for index in newest_first:
        episode = reader.load(rows[index])
        text = pack(episode)
        if taken and len(text) > room:
            break
        room -= len(text)
        taken[index] = (episode, text)
    left = len(rows) - len(taken)
    notice = ""
    if left:
        notice = (
            f"{len(taken)} of {len(rows)} episodes are in this file, {left} are left out: "
            f"the budget is {budget_mb:g} MB, newest steps first"
        )
    kept = [taken[index] for index in sorted(taken)]
    return _Chosen([episode for episode, _ in kept], [text for _, text in kept], notice)


def _render(title: str, chosen: _Chosen) -> str:
    groups: dict[tuple[int, str], list[StoredEpisode]] = {}
    for index, episode in enumerate(chosen.episodes):
        groups.setdefault(_group_key(index, episode), []).append(episode)
    scales = {key: group_scales(members) for key, members in groups.items()}
    listed = [_entry(e, scales[_group_key(i, e)]) for i, e in enumerate(chosen.episodes)]
    return bundle(title, {"title": title, "notice": chosen.notice, "episodes": listed}, chosen.packed)


def _group_key(index: int, episode: StoredEpisode) -> tuple[int, str]:
    name = episode.trajectory.group
    return (episode.step, name) if name else (-1 - index, "")


def _entry(episode: StoredEpisode, scales: dict[str, float]) -> dict[str, Any]:
    t = episode.trajectory
    return {
        "id": t.episode_id,
        "step": episode.step,
        "split": episode.split,
        "group": t.group,
        "env": t.env_id,
        "task": t.task_id,
        "reward": t.reward,
        "stop": t.stop.value,
        "turns": t.turns,
        "tokens": len(t),
        "charges": len(t.charges),
        "charged": float(sum(charge.amount for charge in t.charges)),
        "scales": scales,
    }
