"""Exact replay: lives a stored episode again from its seeds, options and decisions, and says where it parts.

Nothing is sampled and nothing is priced: the stored ids are fed as they were. What the environment answers is compared
byte by byte, then the state keys, the reward and the end. Wall-clock times are not compared.

Words: a replay is *exact* when nothing parts; a *parting* is the first place where it does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit import AccreditError, SpanKind, StopReason, Trajectory
from accredit.envs import Decision, EnvError, RecordCredit, ToolEnv
from accredit.envs.recorder import SCORED
from accredit.envs.rendering import Renderer

__all__ = ["Part", "Parting", "Replay", "ReplayError", "decisions_of", "find_parting", "replay", "text_of_turn"]


class ReplayError(AccreditError, ValueError):
    """A stored episode does not say enough to be lived again."""


class Part(StrEnum):
    """What differs at a parting."""

    PROMPT = "prompt"
    FEEDBACK = "feedback"
    STATE = "state key"
    REWARD = "reward"
    END = "end"


@dataclass(frozen=True, slots=True)
class Parting:
    """The first place where a replay differs from what was stored.

    `turn` is -1 in the prompt; `character` counts in the text of the turn's answer (0 for what is no text); `stored`
    and `found` are the two whole texts.
    """

    turn: int
    part: Part
    character: int
    stored: str
    found: str

    def line(self) -> str:
        """Return one line for people, each text from shortly before the character on."""
        start = max(0, self.character - 20)
        before, after = (
            repr(("..." if start else "") + text[start : start + 80]) for text in (self.stored, self.found)
        )
        where = "the prompt" if self.turn < 0 else f"the {self.part} of turn {self.turn}"
        return f"parts in {where}, character {self.character}: stored {before}, now {after}"


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """An episode lived again, and where it parts from the stored one; None: nowhere, the replay is exact."""

    trajectory: Trajectory
    parting: Parting | None


def replay(
    stored: Trajectory,
    make_env: Callable[[], ToolEnv],
    renderer: Renderer,
    *,
    options: Mapping[str, Any] | None = None,
    decisions: Sequence[Decision] | None = None,
) -> Replay:
    """Live `stored` again and compare.

    Args:
        stored: a trajectory with its seeds.
        make_env: makes a fresh environment, the one that the episode was lived in.
        renderer: the one that the episode was lived with.
        options: of `reset`, for a trajectory that does not hold its own.
        decisions: fed instead of the stored ones, None for those. What is left when the episode ends is not fed; where
            they run out first, the episode is cut off and scored as the environment stands.

    Raises:
        ReplayError: seed or options are unknown, or the environment is another one.

    """
    chosen = stored.options if stored.options is not None else options
    if chosen is None or "environment" not in stored.seeds:
        lacks = "the environment's seed" if "environment" not in stored.seeds else "the options of its reset"
        raise ReplayError(f"episode '{stored.episode_id}' cannot be lived again: {lacks} was not stored with it")
    recorded = RecordCredit(make_env(), renderer)
    try:
        env = recorded.tool_env
        name = env.spec.id if env.spec is not None else type(env).__name__
        if stored.env_id and name != stored.env_id:
            raise ReplayError(f"episode '{stored.episode_id}' was lived in {stored.env_id}, not in {name}")
        recorded.reset(
            seed=stored.seeds["environment"],
            options={**chosen, **({"luck": stored.seeds["luck"]} if "luck" in stored.seeds else {})},
            episode_id=stored.episode_id,
            group=stored.group,
            seeds=stored.seeds,
        )
        for decision in decisions_of(stored) if decisions is None else decisions:
            if recorded.trajectory is not None:
                break
            try:
                recorded.step(decision)
            except EnvError:
                break  # the trajectory is closed and holds the error
        # an environment that should have ended and did not is cut off, so that the end is seen to differ
        stop, error = stored.stop, stored.error
        if stop is StopReason.DONE or (decisions is not None and stop not in SCORED):
            stop, error = StopReason.TURN_LIMIT, None
        again = recorded.finish(stop, error)
    finally:
        recorded.close()
    return Replay(again, find_parting(stored, again, renderer))


def decisions_of(trajectory: Trajectory) -> list[Decision]:
    """Return what the policy sampled in each of the K turns, with log-probabilities and versions."""
    spans = {span.turn: slice(span.start, span.end) for span in trajectory.decisions}
    none = slice(0, 0)
    return [
        Decision(
            trajectory.token_ids[spans.get(turn, none)],
            trajectory.logprobs[spans.get(turn, none)],
            trajectory.policy_versions[turn],
        )
        for turn in range(trajectory.turns)
    ]


def find_parting(stored: Trajectory, found: Trajectory, renderer: Renderer) -> Parting | None:
    """Return the first place where `found` differs from `stored` in what the environment said, did or paid."""
    for turn in range(-1, max(stored.turns, found.turns)):
        ids, other_ids = (_answer(trajectory, turn) for trajectory in (stored, found))
        if not np.array_equal(ids, other_ids):
            text, other = _text(ids, renderer), _text(other_ids, renderer)
            part = Part.PROMPT if turn < 0 else Part.FEEDBACK
            return Parting(turn, part, _first_difference(text, other), text, other)
        keys = [t.state_keys[turn + 1] if turn < t.turns else None for t in (stored, found)]
        if keys[0] != keys[1]:
            return Parting(turn, Part.STATE, 0, str(keys[0]), str(keys[1]))
        paid = [float(t.turn_rewards[turn]) if 0 <= turn < t.turns else 0.0 for t in (stored, found)]
        if paid[0] != paid[1]:
            return Parting(turn, Part.REWARD, 0, repr(paid[0]), repr(paid[1]))
    last = max(stored.turns, found.turns) - 1
    if stored.outcome != found.outcome:
        return Parting(last, Part.REWARD, 0, repr(stored.outcome), repr(found.outcome))
    ends = [f"{trajectory.stop} after {trajectory.turns} turns" for trajectory in (stored, found)]
    return None if ends[0] == ends[1] else Parting(last, Part.END, 0, *ends)


def text_of_turn(trajectory: Trajectory, turn: int, renderer: Renderer, *, decided: bool = False) -> str:
    """Return what the environment answered in a turn (-1: the prompt), or with `decided` what the policy said."""
    if decided:
        ids = [trajectory.token_ids[s.start : s.end] for s in trajectory.decisions if s.turn == turn]
        return _text(ids[0], renderer) if ids else ""
    ids = [
        trajectory.token_ids[s.start : s.end]
        for s in trajectory.spans
        if s.turn == turn and s.kind in (SpanKind.PROMPT, SpanKind.FEEDBACK)
    ]
    return "\n".join(_text(part, renderer) for part in ids)


def _answer(trajectory: Trajectory, turn: int) -> NDArray[np.int32]:
    """Return all ids of a turn that were not sampled, template included, int32 [T]."""
    parts = [
        trajectory.token_ids[span.start : span.end]
        for span in trajectory.spans
        if span.turn == turn and span.kind is not SpanKind.DECISION
    ]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def _text(ids: NDArray[np.int32], renderer: Renderer) -> str:
    return b"".join(renderer.token_bytes(ids)).decode("utf-8", "replace")


def _first_difference(one: str, other: str) -> int:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
