"""Writes chosen episodes of a run as one self-contained HTML file.

Says what it left out, in the log and in the page: nothing is dropped in silence.
"""

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import TraceError
from accredit.credit.traces import IndexRow, StoredEpisode, TraceReader, open_run

from .bundle import bundle
from .listing import listing_block, row_of
from .metrics import metric_lines, thinned
from .overlays import group_scales, signal_scales
from .pack import Shown, episode_block, in_base64
from .pricing import price
from .reencoding import Encode, encoder_of_run, reencoded

__all__ = ["export", "metrics_of_run", "page_of", "shown_group", "title_of"]

Signals = Callable[[StoredEpisode], Mapping[str, NDArray[np.float64]]]

_log = logging.getLogger(__name__)
_PAGE_BYTES = 190_000  # the page itself, before any episode


@dataclass(frozen=True, slots=True)
class _Chosen:
    rows: list[IndexRow]
    packed: list[str]
    notice: str = ""


def export(
    run: str | Path | TraceReader,
    out: str | Path,
    *,
    episodes: Sequence[str] | None = None,
    group: str | None = None,
    step: int | None = None,
    split: str | None = None,
    where: str = "",
    top: int | None = None,
    budget_mb: float = 20.0,
    title: str | None = None,
    functions: Sequence[str] = (),
    signals: Signals | None = None,
) -> Path:
    """Write one HTML file with the chosen episodes and return its path.

    Args:
        run: a run's directory, its traces folder, or an open reader.
        out: the file to write.
        episodes: ids to take, in this order; None for all.
        group: take the rollouts of this group only.
        step: take this step only. Without it, an id that several steps used gives the latest.
        split: take this split only (`train`, `heldout`).
        where: take what fits a filter such as `reward < 0 and tool:python` (`accredit.credit.traces.where`).
        top: of what is left, take the `top` highest rewards; unscored episodes come last.
        budget_mb: the size of the file at which to stop adding episodes; the first one is always taken.
        title: the page's title; by default the run's name.
        functions: further credit functions under which every episode is shown, such as `rloo` or `anchored,lam=0`.
        signals: gives columns of an episode in place of those that training stored, float64 [T] in nats, NaN where
            there is none: `trainer_logprob`, `entropy`.

    Raises:
        TraceError: nothing matches, an id is unknown, or the filter cannot be read.
        CreditError: a further credit function is unknown or cannot price a chosen group.

    """
    reader = run if isinstance(run, TraceReader) else open_run(run)
    rows = _select(reader, episodes, group, step, split, where)
    if top is not None:
        # An ordered choice by reward, kept in the order written so that groups stay together.
        rows = sorted(rows, key=lambda row: (row.reward is None, -(row.reward or 0.0)))[:top]
        rows.sort(key=lambda row: row.offset)
    chosen = _within(reader, rows, budget_mb, functions, signals)
    if chosen.notice:
        _log.warning("%s", chosen.notice)
    title = title_of(reader.folder) if title is None else title
    metrics = metrics_of_run(reader.folder.parent / "metrics.jsonl")
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.unfinished")
    unfinished.write_text(_render(title, chosen, functions, metrics), encoding="utf-8")
    unfinished.replace(out)
    return out


def page_of(
    episodes: Sequence[StoredEpisode],
    title: str = "episodes",
    *,
    functions: Sequence[str] = (),
    signals: Signals | None = None,
    encode: Encode | None = None,
) -> str:
    """Return the page of episodes at hand, without a run on disk. Those of one step and group are priced together."""
    rows = [row_of(episode) for episode in episodes]
    groups: dict[Hashable, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(row.group_key if row.group else index, []).append(index)
    packed = [""] * len(episodes)
    for places in groups.values():
        for place, shown in zip(
            places, shown_group([episodes[i] for i in places], functions, signals, encode), strict=True
        ):
            packed[place] = in_base64(episode_block(shown))
    return _render(title, _Chosen(rows, packed), functions, [])


def shown_group(
    members: Sequence[StoredEpisode],
    functions: Sequence[str] = (),
    signals: Signals | None = None,
    encode: Encode | None = None,
) -> list[Shown]:
    """Return what a page shows of a whole group: on one scale, under `functions` too, and checked.

    `signals` are added to those that were stored, and stand in for them.
    """
    others = price(members, functions) if functions else [{} for _ in members]
    further = [{**member.signals, **({} if signals is None else signals(member))} for member in members]
    scales = {**group_scales(members, others), **signal_scales(members, further)}
    return [
        Shown(
            member,
            scales,
            priced,
            columns,
            None if encode is None else reencoded(member, encode),
        )
        for member, priced, columns in zip(members, others, further, strict=True)
    ]


def title_of(folder: Path) -> str:
    """Return the name of the run that a traces folder belongs to, by custom that of the folder around it."""
    folder = folder.resolve()
    return (folder.parent if folder.name == "traces" else folder).name


def metrics_of_run(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's `metrics.jsonl` as the page draws them; [] where there is no file."""
    return thinned(metric_lines(path.read_bytes())) if path.is_file() else []


def _select(
    reader: TraceReader, ids: Sequence[str] | None, group: str | None, step: int | None, split: str | None, where: str
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
    if where:
        fits = set(reader.select(step=step, split=split, where=where))
        matching, rows = len(rows), [row for row in rows if row in fits]
        if matching and not rows:
            raise TraceError(
                f"none of {matching} episodes of {reader.folder} fits {where!r}: choose with a wider filter"
            )
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


def _within(
    reader: TraceReader,
    rows: Sequence[IndexRow],
    budget_mb: float,
    functions: Sequence[str],
    signals: Signals | None,
) -> _Chosen:
    """Load rows, newest steps first, until the budget is spent; give them back in the order asked for.

    A group is read whole, also where only some of it was chosen: its scale and its credit are those of all rollouts.
    """
    room = budget_mb * 1e6 - _PAGE_BYTES
    encode = encoder_of_run(reader.folder)
    members: dict[tuple[int, str, str], list[IndexRow]] = {}
    for row in reader.index():
        members.setdefault(row.group_key, []).append(row)
    places: dict[tuple[int, str, str], list[int]] = {}
    for place in sorted(range(len(rows)), key=lambda at: -rows[at].step):
        places.setdefault(rows[place].group_key, []).append(place)
    taken: dict[int, tuple[IndexRow, str]] = {}
    full = False
    for key, wanted in places.items():
        whole = shown_group([reader.load(row) for row in members[key]], functions, signals, encode)
        shown = {one.episode.trajectory.episode_id: one for one in whole}
        for place in wanted:
            one = shown[rows[place].episode_id]
            text = in_base64(episode_block(one))
            full = bool(taken) and len(text) > room
            if full:
                break
            room -= len(text)
            taken[place] = (row_of(one.episode), text)
        if full:
            break
    left = len(rows) - len(taken)
    notice = ""
    if left:
        notice = (
            f"{len(taken)} of {len(rows)} episodes are in this file, {left} are left out: "
            f"the budget is {budget_mb:g} MB, newest steps first"
        )
    kept = [taken[place] for place in sorted(taken)]
    return _Chosen([row for row, _ in kept], [text for _, text in kept], notice)


def _render(title: str, chosen: _Chosen, functions: Sequence[str], metrics: Sequence[Mapping[str, Any]]) -> str:
    run = {
        "title": title,
        "notice": chosen.notice,
        "live": False,
        "metrics": list(metrics),
        "functions": list(dict.fromkeys(functions)),
    }
    return bundle(title, run, in_base64(listing_block(chosen.rows)), chosen.packed)
