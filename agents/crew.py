"""A crew lives episodes for a trainer: in this process, in the processes of a run, or on the nodes of a cluster.

Whoever lives them, episodes come back in the order in which they were asked for, and seeds belong to the episode. What
differs is which episodes share a lockstep engine's batches, and with that the last bits of log-probabilities.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from accredit.credit import Trajectory
from accredit.envs import ToolEnv
from accredit.envs.rendering import Renderer

from .branch import fork_pairs
from .policy import Policy, TrainedPolicy
from .rollout import Episode, Limits, live

__all__ = ["Crew", "LocalCrew", "TrainedCrew", "Work", "in_order", "lots_of", "tell"]

OnEpisode = Callable[[Trajectory], None]


@dataclass(frozen=True, slots=True)
class Work:
    """How episodes are to be lived: `paired` has a branch follow each (`fork_pairs`), `at_once` bounds those together.

    `ended` are episodes that ended before, by id; they come back as they are.
    """

    paired: bool = False
    temperature: float = 1.0
    at_once: int | None = None
    ended: Mapping[str, Trajectory] | None = None

    @property
    def members(self) -> int:
        """How many trajectories come of an episode."""
        return 2 if self.paired else 1


class Crew(Protocol):
    """Lives episodes."""

    def live(
        self,
        episodes: Sequence[Episode],
        work: Work,
        on_done: OnEpisode | None = None,
        on_fault: OnEpisode | None = None,
    ) -> list[Trajectory]:
        """Return the trajectories in order, where `work.paired` each followed by its branch.

        `on_done` and `on_fault` are those of `rollout_episodes`.
        """
        ...


class TrainedCrew(Crew, Protocol):
    """A crew whose weights the trainer changes."""

    @property
    def version(self) -> int:
        """The version of the weights."""
        ...

    def updated(self, version: int) -> dict[str, float]:
        """Take over the weights as they are now; return metrics of it."""
        ...

    def close(self) -> None:
        """Stop what was started."""
        ...


class LocalCrew:
    """Lives episodes in this process, with one policy; `workers` threads step environments."""

    def __init__(
        self, policy: Policy, make_env: Callable[[], ToolEnv], renderer: Renderer, limits: Limits, workers: int = 8
    ) -> None:
        self.policy = policy
        self._site: tuple[Any, ...] = (policy, make_env, renderer, limits)
        self._workers = workers

    @property
    def version(self) -> int:
        """The version of the policy's weights."""
        return self.policy.version

    def live(
        self,
        episodes: Sequence[Episode],
        work: Work,
        on_done: OnEpisode | None = None,
        on_fault: OnEpisode | None = None,
    ) -> list[Trajectory]:
        """Do what `Crew.live` says."""
        common: dict[str, Any] = {
            "temperature": work.temperature,
            "workers": self._workers,
            "on_done": on_done,
            "on_fault": on_fault,
            "ended": work.ended,
        }
        if not work.paired:
            return live(episodes, *self._site, at_once=work.at_once, **common)
        pairs = fork_pairs(episodes, *self._site, **common)
        return [member for pair in pairs for member in pair]

    def updated(self, version: int) -> dict[str, float]:
        """Let the policy take over its model's weights."""
        return self._trained.updated(version)

    def close(self) -> None:
        """Close the policy."""
        self._trained.close()

    @property
    def _trained(self) -> TrainedPolicy:
        assert hasattr(self.policy, "updated"), "a policy that trains has weights to take over"
        return self.policy  # pyright: ignore[reportReturnType]


def lots_of(episodes: Iterable[Episode]) -> list[list[Episode]]:
    """Return the episodes by group, in order: what is dealt out whole, for a group shares a prompt."""
    lots: dict[str, list[Episode]] = {}
    for episode in episodes:
        lots.setdefault(episode.group, []).append(episode)
    return list(lots.values())


def in_order(
    episodes: Iterable[Episode], parts: Iterable[tuple[Sequence[Episode], Sequence[Trajectory]]], work: Work
) -> list[Trajectory]:
    """Return the trajectories of `episodes` in order, from parts of them that were lived apart."""
    found = {
        episode.id: lived[at * work.members : (at + 1) * work.members]
        for share, lived in parts
        for at, episode in enumerate(share)
    }
    return [member for episode in episodes for member in found[episode.id]]


def tell(
    listener: OnEpisode | None, trajectories: Iterable[Trajectory], ended: Mapping[str, Trajectory] | None = None
) -> None:
    """Let `listener` hear of each of the trajectories, but not of those that had `ended` before."""
    if listener is None:
        return
    for trajectory in trajectories:
        if not ended or trajectory.episode_id not in ended:
            listener(trajectory)
