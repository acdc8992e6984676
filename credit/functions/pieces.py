"""A trajectory cut into pieces: where its spans and its anchors divide it, and which tokens decided something."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit.spans import SpanKind
from accredit.credit.trajectory import Trajectory

from .anchors import Anchor

__all__ = ["Floats", "Pieces", "cut"]

Floats = NDArray[np.float64]


class Pieces(NamedTuple):
    """A trajectory cut at its P span borders and anchors: every piece lies in one span and in one of the N intervals.

    Attributes:
        start_P: int64, its first token.
        length_P: int64, its tokens.
        interval_P: int64, the interval that it lies in, -1 before the first anchor.
        decided_P: bool, its tokens are decisions of a turn that decided something.
        fed_P: bool, its tokens are feedback of such a turn.
        moved_N2: float64 [N, 2], V(b) - V(a) of every interval by part of R, (outcome, turn rewards).
        decisions_N: float64, the decision tokens of every interval.
        end_N: the position of the anchor that every interval ends with.
        own_N: the rollout's own weight in the V that every interval starts from.

    """

    start_P: NDArray[np.int64]
    length_P: NDArray[np.int64]
    interval_P: NDArray[np.int64]
    decided_P: NDArray[np.bool_]
    fed_P: NDArray[np.bool_]
    moved_N2: Floats
    decisions_N: Floats
    end_N: list[int]
    own_N: list[float]

    def per_token(self, value_P: Floats) -> Floats:
        """float64 [P] -> [T]."""
        value_T: Floats = np.repeat(value_P, self.length_P)
        return value_T


def cut(trajectory: Trajectory, anchors: list[Anchor]) -> Pieces:
    """Cut a trajectory at its span borders and anchors."""
    null_turns, length = _null_turns(trajectory), len(trajectory)
    kinds = {SpanKind.DECISION: 1, SpanKind.FEEDBACK: 2}
    kind_S = np.array([0 if s.turn in null_turns else kinds.get(s.kind, 0) for s in trajectory.spans])
    span_starts = np.array([span.start for span in trajectory.spans])
    positions = np.array([anchor.position for anchor in anchors])
    edges = np.array(sorted({*span_starts.tolist(), *positions.tolist(), length}))
    start_P, length_P = edges[:-1], edges[1:] - edges[:-1]
    kind_P = kind_S[span_starts.searchsorted(start_P, side="right") - 1]
    interval_P = positions.searchsorted(start_P, side="right") - 1
    decided_P = (kind_P == 1) & (interval_P >= 0)
    value_M2 = np.array([anchor.value for anchor in anchors]).view(np.float64).reshape(-1, 2)
    return Pieces(
        start_P=start_P,
        length_P=length_P,
        interval_P=interval_P,
        decided_P=decided_P,
        fed_P=(kind_P == 2) & (interval_P >= 0),
        moved_N2=value_M2[1:] - value_M2[:-1],
        decisions_N=np.bincount(interval_P[decided_P], length_P[decided_P], len(anchors) - 1).astype(np.float64),
        end_N=positions.tolist()[1:],
        own_N=[anchor.own for anchor in anchors[:-1]],
    )


def _null_turns(trajectory: Trajectory) -> set[int]:
    """Return the turns that left the state key as it was, paid nothing and did not end the episode."""
    keys, last = trajectory.state_keys, trajectory.turns - 1
    paid_K = trajectory.turn_rewards
    return {k for k in range(last) if keys[k] is not None and keys[k] == keys[k + 1] and paid_K[k] == 0}
