"""The recorder: the only writer of a trajectory.

Append-only. It cannot be asked to change what it has, it never decodes and never encodes: the ids it is given are the
ids that the policy saw and sampled.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .calls import Call, Charge
from .errors import SpanError
from .spans import Span, SpanKind
from .trajectory import Segment, StopReason, Trajectory

__all__ = ["Recorder"]


class Recorder:
    """Writes one trajectory, front to back.

    A turn begins with `decision`. Charges, calls, rewards and state keys are added as the environment reports them, and
    `finish` returns the immutable `Trajectory`.
    """

    def __init__(
        self,
        env_id: str = "",
        task_id: str = "",
        episode_id: str = "",
        group: str = "",
        seeds: Mapping[str, int] | None = None,
        state_key: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._names = {"env_id": env_id, "task_id": task_id, "episode_id": episode_id, "group": group}
        self._seeds = dict(seeds or {})
        self._options = None if options is None else dict(options)
        self._ids: list[NDArray[np.int32]] = []
        self._logprobs: list[NDArray[np.float32]] = []
        self._spans: list[Span] = []
        self._length = 0
        self._calls: list[Call] = []
        self._charges: list[Charge] = []
        self._rewards: list[float] = []
        self._versions: list[int] = []
        self._keys: list[str | None] = [state_key]
        self._segments = [Segment(0, "start")]
        self._straddles: list[int] = []
        self._seconds: list[tuple[float, float]] = []
        self._finished = False

    def __len__(self) -> int:
        return self._length

    @property
    def turn(self) -> int:
        """The turn last begun, -1 before the first."""
        return len(self._rewards) - 1

    @property
    def token_ids(self) -> NDArray[np.int32]:
        """A copy of all ids so far, int32 [T]."""
        return np.concatenate(self._ids) if self._ids else np.zeros(0, dtype=np.int32)

    def prompt(self, ids: ArrayLike) -> None:
        """Append tokens of the prompt: system text, tool schemas, the task, history that the policy did not sample."""
        self._append(ids, SpanKind.PROMPT)

    def scaffold(self, ids: ArrayLike) -> None:
        """Append template tokens that nobody sampled."""
        self._append(ids, SpanKind.SCAFFOLD)

    def feedback(self, ids: ArrayLike) -> None:
        """Append tokens that the environment wrote."""
        self._append(ids, SpanKind.FEEDBACK)

    def decision(self, ids: ArrayLike, logprobs: ArrayLike, policy_version: int = 0) -> tuple[int, int]:
        """Begin a turn with the ids that the policy sampled; return their token range.

        Args:
            ids: integers [N]. N may be 0: the policy was asked and sampled nothing.
            logprobs: floats [N], in nats, from the sampling pass.
            policy_version: the version of the weights that sampled them.

        Raises:
            SpanError: the two lengths differ, or a log-probability is not finite or above 0.

        """
        logprobs_N = np.asarray(logprobs, dtype=np.float32).reshape(-1)
        count = np.asarray(ids).size
        if logprobs_N.size != count:
            raise SpanError(
                f"{count} sampled ids but {logprobs_N.size} log-probabilities in turn {self.turn + 1} "
                f"(episode {self._names['episode_id'] or '?'}): pass both through as the engine returned them"
            )
        if count and not bool(np.all(np.isfinite(logprobs_N) & (logprobs_N <= 1e-3))):
            raise SpanError(f"a log-probability of turn {self.turn + 1} is not a finite number of at most 0 nats")
        self._check_open()
        ids_N = self._checked(ids, SpanKind.DECISION)
        self._rewards.append(0.0)
        self._versions.append(policy_version)
        self._keys.append(None)
        start = self._length
        self._append(ids_N, SpanKind.DECISION, logprobs_N)
        return start, self._length

    def call(self, call: Call) -> int:
        """Add a call of the current turn; return its index, to be named by charges."""
        self._check_open()
        self._calls.append(call)
        return len(self._calls) - 1

    def charge(self, start: int, end: int, amount: float, reason: str, call: int | None = None) -> None:
        """Charge `amount` (> 0) to the decision tokens of [start, end).

        A range outside the decisions (a charge that arrived on a feedback token) is moved to the call that caused it.

        Raises:
            SpanError: the amount is not positive, the call is unknown, or neither the range nor the call holds a
                decision token.

        """
        self._check_open()
        if not (np.isfinite(amount) and amount > 0):
            raise SpanError(f"a charge needs an amount above 0, found {amount} for '{reason}'")
        if call is not None and not 0 <= call < len(self._calls):
            raise SpanError(f"charge '{reason}' names call {call}, but {len(self._calls)} calls are recorded")
        inside = self._decision_part(start, end)
        if inside is None and call is not None:
            inside = self._decision_part(self._calls[call].start, self._calls[call].end)
        if inside is None:
            raise SpanError(
                f"charge '{reason}' on tokens [{start}, {end}) touches no decision token: name the call that caused it"
            )
        self._charges.append(Charge(*inside, float(amount), reason, call))

    def reward(self, amount: float) -> None:
        """Add `amount` to the reward of the current turn."""
        self._check_turn("a turn reward")
        if not np.isfinite(amount):
            raise SpanError(f"the reward of turn {self.turn} is {amount}, expected a finite number")
        self._rewards[-1] += float(amount)

    def state_key(self, key: str | None) -> None:
        """Set the key of the environment's state after the current turn."""
        self._check_turn("a state key")
        self._keys[-1] = key

    def timing(self, decided_s: float, answered_s: float) -> None:
        """Note when the current turn's decision started and when its feedback came, in seconds from the start."""
        self._check_turn("a timing")
        self._seconds.append((decided_s, answered_s))

    def straddle(self, tokens: Iterable[int]) -> None:
        """Note tokens whose bytes belong to two spans or two calls."""
        self._straddles.extend(tokens)

    def segment(self, reason: str) -> None:
        """Start a fresh context here, because the template could not extend the exact prefix."""
        self._check_open()
        if self._length != self._segments[-1].start:
            self._segments.append(Segment(self._length, reason))

    def finish(
        self, outcome: float | None, stop: StopReason, error: str | None = None, seconds: float | None = None
    ) -> Trajectory:
        """Close the recorder and return the trajectory. `outcome` None means unscored.

        Raises:
            SpanError: the outcome is not finite: an outcome that could not be computed is None.

        """
        self._check_open()
        if outcome is not None and not np.isfinite(outcome):
            raise SpanError(f"the outcome is {outcome}, expected a finite number, or None for an unscored episode")
        self._finished = True
        timed = len(self._seconds) == len(self._rewards)
        return Trajectory(
            token_ids=self.token_ids,
            spans=tuple(self._spans),
            logprobs=np.concatenate(self._logprobs) if self._logprobs else np.zeros(0, dtype=np.float32),
            turn_rewards=np.array(self._rewards, dtype=np.float64),
            outcome=None if outcome is None else float(outcome),
            stop=stop,
            state_keys=tuple(self._keys),
            policy_versions=tuple(self._versions),
            calls=tuple(self._calls),
            charges=tuple(self._charges),
            segments=tuple(self._segments),
            straddles=tuple(sorted(set(self._straddles))),
            seeds=self._seeds,
            options=self._options,
            turn_seconds=np.array(self._seconds, dtype=np.float64).reshape(-1, 2) if timed else None,
            seconds=seconds,
            error=error,
            **self._names,
        )

    def _append(self, ids: ArrayLike, kind: SpanKind, logprobs_N: NDArray[np.float32] | None = None) -> None:
        self._check_open()
        ids_N = self._checked(ids, kind)
        if not ids_N.size:
            return
        end = self._length + ids_N.size
        last = self._spans[-1] if self._spans else None
        self._ids.append(ids_N)
        self._logprobs.append(np.full(ids_N.size, np.nan, dtype=np.float32) if logprobs_N is None else logprobs_N)
        if last and last.kind is kind is SpanKind.SCAFFOLD and last.turn == self.turn:
            self._spans[-1] = Span(last.start, end, kind, self.turn)
        else:
            self._spans.append(Span(self._length, end, kind, self.turn))
        self._length = end

    @staticmethod
    def _checked(ids: ArrayLike, kind: SpanKind) -> NDArray[np.int32]:
        given = np.asarray(ids).reshape(-1)
        if given.size and not np.issubdtype(given.dtype, np.integer):
            raise SpanError(f"token ids must be integers, found dtype {given.dtype} for a {kind} span")
        if given.size and not 0 <= int(given.min()) <= int(given.max()) <= np.iinfo(np.int32).max:
            raise SpanError(
                f"token ids must lie in [0, 2^31), found {int(given.min())} to {int(given.max())} in a {kind} span"
            )
        return given.astype(np.int32)

    def _decision_part(self, start: int, end: int) -> tuple[int, int] | None:
        for span in self._overlapping(start, end):
            return max(start, span.start), min(end, span.end)
        return None

    def _overlapping(self, start: int, end: int) -> Sequence[Span]:
        return [s for s in self._spans if s.kind is SpanKind.DECISION and s.start < end and start < s.end]

    def _check_open(self) -> None:
        if self._finished:
            raise SpanError("this recorder is finished: a trajectory cannot be changed, record a new one")

    def _check_turn(self, what: str) -> None:
        self._check_open()
        if not self._rewards:
            raise SpanError(f"{what} needs a turn, but no decision has been recorded yet")
