"""RecordCredit: a tool environment at the level of tokens, which writes down who wrote which token.

The action is what the policy sampled, the observation is the ids to append to its context. Sampled ids are recorded
exactly as given and never encoded again; what the environment says about characters (calls, arguments, charges) is
mapped to the tokens that own them. It samples nothing and computes no credit.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from accredit.credit import Recorder, SpanKind, StopReason, Trajectory
from accredit.sandboxes.errors import SandboxError

from .core import ToolEnv
from .errors import EnvError, InfrastructureError
from .messages import Message
from .pieces import Piece
from .rendering import ContextRenderer, Renderer
from .results import error_text
from .tokenspace import TokenSpace
from .turntokens import record_turn

__all__ = ["Decision", "RecordCredit"]

Tokens = NDArray[np.int32]
SCORED = (
    StopReason.DONE,
    StopReason.TURN_LIMIT,
    StopReason.TOKEN_LIMIT,
    StopReason.CALL_LIMIT,
    StopReason.TIME_LIMIT,
)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What a policy sampled in one turn.

    Attributes:
        ids: integers [N], the sampled stop id included.
        logprobs: floats [N], in nats, from the sampling pass; None for a script, recorded as 0 (it had no choice).
        policy_version: version of the weights that sampled them.

    """

    ids: ArrayLike
    logprobs: ArrayLike | None = None
    policy_version: int = 0


