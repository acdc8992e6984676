"""Moves of the prefix value: skill where the policy wrote, luck where the environment did.

Doob's increments V_t - V_{t-1} of R on the tokens of one trajectory. Where tokens that nobody decided or answered with
(prompt, template) carry a move, or the reward fell after the last of them, it is luck and is booked on the nearest
decision or feedback span before it, because only these two kinds have a prefix value.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit.spans import SpanKind
from accredit.credit.trajectory import Trajectory

__all__ = ["Moves", "book_luck", "nearest_span", "value_moves"]

Floats = NDArray[np.float64]


class Moves(NamedTuple):
    """float64 [T] each, together R - V_0: `skill` lies on decision tokens; `luck` is booked off the skill."""

    skill: Floats
    luck: Floats


def value_moves(trajectory: Trajectory, value_T1: Floats) -> Moves:
    """Split the moves of the prefix values [T+1] of a trajectory into skill and luck [T]."""
    decided_T, known_T = trajectory.credit_mask, trajectory.value_mask
    move_T = np.diff(value_T1)
    skill_T = np.where(decided_T, move_T, 0.0)
    luck_T = np.where(known_T & ~decided_T, move_T, 0.0)
    spans = [s for s in trajectory.spans if s.kind in (SpanKind.DECISION, SpanKind.FEEDBACK)]
    strays = np.flatnonzero(~known_T & (move_T != 0))
    if len(spans) and len(strays):  # what `book_luck` does, for all of them at once: a critic moves on every token
        nearest = np.maximum(np.searchsorted([s.start for s in spans], strays, side="right") - 1, 0)
        amount_S = np.bincount(nearest, move_T[strays], len(spans))
        for span, amount in zip(spans, amount_S.tolist(), strict=True):
            luck_T[span.start : span.end] += amount / len(span)
    return Moves(skill_T, luck_T)


def book_luck(trajectory: Trajectory, position: int, amount: float, luck_T: Floats) -> None:
    """Add `amount` to `luck_T`, spread over the decision or feedback span nearest before `position`."""
    tokens = nearest_span(trajectory, position)
    if len(tokens):
        luck_T[tokens] += amount / len(tokens)


def nearest_span(trajectory: Trajectory, position: int) -> NDArray[np.intp]:
    """Return the known tokens of the last decision or feedback span before `position`, else the first such span."""
    spans = [s for s in trajectory.spans if s.kind in (SpanKind.DECISION, SpanKind.FEEDBACK)]
    before = [s for s in spans if s.start < position]
    if before:
        return np.arange(before[-1].start, min(before[-1].end, position))
    return np.arange(spans[0].start, spans[0].end) if spans else np.arange(0)
