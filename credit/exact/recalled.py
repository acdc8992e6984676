"""A process that remembers what it said of a trajectory, for checks that price the same trajectories many times."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accredit.credit.trajectory import Group, Trajectory

from .process import ExactProcess

__all__ = ["Recalled"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Recalled:
    """An `ExactProcess` around one. Values are remembered by trajectory object, which is kept alive."""

    process: ExactProcess
    _values: dict[int, tuple[Trajectory, Floats]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The inner name."""
        return self.process.name

    @property
    def enumerable(self) -> bool:
        """As the inner process."""
        return self.process.enumerable

    def enumerate(self) -> Iterator[tuple[float, Trajectory]]:
        """As the inner process."""
        return self.process.enumerate()

    def sample(self, rng: np.random.Generator, episode_id: str = "") -> Trajectory:
        """As the inner process."""
        return self.process.sample(rng, episode_id)

    def sample_group(self, rng: np.random.Generator, size: int) -> Group:
        """As the inner process."""
        return self.process.sample_group(rng, size)

    def values(self, trajectory: Trajectory) -> Floats:
        """float64 [T+1], worked out at the first call only; do not write into it."""
        if id(trajectory) not in self._values:
            self._values[id(trajectory)] = trajectory, self.process.values(trajectory)
        return self._values[id(trajectory)][1]

    def remember(self, trajectory: Trajectory, values: Floats) -> None:
        """Take `values` float64 [T+1] for those of `trajectory`, which may be one of another telling of the process."""
        self._values[id(trajectory)] = trajectory, values

    def policy_gradient(self) -> Floats:
        """As the inner process."""
        return self.process.policy_gradient()

    def score(self, trajectory: Trajectory) -> Floats:
        """As the inner process."""
        return self.process.score(trajectory)
