"""Branching: the policy decides when to stop, so trajectories differ in length.

Each turn it takes what it has, or goes on. Going on gains, and with probability `bust` loses everything and ends the
episode. R = taken / `turns`. A function that weighs a trajectory by its length, or averages by position over a group,
is found out here.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accredit.credit.errors import CreditError
from accredit.credit.spans import SpanKind

from .tree import Step, TreeProcess

__all__ = ["Branching", "branching"]

TAKE_TOKEN, GO_ON_TOKEN, SAFE_TOKEN, BUST_TOKEN, FILLER_TOKEN = 1, 2, 3, 4, 5


class _Place(NamedTuple):
    gained: int
    stage: str  # "write", "choose", "luck", "end"
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Branching:
    """`Rules` of Branching: at most `turns` gains, the policy takes with probability `take`, luck busts with `bust`."""

    turns: int = 3
    take: float = 0.4
    bust: float = 0.25

    def __post_init__(self) -> None:
        if self.turns < 1 or not 0 < self.take < 1 or not 0 <= self.bust < 1:
            raise CreditError(
                f"turns={self.turns}, take={self.take}, bust={self.bust}: expected at least 1 turn, 0 < take < 1 and "
                "0 <= bust < 1"
            )

    @property
    def name(self) -> str:
        """The name with its size."""
        return f"Branching({self.turns} turns)"

    @property
    def slots(self) -> tuple[int, ...]:
        """One row for each number of gains."""
        return (2,) * self.turns

    @property
    def start(self) -> Hashable:
        """One gain in hand."""
        return _Place(1, "write")

    def step(self, state: Hashable) -> Step | None:
        """Return a filler, the choice to take or go on, or luck."""
        place = self._place(state)
        if place.stage == "end":
            return None
        if place.stage == "write":
            return Step(SpanKind.DECISION, (FILLER_TOKEN,), (1.0,), (place._replace(stage="choose"),))
        if place.stage == "choose":
            after = (_Place(place.gained, "end", place.gained), _Place(place.gained, "luck"))
            chances = (self.take, 1 - self.take)
            return Step(SpanKind.DECISION, (TAKE_TOKEN, GO_ON_TOKEN), chances, after, place.gained - 1)
        gained = place.gained + 1
        safe = _Place(gained, "write") if gained <= self.turns else _Place(gained, "end", gained)
        after = (safe, _Place(place.gained, "end"))
        return Step(SpanKind.FEEDBACK, (SAFE_TOKEN, BUST_TOKEN), (1 - self.bust, self.bust), after)

    def outcome(self, state: Hashable) -> float:
        """Return the share taken."""
        return self._place(state).taken / self.turns

    def turn_rewards(self, state: Hashable) -> Sequence[float]:
        """All is paid at the end."""
        return ()

    def state_key(self, state: Hashable) -> str | None:
        """Return what is in hand, and what was taken."""
        place = self._place(state)
        return f"{place.gained} {place.stage} {place.taken}"

    @staticmethod
    def _place(state: Hashable) -> _Place:
        assert isinstance(state, _Place)
        return state


def branching(turns: int = 3, take: float = 0.4, bust: float = 0.25) -> TreeProcess:
    """Make Branching; the defaults are small enough to enumerate."""
    return TreeProcess(Branching(turns, take, bust))
