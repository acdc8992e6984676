"""Rollouts: many episodes at once, each a coroutine; environments run on threads, decisions in batches.

A failed episode is data: it comes back as a trajectory with a stop reason and an error, and never ends the rollout. An
episode that a machine's failure ended is lived again from its seeds, in a fresh environment, and comes back unscored if
that fails too: what failed was nobody's doing, so which episodes are lived twice does not depend on how they went. An
engine that fails is a broken invariant and raises. Seeds belong to the episode, so the order of completion changes
nothing.

Episodes that ended before a rollout was killed are handed in as `ended` and are not lived again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit import Recorder, StopReason, Trajectory
from accredit.envs import Decision, EnvError, InfrastructureError, RecordCredit, ToolEnv
from accredit.envs.rendering import Renderer
from accredit.sandboxes.errors import SandboxError

from .batching import Batcher
from .following import follow
from .policy import Policy, Request

__all__ = ["ATTEMPTS", "Episode", "Limits", "live", "rollout_episodes", "seeds_of"]

ATTEMPTS = 2
"""How often an episode is lived, at most, while machines fail under it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """When an episode is cut. A cut episode is scored as the environment stands."""

    decision_tokens: int = 256
    episode_tokens: int = 8192
    turns: int | None = None
    calls: int | None = None
    seconds: float = 600.0
    """In the environment's own code, checked between turns: waiting for the policy does not count, so that a slow
    engine cuts no episode. A single tool has its own timeout."""


@dataclass(frozen=True, slots=True)
class Episode:
    """What to live: the task's seed, and the seeds of the environment's luck and of the sampler.

    Members of a group share `seed` and `options` and so the task; `luck` and `sampler` are their own.
    """

    id: str
    group: str
    seed: int
    luck: int
    sampler: int
    options: Mapping[str, Any] = field(default_factory=dict)


