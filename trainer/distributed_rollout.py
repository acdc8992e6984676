"""Crews of a run of several processes: each lives its share of the groups, and all learn what came of all.

Before an episode is lived, the weights that the processes hold in shards are written into the whole copy from which
each of them samples.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from accredit.agents.crew import OnEpisode, TrainedCrew, Work, in_order, lots_of, tell
from accredit.agents.rollout import Episode
from accredit.credit import Trajectory

from .distributed import Processes

__all__ = ["FirstCrew", "SplitCrew"]


class SplitCrew:
    """Deals whole groups to the processes; `own` lives those of this one."""

    def __init__(self, own: TrainedCrew, processes: Processes, sharded: Any, whole: Any) -> None:
        self._own, self._processes, self._sharded, self._whole = own, processes, sharded, whole

    @property
    def version(self) -> int:
        """The version of the weights."""
        return self._own.version

    def live(
        self,
        episodes: Sequence[Episode],
        work: Work,
        on_done: OnEpisode | None = None,
        on_fault: OnEpisode | None = None,
    ) -> list[Trajectory]:
        """Live this process's groups; return all episodes in order, the same on every process.

        The first process hears of its own episodes as they end, and of the others' when all have; of faults all hear.
        What had ended before is what the first process says.
        """
        company = self._processes
        ended = company.from_first(lambda: dict(work.ended or {}))
        own = [episode for lot in company.share(lots_of(episodes)) for episode in lot]
        faults: list[Trajectory] = []
        listener = on_done if company.first else None
        lived = self._own.live(own, replace(work, ended=ended), listener, faults.append)
        parts = company.gather((own, lived, faults))
        for rank, (_, trajectories, failed) in enumerate(parts):
            if rank:
                tell(listener, trajectories, ended)
            tell(on_fault, failed)
        return in_order(episodes, ((share, trajectories) for share, trajectories, _ in parts), work)

    def updated(self, version: int) -> dict[str, float]:
        """Write the shards into the whole copy, and let this process's engine take it over."""
        self._sharded.write_to(self._whole)
        return self._own.updated(version)

    def close(self) -> None:
        """Stop this process's engine."""
        self._own.close()


class FirstCrew:
    """A crew that the first process alone commands, such as one on a cluster; the others have None for it."""

    def __init__(self, own: TrainedCrew | None, processes: Processes, sharded: Any, whole: Any) -> None:
        self._own, self._processes, self._sharded, self._whole = own, processes, sharded, whole
        self._version = 0

    @property
    def version(self) -> int:
        """The version of the weights."""
        return self._version

    def live(
        self,
        episodes: Sequence[Episode],
        work: Work,
        on_done: OnEpisode | None = None,
        on_fault: OnEpisode | None = None,
    ) -> list[Trajectory]:
        """Let the first process have them lived, and tell all what came of it."""
        faults: list[Trajectory] = []

        def lived() -> tuple[list[Trajectory], list[Trajectory]]:
            assert self._own is not None
            return self._own.live(episodes, work, on_done, faults.append), faults

        trajectories, failed = self._processes.from_first(lived)
        tell(on_fault, failed)
        return trajectories

    def updated(self, version: int) -> dict[str, float]:
        """Write the shards into the first process's whole copy, and let its crew take it over."""
        self._sharded.write_to(self._whole)
        self._version = version
        return self._processes.from_first(lambda: self._own.updated(version) if self._own else {})

    def close(self) -> None:
        """Stop the crew."""
        if self._own is not None:
            self._own.close()