class RecordCredit(gymnasium.Wrapper[Tokens, Any, Any, Any]):
    """Plays a `ToolEnv` with token ids and records a `Trajectory`.

    Args:
        env: a `ToolEnv`, wrapped or not.
        renderer: turns messages into ids and ids into text; it may be shared between environments.

    Attributes:
        trajectory: None until the episode has ended.

    """

    def __init__(self, env: gymnasium.Env[tuple[Message, ...], str], renderer: Renderer) -> None:
        super().__init__(cast(Any, env))
        if not isinstance(env.unwrapped, ToolEnv):
            raise EnvError(f"RecordCredit wraps a ToolEnv, found {type(env.unwrapped).__name__}")
        told = env.unwrapped.call_format
        if told != renderer.call_format:
            raise EnvError(
                f"the renderer tells the model to write '{renderer.call_format}' calls but "
                f"{type(env.unwrapped).__name__} reads '{told}': make the two agree"
            )
        self.renderer = renderer
        self.observation_space = TokenSpace(renderer.vocab_size)
        self.action_space = TokenSpace(renderer.vocab_size)
        self.trajectory: Trajectory | None = None
        self._recorder: Recorder | None = None
        self._conversation: list[Message] = []
        self._segment_start = 0
        self._asked_s = 0.0

    @property
    def tool_env(self) -> ToolEnv:
        """The environment under all wrappers."""
        return cast(ToolEnv, self.env.unwrapped)

    @property
    def _inner(self) -> gymnasium.Env[tuple[Message, ...], str]:
        return cast(Any, self.env)

    @property
    def context(self) -> Tokens:
        """The ids that the policy sees for its next decision: the present segment, int32 [T]."""
        return self._running().token_ids[self._segment_start :]

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        episode_id: str = "",
        group: str = "",
        seeds: Mapping[str, int] | None = None,
    ) -> tuple[Tokens, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: the environment's seed.
            options: of the environment.
            episode_id: name of the episode in its trajectory.
            group: name shared by the rollouts of one task under one policy version.
            seeds: further seeds to note in the trajectory ("sampler").

        Returns:
            The prompt's ids, and the environment's info.

        """
        self.trajectory = self._recorder = None
        messages, info = self._inner.reset(seed=seed, options=options)
        env = self.tool_env
        noted = {**({} if seed is None else {"environment": seed}), **(seeds or {})}
        if options and "luck" in options:
            noted["luck"] = int(options["luck"])
        self._recorder = Recorder(
            env_id=env.spec.id if env.spec is not None else type(env).__name__,
            task_id=str(info.get("task_id", "")),
            episode_id=episode_id,
            group=group,
            seeds=noted,
            state_key=env.state_key(),
            options=_plain({name: value for name, value in (options or {}).items() if name != "luck"}),
        )
        self._conversation = list(messages)
        self._segment_start = 0
        ids = self._append(self.renderer.prompt(messages, env.schemas))
        self._asked_s = self._now_s()
        return ids, info

    def step(self, action: Decision | ArrayLike) -> tuple[Tokens, float, bool, bool, dict[str, Any]]:
        """Take what the policy sampled.

        Returns:
            The ids to append to the policy's context, reward, terminated, truncated, info. With `info["segment"]` (the
            reason) the ids are a fresh context instead: `context` holds what the policy sees next in either case.

        Raises:
            EnvError: no episode is running, or the environment is wrongly written; the trajectory is then closed as
                `environment_error`, unscored.
            SpanError: ids and log-probabilities do not fit together.

        """
        recorder = self._running()
        decision = action if isinstance(action, Decision) else Decision(action)
        ids = np.asarray(decision.ids)
        prefix = self.context
        logprobs = np.zeros(ids.size, dtype=np.float32) if decision.logprobs is None else decision.logprobs
        start, _ = recorder.decision(ids, logprobs, decision.policy_version)
        text = self.renderer.text(ids)
        try:
            messages, reward, terminated, truncated, info = self._inner.step(text)
            state_key = self.tool_env.state_key()
        except (InfrastructureError, SandboxError) as error:
            return self._lost(error)
        except Exception as error:
            self._close(None, StopReason.ENVIRONMENT_ERROR, error_text(error))
            raise
        recorder.state_key(state_key)
        report = self.tool_env.last_turn
        if report is not None:
            record_turn(recorder, report, self.renderer.token_spans(ids), start)
        self._conversation.append(Message("assistant", text))
        ended = terminated or truncated
        feedback, broken = self._feedback(prefix, ids.tolist(), messages, ended)
        self._conversation.extend(messages)
        info = {**info, **({} if broken is None else {"segment": broken})}
        answered_s = self._now_s()
        recorder.timing(self._asked_s, answered_s)
        self._asked_s = answered_s
        if ended:
            unscored = self.tool_env.outcome is None
            self._close(None if unscored else float(reward), self.tool_env.stop or StopReason.DONE)
        elif reward:
            recorder.reward(float(reward))
        return feedback, float(reward), terminated, truncated, info

    def finish(self, stop: StopReason, error: str | None = None) -> Trajectory:
        """End the episode from outside (a limit, a failure, a cancellation) and return its trajectory.

        Limits are scored as the environment says, everything else is unscored. An ended episode stays as it is.
        """
        if self.trajectory is not None:
            return self.trajectory
        self._running()
        env = self.tool_env
        if stop in SCORED and env.stop is None:
            try:
                env.end(stop)
            except EnvError as failed:
                return self._close(None, StopReason.ENVIRONMENT_ERROR, error or str(failed))
            stop = env.stop or stop
        return self._close(env.outcome if stop in SCORED else None, stop, error)

    def _feedback(
        self, prefix: Tokens, decision: list[int], messages: Sequence[Message], ended: bool
    ) -> tuple[Tokens, str | None]:
        renderer, broken = self.renderer, None
        if ended and not messages:
            return np.zeros(0, dtype=np.int32), None
        if isinstance(renderer, ContextRenderer):
            schemas = self.tool_env.schemas
            pieces, broken = renderer.bridge(prefix.tolist(), decision, self._conversation, messages, schemas)
        else:
            closed = bool(decision) and decision[-1] in renderer.stop_ids
            pieces = renderer.feedback(messages, closed=closed)
        if ended:
            pieces = [] if broken is not None else _without_trailing_scaffold(pieces)
        elif broken is not None:
            self._segment_start = len(self._running())
            self._running().segment(broken)
        return self._append(pieces), broken

    def _append(self, pieces: Sequence[Piece]) -> Tokens:
        recorder = self._running()
        write = {
            SpanKind.PROMPT: recorder.prompt,
            SpanKind.FEEDBACK: recorder.feedback,
            SpanKind.SCAFFOLD: recorder.scaffold,
        }
        for kind, ids in pieces:
            write[kind](np.asarray(ids, dtype=np.int64))
        return np.array([at for piece in pieces for at in piece.ids], dtype=np.int32)

    def _lost(self, error: Exception) -> tuple[Tokens, float, bool, bool, dict[str, Any]]:
        said = error_text(error)
        self._close(None, StopReason.INFRASTRUCTURE, said)
        info = {"stop": str(StopReason.INFRASTRUCTURE), "unscored": True, "error": said}
        return np.zeros(0, dtype=np.int32), 0.0, False, True, info

    def _close(self, outcome: float | None, stop: StopReason, error: str | None = None) -> Trajectory:
        self.trajectory = self._running().finish(outcome, stop, error, self._now_s())
        self._recorder = None
        return self.trajectory

    def _running(self) -> Recorder:
        if self._recorder is None:
            raise EnvError(
                "no episode is being recorded: "
                + ("it has ended, call reset() for another" if self.trajectory is not None else "call reset() first")
            )
        return self._recorder

    def _now_s(self) -> float:
        return time.monotonic() - self.tool_env.started_at


def _plain(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return options that JSON gives back unchanged, None where one of them is more than data (a `Task`)."""
    try:
        back = json.loads(json.dumps(options))
    except (TypeError, ValueError):
        return None
    return back if back == options else None


def _without_trailing_scaffold(pieces: Sequence[Piece]) -> list[Piece]:
    last = max((at for at, piece in enumerate(pieces) if piece.kind is not SpanKind.SCAFFOLD), default=-1)
    return list(pieces[: last + 1])