def seeds_of(run_seed: int, *place: int) -> int:
    """Return a 63-bit seed for a place in a run, such as (step, group, member)."""
    return int(np.random.SeedSequence([run_seed, *place]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def live(
    episodes: Sequence[Episode],
    policy: Policy,
    make_env: Callable[[], ToolEnv],
    renderer: Renderer,
    limits: Limits | None = None,
    *,
    temperature: float = 1.0,
    workers: int = 8,
    at_once: int | None = None,
    on_done: Callable[[Trajectory], None] | None = None,
    on_fault: Callable[[Trajectory], None] | None = None,
    ended: Mapping[str, Trajectory] | None = None,
) -> list[Trajectory]:
    """Run `rollout_episodes` from ordinary code, at most `at_once` episodes together; return them in order.

    Also from a notebook's cell, whose thread runs an event loop already.
    """
    size = at_once or max(1, len(episodes))
    lived: list[Trajectory] = []
    for start in range(0, len(episodes), size):
        rollout = rollout_episodes(
            episodes[start : start + size],
            policy,
            make_env,
            renderer,
            limits,
            temperature=temperature,
            workers=workers,
            on_done=on_done,
            on_fault=on_fault,
            ended=ended,
        )
        lived += _completed(rollout)
    return lived


def _completed(rollout: Coroutine[Any, Any, list[Trajectory]]) -> list[Trajectory]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(rollout)
    with ThreadPoolExecutor(1, thread_name_prefix="accredit-live") as thread:
        return thread.submit(asyncio.run, rollout).result()


async def rollout_episodes(
    episodes: Sequence[Episode],
    policy: Policy,
    make_env: Callable[[], ToolEnv],
    renderer: Renderer,
    limits: Limits | None = None,
    *,
    temperature: float = 1.0,
    workers: int = 8,
    on_done: Callable[[Trajectory], None] | None = None,
    on_fault: Callable[[Trajectory], None] | None = None,
    ended: Mapping[str, Trajectory] | None = None,
) -> list[Trajectory]:
    """Live every episode and return the trajectories in the order of `episodes`.

    Args:
        episodes: what to live; ids must differ.
        policy: samples the decisions.
        make_env: makes a fresh environment; called once for each time that an episode is lived.
        renderer: turns messages into tokens.
        limits: when an episode is cut.
        temperature: of the sampling; log-probabilities are the policy's at 1 whatever it is.
        workers: threads that step environments.
        on_done: called with each trajectory as it ends.
        on_fault: called with what was lived whenever a machine's failure ended it, also if it is lived again.
        ended: episodes that ended before, by id: they come back as they are, and neither callback hears of them. In
            lockstep their rows stay in the batches, so that the others come out to the same bits.

    """
    if len({episode.id for episode in episodes}) != len(episodes):
        raise ValueError("episode ids must differ: an engine keeps its cache by id")
    known = {episode.id: ended[episode.id] for episode in episodes if episode.id in ended} if ended else {}
    if len(known) == len(episodes):
        return [known[episode.id] for episode in episodes]
    asking = [episode for episode in episodes if policy.lockstep or episode.id not in known]
    batcher = Batcher(policy, len(asking))
    with ThreadPoolExecutor(workers, thread_name_prefix="accredit-env") as pool:
        lives: dict[str, asyncio.Task[Trajectory]] = {}
        followed: list[asyncio.Task[None]] = []
        for order, episode in enumerate(asking):
            life = _Life(order, episode, policy, batcher, renderer, limits or Limits(), temperature, pool, on_fault)
            if episode.id in known:
                followed.append(asyncio.create_task(follow(known[episode.id], life.ask, life.leave)))
            else:
                lives[episode.id] = asyncio.create_task(life.run(make_env))
        try:
            for task in asyncio.as_completed(lives.values()):
                trajectory = await task
                if on_done:
                    on_done(trajectory)
            await asyncio.gather(*followed)
        except BaseException:
            for task in [*lives.values(), *followed]:
                task.cancel()
            await asyncio.gather(*lives.values(), *followed, return_exceptions=True)
            raise
        return [known[e.id] if e.id in known else lives[e.id].result() for e in episodes]


class _Life:
    """One episode being lived."""

    def __init__(
        self,
        order: int,
        episode: Episode,
        policy: Policy,
        batcher: Batcher,
        renderer: Renderer,
        limits: Limits,
        temperature: float,
        pool: ThreadPoolExecutor,
        on_fault: Callable[[Trajectory], None] | None,
    ) -> None:
        self._order, self._episode, self._policy, self._batcher = order, episode, policy, batcher
        self._renderer, self._limits, self._temperature, self._pool = renderer, limits, temperature, pool
        self._on_fault = on_fault
        self._spent = 0.0

    async def run(self, make_env: Callable[[], ToolEnv]) -> Trajectory:
        attempt = 0
        try:
            while True:
                trajectory = await self._once(make_env)
                attempt += 1
                if trajectory.stop is not StopReason.INFRASTRUCTURE:
                    return trajectory
                if self._on_fault:
                    self._on_fault(trajectory)
                _log.warning("episode %s, attempt %d of %d: a machine failed", self._episode.id, attempt, ATTEMPTS)
                if attempt == ATTEMPTS:
                    return trajectory
        finally:
            self._batcher.leave()

    async def ask(self, ids: NDArray[np.int32], turn: int, env: ToolEnv | None = None) -> Decision:
        """Return what the policy decides in `turn` after `ids`."""
        limits = self._limits
        room = min(limits.decision_tokens, limits.episode_tokens - len(ids))
        episode, stop_ids = self._episode, self._renderer.stop_ids
        request = Request(episode.id, ids, turn, episode.sampler, room, stop_ids, self._temperature, env)
        return await self._batcher.sample(self._order, request)

    def leave(self) -> None:
        """Say that this episode will not ask again."""
        self._policy.forget(self._episode.id)
        self._batcher.leave()

    async def _once(self, make_env: Callable[[], ToolEnv]) -> Trajectory:
        self._spent = 0.0
        recorded: RecordCredit | None = None
        try:
            try:
                recorded = RecordCredit(await self._off(make_env), self._renderer)
                await self._off(
                    recorded.reset,
                    seed=self._episode.seed,
                    options={**self._episode.options, "luck": self._episode.luck},
                    episode_id=self._episode.id,
                    group=self._episode.group,
                    seeds={"sampler": self._episode.sampler},
                )
            except Exception as error:
                return self._not_started(error)
            return await self._turns(recorded)
        finally:
            self._policy.forget(self._episode.id)
            if recorded is not None:
                await self._off(recorded.close)

    async def _turns(self, recorded: RecordCredit) -> Trajectory:
        env, limits = recorded.tool_env, self._limits
        while recorded.trajectory is None:
            ids = recorded.context
            room = min(limits.decision_tokens, limits.episode_tokens - len(ids))
            reason = self._cut(env, room)
            if reason is not None:
                return await self._off(recorded.finish, reason)
            decision = await self.ask(ids, env.turn, env)
            try:
                await self._off(recorded.step, decision)
            except EnvError as error:
                _log.warning("episode %s failed in turn %d: %s", self._episode.id, env.turn, error)
        return recorded.trajectory

    def _cut(self, env: ToolEnv, room: int) -> StopReason | None:
        if room < 1:
            return StopReason.TOKEN_LIMIT
        if self._limits.turns is not None and env.turn >= self._limits.turns:
            return StopReason.TURN_LIMIT
        if self._limits.calls is not None and env.calls >= self._limits.calls:
            return StopReason.CALL_LIMIT
        return StopReason.TIME_LIMIT if self._spent > self._limits.seconds else None

    def _not_started(self, error: Exception) -> Trajectory:
        _log.warning("episode %s could not start: %s", self._episode.id, error)
        lost = isinstance(error, InfrastructureError | SandboxError)
        empty = Recorder(
            episode_id=self._episode.id,
            group=self._episode.group,
            seeds={
                "environment": self._episode.seed,
                "luck": self._episode.luck,
                "sampler": self._episode.sampler,
            },
        )
        stop = StopReason.INFRASTRUCTURE if lost else StopReason.ENVIRONMENT_ERROR
        return empty.finish(None, stop, f"{type(error).__name__}: {error}")

    async def _off(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def timed() -> Any:
            started = time.monotonic()
            try:
                return work(*args, **kwargs)
            finally:
                self._spent += time.monotonic() - started

        return await asyncio.get_running_loop().run_in_executor(self._pool, timed)
