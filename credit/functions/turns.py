"""Turns as credit functions see them: the tokens that the policy decided in each, and what each was paid.

A turn in which the policy sampled nothing has no token to be credited: what it was paid, and the outcome after it, go
to the last turn before it that has decision tokens, else to the first one after it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accredit.credit.spans import Span, SpanKind
from accredit.credit.trajectory import Trajectory

__all__ = ["DecidedTurns", "decided_turns"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class DecidedTurns:
    """The N turns of a trajectory that have decision tokens, in order.

    Attributes:
        length: the number of tokens T.
        spans: the decision span of each; its `turn` is the turn's number in the trajectory.
        paid_N: float64 [N], the turn rewards that each collected.

    """

    length: int
    spans: tuple[Span, ...]
    paid_N: Floats

    def __len__(self) -> int:
        return len(self.spans)

    def shared(self, value_N: Floats) -> Floats:
        """float64 [N] -> [T]: every decision token of a turn gets the turn's value."""
        value_T = np.zeros(self.length)
        for span, value in zip(self.spans, value_N.tolist(), strict=True):
            value_T[span.start : span.end] = value
        return value_T

    def split(self, value_N: Floats) -> Floats:
        """float64 [N] -> [T]: the decision tokens of a turn share the turn's value evenly and sum to it."""
        return self.shared(value_N / np.array([len(span) for span in self.spans], dtype=np.float64))


def decided_turns(trajectory: Trajectory) -> DecidedTurns:
    """Return the turns of `trajectory` that have decision tokens."""
    spans = tuple(span for span in trajectory.spans if span.kind is SpanKind.DECISION)
    paid_N = np.zeros(len(spans))
    if spans:
        turns_N = np.array([span.turn for span in spans])
        owner_K = np.searchsorted(turns_N, np.arange(trajectory.turns), side="right") - 1
        np.add.at(paid_N, np.maximum(owner_K, 0), trajectory.turn_rewards)
    return DecidedTurns(len(trajectory), spans, paid_N)
