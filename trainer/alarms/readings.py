"""Readings: every metric of a run as the alarms see it, smoothed.

Each metric has two exponential moving averages, freed of their start at 0: `ema` over about 5 steps and `slow` over
about 20. A value that is not a finite number is no reading and moves nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["Readings"]

FAST, SLOW = 0.8, 0.95
FIRST = 5  # steps that make the start


class _Track:
    """The averages of one metric."""

    def __init__(self) -> None:
        self.count = 0
        self.usual: tuple[float, int] = (0.0, 0)  # of the readings before the last that were not 0: mean, number
        self._loud, self._louds = 0.0, 0
        self.last = self.start = 0.0
        self._sums = {FAST: 0.0, SLOW: 0.0}
        self._squares = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.last = value
        if self._louds:
            self.usual = self._loud / (1 - SLOW**self._louds), self._louds
        if value:
            self._loud, self._louds = SLOW * self._loud + (1 - SLOW) * value, self._louds + 1
        if self.count <= FIRST:
            self.start += (value - self.start) / self.count
        for keep in self._sums:
            self._sums[keep] = keep * self._sums[keep] + (1 - keep) * value
        self._squares = SLOW * self._squares + (1 - SLOW) * value * value

    def mean(self, keep: float) -> float:
        return self._sums[keep] / (1 - keep**self.count)

    def deviation(self) -> float:
        square = self._squares / (1 - SLOW**self.count)
        return math.sqrt(max(0.0, square - self.mean(SLOW) ** 2))


class Readings:
    """What is known of each metric; every question is answered with None where there is no reading."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._now: set[str] = set()

    def add(self, metrics: Mapping[str, Any]) -> None:
        """Take in one step's metrics."""
        self._now = set()
        for name, value in metrics.items():
            if isinstance(value, int | float) and math.isfinite(value):
                self._tracks.setdefault(name, _Track()).add(float(value))
                self._now.add(name)

    def last(self, name: str) -> float | None:
        """Return the reading of the step taken in last."""
        return self._tracks[name].last if name in self._now else None

    def ema(self, name: str) -> float | None:
        """Return the mean over about 5 steps."""
        return self._tracks[name].mean(FAST) if name in self._tracks else None

    def slow(self, name: str) -> float | None:
        """Return the mean over about 20 steps."""
        return self._tracks[name].mean(SLOW) if name in self._tracks else None

    def usual(self, name: str, least: int) -> float | None:
        """Return the mean over about 20 readings before the last, without those of 0; None for fewer than `least`."""
        mean, number = self._tracks[name].usual if name in self._tracks else (0.0, 0)
        return mean if number >= least else None

    def deviation(self, name: str) -> float | None:
        """Return the standard deviation over about 20 steps."""
        return self._tracks[name].deviation() if name in self._tracks else None

    def start(self, name: str) -> float | None:
        """Return the mean over the first 5 steps."""
        return self._tracks[name].start if name in self._tracks else None

    def count(self, name: str) -> int:
        """Return how many readings there are."""
        return self._tracks[name].count if name in self._tracks else 0
