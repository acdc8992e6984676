"""Checks of tasks and scores: splits that do not meet, work that pays, an expert that gets full marks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from accredit.credit import CallStatus

from .core import ToolEnv
from .errors import EnvError
from .state import canonical_json
from .subject import ANSWER, Broken, Skipped, Subject, Transcript, play
from .task import SPLITS

__all__ = ["SCORE_CHECKS", "expert_scores_full_marks"]

SPLIT_DRAWS = 32


def splits_do_not_meet(subject: Subject) -> str:
    """Check that no task is both trained on and held out."""
    levels: list[dict[str, Any]] = [{"level": level} for level in subject.make().levels] or [{}]
    counts: list[str] = []
    for level in levels:
        found: dict[str, dict[str, str]] = {}
        for split in SPLITS:
            env = subject.make()
            for seed in range(SPLIT_DRAWS):
                _, info = env.reset(seed=seed, options={**level, "split": split})
                if info.get("split_shared"):
                    raise Skipped("fewer than five tasks: both splits are the whole list")
                found.setdefault(split, {})[_content(env)] = env.task.prompt
        both = found[SPLITS[0]].keys() & found[SPLITS[1]].keys()
        if both:
            raise Broken(f"{level}: {len(both)} tasks are in both splits, first: {found[SPLITS[0]][min(both)]!r:.100}")
        counts.append(f"{len(found[SPLITS[0]])} train and {len(found[SPLITS[1]])} held-out tasks{_at(level)}")
    return "disjoint: " + "; ".join(counts)


def doing_nothing_scores_less(subject: Subject) -> str:
    """Check that an answer without any work scores less than the expert (on average, where luck may spoil one).

    What luck alone added or took (`luck_reward`) is left out.
    """
    lucky = subject.make().luck_spoils
    golds: list[float] = []
    idles: dict[str, list[float]] = {"": [], ANSWER: []}
    for seed, options in subject.situations():
        gold = _marks(subject, subject.gold(seed, options), seed, options)[1] or 0.0
        golds.append(gold)
        for answer, scores in idles.items():
            scores.append(_marks(subject, [answer], seed, options)[1] or 0.0)
            if not lucky and scores[-1] >= gold:
                raise Broken(f"seed {seed} {options}: answering {answer!r} scores {scores[-1]}, the expert {gold}")
    best, mean = max(float(np.mean(scores)) for scores in idles.values()), float(np.mean(golds))
    if best >= mean:
        raise Broken(f"an answer without work scores {best:.3f} on average, the expert {mean:.3f}")
    return f"answers without work score {best:.3f} on average, the expert {mean:.3f}"


def expert_scores_full_marks(subject: Subject, full: float = 1.0) -> str:
    """Check that the expert gets full marks without a failed or charged call, at every level and in both splits.

    Where luck may spoil a perfect episode (`luck_spoils`), full marks are wanted at least once at each level. What luck
    alone added or took (`luck_reward`) is left out.
    """
    lucky = subject.make().luck_spoils
    played = turns = spoiled = 0
    best: dict[str, float] = {}
    for seed, options in subject.situations():
        script = subject.gold(seed, options)
        found, marks = _marks(subject, script, seed, options)
        where = f"seed {seed} {options}"
        level = str(options.get("level", ""))
        best[level] = max(best.get(level, -np.inf), -np.inf if marks is None else marks)
        if marks != full:
            spoiled += 1
            said = f"the expert scores {marks} after {len(script)} messages"
            if not lucky or marks is None or marks > full:
                raise Broken(f"{where}: {said} ({found.stop}), expected {full}")
        bad = [f"{name} {status}" for name, status in found.statuses if status is not CallStatus.OK]
        if bad or found.charges:
            raise Broken(f"{where}: the expert's calls are charged or fail: {', '.join(bad) or found.charges}")
        played, turns = played + 1, turns + len(script)
    never = [level for level, score in best.items() if score != full]
    if never:
        raise Broken(f"level '{never[0]}': luck spoiled every episode of the expert: try more seeds")
    rest = f", {spoiled} of them spoiled by luck" if spoiled else " at full marks"
    return f"{played} episodes{rest}, {turns / max(played, 1):.1f} turns each"


def _marks(
    subject: Subject, script: Sequence[str], seed: int, options: Mapping[str, Any]
) -> tuple[Transcript, float | None]:
    """Play a script; return what came of it, and its outcome without the part of luck."""
    env = subject.make()
    found = play(env, script, seed, options)
    return found, None if found.outcome is None else found.outcome - env.luck_reward()


def _content(env: ToolEnv) -> str:
    try:
        return canonical_json([env.task.prompt, env.task.answer, env.task.data])
    except EnvError:
        return f"{env.task.key} {env.task.prompt}"


def _at(level: Mapping[str, Any]) -> str:
    return f" at level {level['level']}" if level else ""


SCORE_CHECKS: dict[str, Callable[[Subject], str]] = {
    "splits": splits_do_not_meet,
    "no-op": doing_nothing_scores_less,
}
