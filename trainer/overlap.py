"""Rollouts ahead: the next steps' episodes are lived in a thread while the trainer updates.

A pipeline of fixed length. With `max_staleness` k the episodes of step s are lived with the weights of version
max(0, s - k), whoever is faster: the trainer waits for episodes, and episodes wait for the weights. So nothing is ever
too old and nothing is dropped, and an engine in lockstep gives the same bits in every run.

What lives the episodes has weights of its own, and takes over the trainer's between two rollouts, never inside one.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from accredit.agents.crew import OnEpisode, TrainedCrew, Work
from accredit.agents.rollout import Episode
from accredit.credit import Trajectory
from accredit.sandboxes.errors import AccreditError

__all__ = ["Ahead", "Lived", "OverlappedCrew", "StaleError", "frozen_copy", "staleness"]

T = TypeVar("T")


class StaleError(AccreditError, RuntimeError):
    """Episodes are older than `rollout.max_staleness` allows."""


class Lived(NamedTuple):
    """What came of a step's episodes: `faults` counts those that a machine's failure ended, each time they were lived.

    `seconds` is how long it took to live them.
    """

    trajectories: list[Trajectory]
    faults: int
    seconds: float


def frozen_copy(model: Any) -> Any:
    """Return a copy of `model` that no gradient reaches."""
    return copy.deepcopy(model).requires_grad_(False)


class OverlappedCrew:
    """Lets `own` live episodes in a thread, in the order in which they come, each lot with the weights as they were.

    `own` samples from `sampler`, a `frozen_copy` of `model`, the weights that the trainer changes. As many versions are
    kept at once as wait for their turn.
    """

    def __init__(self, own: TrainedCrew, sampler: Any, model: Any) -> None:
        self._own = own
        pairs = zip(model.parameters(), sampler.parameters(), strict=True)
        self._pairs = [(source, target) for source, target in pairs if source.requires_grad]
        self._version = self._given = own.version
        self._told: dict[str, float] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="accredit-rollout")

    @property
    def version(self) -> int:
        """The version of the trainer's weights."""
        return self._version

    def submit(self, work: Callable[[TrainedCrew], T]) -> Future[T]:
        """Let `work` be done, after what was submitted before, with the weights as they are now."""
        weights: list[Tensor] = []
        if self._given != self._version:
            weights = [source.detach().clone() for source, _ in self._pairs]
            self._given = self._version
        return self._thread.submit(self._do, self._version, weights, work)

    def live(
        self,
        episodes: Sequence[Episode],
        work: Work,
        on_done: OnEpisode | None = None,
        on_fault: OnEpisode | None = None,
    ) -> list[Trajectory]:
        """Live episodes with the weights as they are now, after those that were submitted, and wait for them."""
        return self.submit(lambda crew: crew.live(episodes, work, on_done, on_fault)).result()

    def updated(self, version: int) -> dict[str, float]:
        """Note that the weights are new; return metrics of those that were handed over last."""
        self._version = version
        return self._told

    def close(self) -> None:
        """Leave out what waits, wait for what is being lived, and stop the crew."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._own.close()

    def _do(self, version: int, weights: list[Tensor], work: Callable[[TrainedCrew], T]) -> T:
        if weights:
            with torch.no_grad():
                for (_, target), value in zip(self._pairs, weights, strict=True):
                    target.copy_(value)
            weights.clear()
            self._told = self._own.updated(version)
        return work(self._own)


class Ahead:
    """The rollouts of this step and the next `most` ones, of `steps`; `live` lives the episodes of a step."""

    def __init__(self, crew: OverlappedCrew, live: Callable[[int, TrainedCrew], Lived], most: int, steps: int) -> None:
        self._crew, self._live, self._most, self._steps = crew, live, most, steps
        self._waiting: dict[int, Future[Lived]] = {}

    def take(self, step: int) -> Lived:
        """Begin the rollouts that may begin now, with the weights as they are; return that of `step`."""
        for later in range(step, min(step + self._most, self._steps - 1) + 1):
            if later not in self._waiting:
                self._waiting[later] = self._crew.submit(partial(self._live, later))
        return self._waiting.pop(step).result()

    def settled(self) -> dict[int, Lived]:
        """Wait for the rollouts that have begun; return them by step, without those that failed."""
        return {step: lived.result() for step, lived in self._waiting.items() if lived.exception() is None}

    def restore(self, lots: Mapping[int, Lived]) -> None:
        """Take in rollouts that an earlier process made."""
        for step, lived in lots.items():
            self._waiting[step] = Future()
            self._waiting[step].set_result(lived)


def staleness(trajectories: Sequence[Trajectory], version: int, most: int) -> dict[str, float]:
    """Return how many versions behind `version` the turns were decided: their mean and maximum, 0 without a turn.

    Raises:
        StaleError: one is more than `most` behind.

    """
    ages = [version - was for trajectory in trajectories for was in trajectory.policy_versions]
    if ages and max(ages) > most:
        old = next(t for t in trajectories if any(version - was > most for was in t.policy_versions))
        raise StaleError(
            f"episode {old.episode_id} was decided by version {min(old.policy_versions)} of the policy and would teach "
            f"version {version}, expected at most {most} versions between (rollout.max_staleness): the engine did not "
            "take over the weights"
        )
    mean = sum(ages) / len(ages) if ages else 0.0
    return {"rollout/staleness_mean": mean, "rollout/staleness_max": float(max(ages, default=0))}
