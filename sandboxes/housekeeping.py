"""How a pool keeps house, and what it counts. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .verdict import FAULTS, Status

__all__ = ["PoolCounts", "PoolOptions"]


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """How a pool keeps house. Times are in seconds."""

    most: int = 16
    """Sessions in use at once; one that is being ended still counts."""
    warm: int = 2
    """Sessions opened ahead, beside those in use."""
    queue: int = 64
    """Callers that may wait for a place; one more is refused at once."""
    wait_s: float = 120.0
    """How long a caller waits for a place."""
    open_s: float = 60.0
    """How long an opening may take, its repetitions included."""
    attempts: int = 3
    """How often an opening is tried, each time afresh."""
    canary_after: int = 3
    """Failures of the model in a row, on one session, after which a canary has to show that the session lives."""

    def __post_init__(self) -> None:
        for name, least in (("most", 1), ("warm", 0), ("queue", 0), ("attempts", 1), ("canary_after", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"expected {name} >= {least}, actually {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """What a pool did since it was made, and what it holds now. `statuses` counts runs and failed openings."""

    opened: int = 0
    taken_warm: int = 0
    runs: int = 0
    canaries: int = 0
    held: int = 0
    warm: int = 0
    waiting: int = 0
    statuses: Mapping[Status, int] = field(default_factory=dict)

    @property
    def faults(self) -> int:
        """How many runs and openings the host side failed."""
        return sum(number for status, number in self.statuses.items() if status in FAULTS)
