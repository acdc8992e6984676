"""A step's rollouts: episodes by their seeds, lived through outages of machines, noted in the journal as they end.

What stands ready ahead of its step at a checkpoint is kept in it, for the weights that lived it are gone.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from accredit.agents.crew import TrainedCrew, Work
from accredit.agents.rollout import Episode, seeds_of
from accredit.credit import CallStatus, StopReason, Trajectory

from .config import TrainConfig
from .journal import Journal, read_episodes, write_episodes
from .overlap import Lived
from .run import RunError

__all__ = ["AHEAD", "OUTAGE_S", "Rollouts", "check", "lost", "read_ahead", "write_ahead"]

OUTAGE_S = (5.0, 15.0, 45.0, 120.0)
"""Pauses in an outage: a step in which machines failed under every episode is lived again after each."""

AHEAD = "ahead.jsonl"
"""The file of a checkpoint with the episodes that were lived ahead."""

_log = logging.getLogger(__name__)


class Rollouts:
    """Has the episodes of a step lived. `paired`: each is followed by its branch, and both count.

    `options` are the environment's reset options; `count` hears how many episodes of a step have ended, and of how
    many.
    """

    def __init__(
        self, config: TrainConfig, options: Mapping[str, Any], paired: bool, count: Callable[[int, int], None]
    ) -> None:
        self._config, self._options, self._paired, self._count = config, options, paired, count
        self._stopping = threading.Event()
        self._journal: Journal | None = None

    def note_in(self, journal: Journal) -> None:
        """Note ended episodes in `journal`, and take up those that it has kept."""
        self._journal = journal

    def live(self, step: int, crew: TrainedCrew) -> Lived:
        """Let `crew` live the episodes of 0-based `step`; while all are lost to machines, wait and live them again."""
        started = time.monotonic()
        episodes = self._episodes(step)
        faults: list[Trajectory] = []
        trajectories = self._live(episodes, crew, faults)
        for pause_s in OUTAGE_S:
            if lost(trajectories) < len(trajectories):
                break
            _log.warning("machines failed under every episode, waiting %g s%s", pause_s, _first_error(trajectories))
            self._stopping.wait(pause_s)
            trajectories = self._live(episodes, crew, faults)
        return Lived(trajectories, len(faults), time.monotonic() - started)

    def ended(self, version: int) -> Mapping[str, Trajectory]:
        """Return the episodes, by id, that an earlier process has lived with `version` of the weights."""
        return self._journal.ended(version) if self._journal else {}

    def note(self, trajectory: Trajectory) -> None:
        """Note an episode that has ended in the journal; end its rollout if the run is being closed."""
        if self._journal:
            self._journal.add(trajectory)
        if self._stopping.is_set():
            raise RunError("the run was closed while episodes were lived ahead")

    def stop(self) -> None:
        """Give up what is being lived."""
        self._stopping.set()

    def _episodes(self, step: int) -> list[Episode]:
        seed, rollout = self._config.seed, self._config.rollout
        return [
            Episode(
                f"s{step:06d}-g{group:03d}-m{member:02d}",
                f"s{step:06d}-g{group:03d}",
                seeds_of(seed, step, group),
                seeds_of(seed, step, group, member, 1),
                seeds_of(seed, step, group, member, 2),
                {**self._options, "split": "train"},
            )
            for group in range(rollout.groups)
            for member in range(rollout.group_size // (2 if self._paired else 1))
        ]

    def _live(self, episodes: Sequence[Episode], crew: TrainedCrew, faults: list[Trajectory]) -> list[Trajectory]:
        of = len(episodes) * (2 if self._paired else 1)
        done = 0

        def on_done(trajectory: Trajectory) -> None:
            nonlocal done
            self.note(trajectory)
            done += 1
            self._count(done, of)

        return crew.live(episodes, Work(self._paired, ended=self.ended(crew.version)), on_done, faults.append)


def write_ahead(ready: Mapping[int, Lived], folder: Path) -> None:
    """Write what was lived ahead, step by step, into a checkpoint."""
    if ready:
        write_episodes(folder / AHEAD, [t for step in sorted(ready) for t in ready[step].trajectories])


def read_ahead(folder: Path, told: Mapping[str, Sequence[int]]) -> dict[int, Lived]:
    """Return what a checkpoint has of the steps ahead; `told` is the number of episodes and of faults of each."""
    found = read_episodes(folder / AHEAD) if (folder / AHEAD).exists() else {}
    lots: dict[int, Lived] = {}
    for step, (count, faults) in told.items():
        name = f"s{int(step):06d}-"
        own = [trajectory for episode, trajectory in found.items() if episode.startswith(name)]
        if len(own) == count:
            lots[int(step)] = Lived(own, faults, 0.0)
        else:
            _log.warning("step %d is lived again, with newer weights: %s has not all of it", int(step) + 1, folder)
    return lots


def lost(trajectories: Sequence[Trajectory]) -> int:
    """Return how many ended by a machine's failure."""
    return sum(trajectory.stop is StopReason.INFRASTRUCTURE for trajectory in trajectories)


def check(trajectories: Sequence[Trajectory], most_tokens: int) -> None:
    """Raise `RunError` if nothing can be learnt from a step: no episode was scored, or none came to a decision."""
    if all(trajectory.reward is None for trajectory in trajectories):
        raise RunError(f"all {len(trajectories)} episodes of the step ended unscored{_first_error(trajectories)}")
    if not any(trajectory.decisions for trajectory in trajectories):
        raise RunError(
            f"none of the {len(trajectories)} episodes of the step came to a decision: rollout.episode_tokens is "
            f"{most_tokens}, and the shortest prompt has {min(len(trajectory) for trajectory in trajectories)} tokens. "
            "Raise rollout.episode_tokens, or shorten the prompts"
        )


def _first_error(trajectories: Sequence[Trajectory]) -> str:
    for trajectory in trajectories:
        failed = [call.result for call in trajectory.calls if call.status is CallStatus.INFRASTRUCTURE]
        if trajectory.error or failed:
            return f"; the first error was: {trajectory.error or failed[-1]}"
    return ""
