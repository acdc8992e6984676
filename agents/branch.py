"""Branches: a lived episode again, with one turn decided anew and everything else kept.

The branch is fed the stored decisions up to turn k, samples turn k with another sampler seed, and goes on with the
noise that the base had in every other turn; the environment's task and luck are the base's. So base and branch differ
by that one decision and what follows from it, and equal luck cancels in the difference of their rewards: common random
numbers. This module prices nothing; `accredit.credit.functions.counterfactual` does.

Both members of a pair share `trajectory.group` and note `seeds["fork_turn"]` = k and `seeds["pair"]`, a number within
the group; the branch notes the seed of its turn k as `seeds["fork_sampler"]`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accredit.credit import StopReason, Trajectory
from accredit.envs import Decision, ToolEnv
from accredit.envs.rendering import Renderer

from .following import context_of
from .policy import Policy, Request
from .replaying import decisions_of
from .rollout import Episode, Limits, live, seeds_of

__all__ = ["Branch", "fork_pairs", "live_branches"]


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """What to live again, and where to decide anew.

    `episode` has the id of the branch, and otherwise all that the base was lived from; `base` is what it became; `turn`
    is decided anew with the sampler seed `sampler`.
    """

    episode: Episode
    base: Trajectory
    turn: int
    sampler: int


def fork_pairs(
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
) -> list[tuple[Trajectory, Trajectory]]:
    """Live every episode and a branch of it; return (base, branch) in the order of `episodes`.

    The turn is drawn evenly among the base's turns, from the episode's own sampler seed. That weighs a pair by 1/K, K
    the base's number of turns. Where K is the same for all, the mean advantage of a turn is exact; where K depends on
    what is decided and goes with the reward, it leans to decisions that succeed in short episodes. The branch of
    episode ID is named ID-fork; `limits` and the rest are those of `rollout_episodes`.
    """
    bases = live(
        episodes,
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
    numbers: dict[str, int] = {}
    branches: list[Branch] = []
    for episode, base in zip(episodes, bases, strict=True):
        number = numbers[episode.group] = numbers.get(episode.group, -1) + 1
        turn = seeds_of(episode.sampler, 1) % max(1, base.turns)
        noted = replace(base, seeds={**base.seeds, "fork_turn": turn, "pair": number})
        branches.append(Branch(replace(episode, id=f"{episode.id}-fork"), noted, turn, seeds_of(episode.sampler, 2)))
    forked = live_branches(
        branches,
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
    return [
        (branch.base, replace(fork, seeds={**fork.seeds, "pair": branch.base.seeds["pair"]}))
        for branch, fork in zip(branches, forked, strict=True)
    ]


def live_branches(
    branches: Sequence[Branch],
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
    """Live every branch; return the trajectories in order.

    A branch whose environment answers the stored decisions otherwise than it answered the base is no counterfactual: it
    comes back unscored, stopped by `environment_error`, and says in which turn it parted. State keys and the rewards of
    turns are compared like what the environment says.

    Raises:
        ValueError: a base has no such turn to be decided anew.

    """
    for branch in branches:
        if not 0 <= branch.turn < max(1, branch.base.turns):
            raise ValueError(
                f"branch '{branch.episode.id}' decides turn {branch.turn} anew, but its base "
                f"'{branch.base.episode_id}' has {branch.base.turns} turns, counted from 0"
            )
    forking = _Forking(policy, {branch.episode.id: branch for branch in branches})
    lived = live(
        [branch.episode for branch in branches],
        forking,
        make_env,
        renderer,
        limits,
        temperature=temperature,
        workers=workers,
        on_done=on_done,
        on_fault=on_fault,
        ended=ended,
    )
    return [
        _noted(trajectory, branch, forking.parted.get(branch.episode.id))
        for branch, trajectory in zip(branches, lived, strict=True)
    ]


class _Forking:
    """A policy that repeats a base up to its branch's turn, and asks `policy` from there on."""

    def __init__(self, policy: Policy, branches: Mapping[str, Branch]) -> None:
        self.lockstep = policy.lockstep
        self.parted: dict[str, int] = {}
        self._policy, self._branches = policy, branches
        self._stored = {name: decisions_of(branch.base) for name, branch in branches.items()}

    @property
    def version(self) -> int:
        return self._policy.version

    def forget(self, episode_id: str) -> None:
        self._policy.forget(episode_id)

    async def sample(self, requests: Sequence[Request]) -> list[Decision]:
        """Return the stored decision for each request before its branch's turn; sample the others in one batch."""
        answers: dict[int, Decision] = {}
        asked: list[tuple[int, Request]] = []
        for place, request in enumerate(requests):
            branch, stored = self._branches[request.episode_id], self._stored[request.episode_id]
            if request.turn <= branch.turn:
                self._compare(branch, request)
            if request.turn < branch.turn:
                answers[place] = stored[request.turn]
            else:
                asked.append((place, replace(request, seed=_noise(branch, request))))
        if asked:
            sampled = await self._policy.sample([request for _, request in asked])
            answers |= {place: decision for (place, _), decision in zip(asked, sampled, strict=True)}
        return [answers[place] for place in range(len(requests))]

    def _compare(self, branch: Branch, request: Request) -> None:
        seen = context_of(branch.base, request.turn)
        if seen is not None and not np.array_equal(seen, request.token_ids):
            self.parted.setdefault(request.episode_id, request.turn)


def _noise(branch: Branch, request: Request) -> int:
    """Return the sampler seed of a turn: anew in the branch's, else the base's, which may be a branch itself."""
    if request.turn == branch.turn:
        return branch.sampler
    own = branch.base.seeds if branch.base.seeds.get("fork_turn") == request.turn else {}
    return own.get("fork_sampler", request.seed)


def _parted_unsaid(trajectory: Trajectory, branch: Branch) -> int | None:
    """Return the first turn up to the branch's that began in another state or after other pay than the base's."""
    base = branch.base
    for turn in range(min(branch.turn, trajectory.turns, base.turns) + 1):
        paid = [float(each.turn_rewards[:turn].sum()) for each in (base, trajectory)]
        if base.state_keys[turn] != trajectory.state_keys[turn] or paid[0] != paid[1]:
            return turn
    return None


def _noted(trajectory: Trajectory, branch: Branch, parted: int | None) -> Trajectory:
    seeds = {**trajectory.seeds, "fork_turn": branch.turn, "fork_sampler": branch.sampler}
    base = f"episode '{branch.base.episode_id}'"
    parted = _parted_unsaid(trajectory, branch) if parted is None else parted
    if parted is not None:
        error = (
            f"the environment answered the decisions of {base} otherwise before turn {parted}: draw every random "
            "number from self.rng, and keep clocks and outside services out of what tools say"
        )
    elif trajectory.turns <= branch.turn < branch.base.turns:
        error = f"ended ({trajectory.stop}) before turn {branch.turn} of {base} could be decided anew"
    else:
        return replace(trajectory, seeds=seeds)
    stop = StopReason.ENVIRONMENT_ERROR if trajectory.error is None else trajectory.stop
    return replace(trajectory, seeds=seeds, outcome=None, stop=stop, error=trajectory.error or error)
