"""Labels of steps: what the prefix that ends with a step is worth, in [0, 1].

Two sources: the group's own rollouts (the mean reward of the members that visited the state after the turn, Monte Carlo
labels as in Math-Shepherd, arXiv 2312.08935, but without any further rollout), and a JSONL file that people wrote. A
step without a label is NaN and teaches nothing.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit import AccreditError, Group, Trajectory
from accredit.credit.process import Grain, Steps, TokenBytes, cut_steps, step_count
from accredit.credit.traces import open_run

__all__ = ["LabelError", "Labelled", "human_labels", "state_value_labels", "stored_groups"]


class LabelError(AccreditError, ValueError):
    """Labels that fit no step, or lie outside [0, 1]."""


class Labelled(NamedTuple):
    """A trajectory, its steps (int64 [T]), and a label in [0, 1] for each (float64 [S], NaN where there is none)."""

    trajectory: Trajectory
    steps: Steps
    labels_S: NDArray[np.float64]


def stored_groups(run: str | Path, split: str = "train") -> list[Group]:
    """Return the groups of a run's stored rollouts, in the order written."""
    reader = open_run(run)
    members: dict[tuple[int, str], list[Trajectory]] = {}
    for row in reader.index():
        if row.split == split:
            members.setdefault((row.step, row.group), []).append(reader.load(row).trajectory)
    return [Group(tuple(each)) for each in members.values()]


def state_value_labels(groups: Sequence[Group], least_visits: int = 1) -> list[Labelled]:
    """Label every turn with the mean reward of its group's scored members that visited the state after it.

    The last turn of an episode is labelled with the episode's own reward. A turn whose state has no key, or fewer than
    `least_visits` visitors, has no label. Unscored members are left out.

    Raises:
        LabelError: a mean reward lies outside [0, 1].

    """
    found = []
    for group in groups:
        scored = [(t, t.reward) for t in group.trajectories if t.reward is not None]
        visits: dict[str, list[float]] = {}
        for trajectory, reward in scored:
            for key in {key for key in trajectory.state_keys if key is not None}:
                visits.setdefault(key, []).append(reward)
        for trajectory, reward in scored:
            values_K = [_value(key, visits, least_visits) for key in trajectory.state_keys[1:]]
            values_K[-1:] = [reward] if values_K else []
            turns = [span.turn for span in trajectory.decisions]
            labels_S = np.array([values_K[turn] for turn in turns], dtype=np.float64)
            where = f"episode {trajectory.episode_id or '?'}"
            found.append(Labelled(trajectory, cut_steps(trajectory, "turn"), _checked(labels_S, where)))
    return found


def human_labels(
    path: Path | str, trajectories: Sequence[Trajectory], grain: Grain = "turn", token_bytes: TokenBytes | None = None
) -> list[Labelled]:
    """Read labels that people wrote: one JSON object a line, `{"episode_id": ..., "step": 0, "label": 0.0 to 1.0}`.

    Args:
        path: the file.
        trajectories: what its lines speak of; those without a line are left out.
        grain: what a step was when it was labelled.
        token_bytes: the bytes of token ids; needed by lines and sentences.

    Raises:
        LabelError: a line is no such object, or names an episode or step that does not exist; or two trajectories have
            one id, as those of two runs do.

    """
    names = [t.episode_id for t in trajectories]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise LabelError(
            f"{len(twice)} episode ids stand for several trajectories, such as '{twice[0]}': label one run"
        )
    steps = {t.episode_id: cut_steps(t, grain, token_bytes) for t in trajectories}
    labels = {name: np.full(step_count(each), np.nan) for name, each in steps.items()}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            _note(labels, line, f"{path}, line {number}")
    return [
        Labelled(t, steps[t.episode_id], labels[t.episode_id])
        for t in trajectories
        if not np.isnan(labels[t.episode_id]).all()
    ]


def _note(labels: Mapping[str, NDArray[np.float64]], line: str, where: str) -> None:
    try:
        said: Any = json.loads(line)
        episode, step, label = said["episode_id"], said["step"], said["label"]
    except (ValueError, KeyError, TypeError) as error:
        raise LabelError(f"{where}: expected an object with episode_id, step and label ({error!r})") from error
    if not isinstance(episode, str) or type(step) is not int or type(label) not in (int, float) or label != label:
        raise LabelError(
            f"{where}: expected a text, a whole number and a number from 0 to 1 as episode_id, step and label, found "
            f"{episode!r}, {step!r} and {label!r}"
        )
    if episode not in labels:
        raise LabelError(f"{where}: there is no episode '{episode}' among the {len(labels)} given")
    if not 0 <= step < len(labels[episode]):
        raise LabelError(f"{where}: episode '{episode}' has steps 0 to {len(labels[episode]) - 1}, found {step}")
    labels[episode][step] = _checked(np.array([label]), where)[0]


def _value(key: str | None, visits: Mapping[str, Sequence[float]], least_visits: int) -> float:
    seen = visits.get(key, ()) if key is not None else ()
    return float(np.mean(seen)) if len(seen) >= max(1, least_visits) else float("nan")


def _checked(labels_S: NDArray[np.float64], where: str) -> NDArray[np.float64]:
    known = labels_S[~np.isnan(labels_S)]
    if known.size and not (known.min() >= 0 and known.max() <= 1):
        raise LabelError(f"{where}: labels run from {known.min():g} to {known.max():g}, expected [0, 1]: scale rewards")
    return labels_S
