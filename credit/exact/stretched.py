"""The same process, told at more length: what a credit function must not notice.

Every step without alternatives is repeated `factor` times, and before each turn but the first stand `factor` - 1 null
turns: a decision token without a choice, and feedback that says nothing. Choices, luck, rewards and logits stay as they
are.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from accredit.credit.errors import CreditError
from accredit.credit.spans import SpanKind

from .tree import Rules, Step

__all__ = ["NULL_DECISION_TOKEN", "NULL_FEEDBACK_TOKEN", "Stretched"]

NULL_DECISION_TOKEN = 1_000_000
NULL_FEEDBACK_TOKEN = 1_000_001


class _Place(NamedTuple):
    """A state of the inner process, with how much filling has been told: repeats of it, tokens of null turns."""

    inner: Hashable
    repeats: int
    filling: int
    decided: bool  # whether the token before was a decision, or there is none


@dataclass(frozen=True, slots=True)
class Stretched:
    """`Rules` around rules; `factor` 1 changes nothing. Without `fillers` only null turns are added."""

    rules: Rules
    factor: int
    fillers: bool = True

    def __post_init__(self) -> None:
        if self.factor < 1:
            raise CreditError(f"factor={self.factor}: expected a whole number of at least 1")

    @property
    def name(self) -> str:
        """The inner name and the factor."""
        return f"{self.rules.name} x{self.factor}"

    @property
    def slots(self) -> tuple[int, ...]:
        """The inner slots."""
        return self.rules.slots

    @property
    def start(self) -> Hashable:
        """The inner start, nothing filled in."""
        return _Place(self.rules.start, 0, 0, True)

    def step(self, state: Hashable) -> Step | None:
        """Return the inner step, a repeat of it, or a token of a null turn."""
        place = self._place(state)
        step = self.rules.step(place.inner)
        if step is None:
            return None
        if step.kind is SpanKind.DECISION and not place.decided and place.filling < 2 * (self.factor - 1):
            decision = place.filling % 2 == 0
            kind = SpanKind.DECISION if decision else SpanKind.FEEDBACK
            token = NULL_DECISION_TOKEN if decision else NULL_FEEDBACK_TOKEN
            return Step(kind, (token,), (1.0,), (place._replace(filling=place.filling + 1),))
        decided = step.kind is SpanKind.DECISION
        if self.fillers and len(step.tokens) == 1 and place.repeats + 1 < self.factor:
            again = _Place(place.inner, place.repeats + 1, 0, decided)
            return replace(step, after=(again,))
        return replace(step, after=tuple(_Place(after, 0, 0, decided) for after in step.after))

    def outcome(self, state: Hashable) -> float:
        """Return the inner outcome."""
        return self.rules.outcome(self._place(state).inner)

    def turn_rewards(self, state: Hashable) -> Sequence[float]:
        """Return the inner turn rewards, each moved to its own turn among the null turns."""
        moved: list[float] = []
        for reward in self.rules.turn_rewards(self._place(state).inner):
            moved += [0.0] * (self.factor - 1 if moved else 0) + [reward]
        return moved

    def state_key(self, state: Hashable) -> str | None:
        """Return the inner key: a null turn leaves it as it was."""
        return self.rules.state_key(self._place(state).inner)

    @staticmethod
    def _place(state: Hashable) -> _Place:
        assert isinstance(state, _Place)
        return state
