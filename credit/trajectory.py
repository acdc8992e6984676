"""The trajectory: one append-only token sequence with everything that is known about it.

Immutable. Masks are derived from the spans. Written only by `accredit.credit.Recorder`; stored by
`accredit.credit.traces`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import spans as _spans
from .calls import Call, Charge
from .errors import SpanError
from .spans import Span, SpanKind, check_partition

__all__ = ["Group", "Segment", "StopReason", "Trajectory"]


class StopReason(StrEnum):
    """Why an episode ended."""

    DONE = "done"
    """The environment ended it (an answer was given, the task was finished)."""
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    CALL_LIMIT = "call_limit"
    TIME_LIMIT = "time_limit"
    ENVIRONMENT_ERROR = "environment_error"
    INFRASTRUCTURE = "infrastructure"
    POLICY_ERROR = "policy_error"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Segment:
    """A fresh context that starts at token `start`, because the template could not extend the exact prefix.

    Attention and log-probabilities do not cross a segment's start. `reason` says why the prefix broke.
    """

    start: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """What one episode left behind. T tokens, K turns.

    Attributes:
        token_ids: int32 [T], exactly the ids that the policy saw and sampled.
        spans: a partition of [0, T).
        logprobs: float32 [T], the behaviour policy's log-probabilities in nats; NaN off decision tokens.
        turn_rewards: float64 [K], reward given at the end of each turn, apart from the outcome.
        outcome: the terminal reward; None means unscored, which is never 0.
        state_keys: K+1 keys of the environment's state at the turn borders (before turn 0, after each turn); None where
            the environment gave none.
        policy_versions: K versions of the policy that sampled each turn.
        seeds: named seeds ("environment", "luck", "sampler") from which the episode can be lived again.
        options: of the environment's `reset`, apart from the seeds; None where they are unknown or no plain data.
        turn_seconds: float64 [K, 2], seconds from the episode's start to the decision's start and to its feedback.
        straddles: indices of tokens whose bytes belong to two spans or to two calls.
        group: the key shared by the rollouts of one task under one policy version.

    """

    token_ids: NDArray[np.int32]
    spans: tuple[Span, ...]
    logprobs: NDArray[np.float32]
    turn_rewards: NDArray[np.float64]
    outcome: float | None
    stop: StopReason
    state_keys: tuple[str | None, ...]
    policy_versions: tuple[int, ...]
    calls: tuple[Call, ...] = ()
    charges: tuple[Charge, ...] = ()
    segments: tuple[Segment, ...] = (Segment(0, "start"),)
    straddles: tuple[int, ...] = ()
    seeds: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] | None = None
    turn_seconds: NDArray[np.float64] | None = None
    seconds: float | None = None
    env_id: str = ""
    task_id: str = ""
    episode_id: str = ""
    group: str = ""
    error: str | None = None

    def __post_init__(self) -> None:
        length, turns = len(self.token_ids), len(self.turn_rewards)
        where = f"(episode {self.episode_id or '?'})"
        check_partition(self.spans, length)
        if self.logprobs.shape != (length,):
            raise SpanError(f"logprobs has shape {self.logprobs.shape} but there are {length} tokens {where}")
        if len(self.state_keys) != turns + 1:
            raise SpanError(f"{len(self.state_keys)} state keys for {turns} turns, expected {turns + 1} {where}")
        if len(self.policy_versions) != turns:
            raise SpanError(f"{len(self.policy_versions)} policy versions for {turns} turns {where}")
        decided_T = self.credit_mask
        finite_T = np.isfinite(self.logprobs)
        if np.any(finite_T != decided_T):
            at = int(np.argmax(finite_T != decided_T))
            found = "finite off a decision token" if finite_T[at] else "not finite on a decision token"
            raise SpanError(f"the log-probability of token {at} is {found} {where}")
        for charge in self.charges:
            inside = 0 <= charge.start < charge.end <= length and bool(decided_T[charge.start : charge.end].all())
            if not inside:
                raise SpanError(
                    f"charge '{charge.reason}' on tokens [{charge.start}, {charge.end}) "
                    f"leaves the decision tokens {where}"
                )
        for column in (self.token_ids, self.logprobs, self.turn_rewards):
            column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.token_ids)

    def _repr_html_(self) -> str:
        """Show the episode in a notebook: token ids with the mask, calls and charges."""
        from .notebook import html_of

        return html_of(self)

    @property
    def turns(self) -> int:
        """The number of turns K: decisions that the policy was asked for."""
        return len(self.turn_rewards)

    @property
    def credit_mask(self) -> NDArray[np.bool_]:
        """The policy mask [T]: true exactly on decision tokens."""
        return _spans.credit_mask(self.spans, len(self.token_ids))

    @property
    def value_mask(self) -> NDArray[np.bool_]:
        """The value mask [T]: true on decision and feedback tokens."""
        return _spans.value_mask(self.spans, len(self.token_ids))

    @property
    def reward(self) -> float | None:
        """The outcome plus all turn rewards, without charges; None when unscored."""
        return None if self.outcome is None else float(self.outcome + self.turn_rewards.sum())

    @property
    def decisions(self) -> tuple[Span, ...]:
        """The decision spans, in order. A turn in which the policy sampled nothing has none."""
        return tuple(span for span in self.spans if span.kind is SpanKind.DECISION)


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The rollouts of one task under one policy version: what a group baseline is taken over."""

    trajectories: tuple[Trajectory, ...]

    def __len__(self) -> int:
        return len(self.trajectories)

    @property
    def rewards(self) -> NDArray[np.float64]:
        """float64 [G], NaN where a trajectory is unscored."""
        return np.array([np.nan if t.reward is None else t.reward for t in self.trajectories], dtype=np.float64)
