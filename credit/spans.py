"""Spans: who wrote which token.

The spans of a trajectory partition its tokens: every token belongs to exactly one span. The two masks are derived from
the kinds and stored nowhere. This module knows nothing of text, calls or rewards.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from .errors import SpanError

__all__ = ["Span", "SpanKind", "check_partition", "credit_mask", "mask_of", "value_mask"]


class SpanKind(StrEnum):
    """Who wrote a span's tokens."""

    PROMPT = "prompt"
    """System text, tool schemas, the task."""
    DECISION = "decision"
    """Sampled by the policy in a turn: the only kind that may receive gradient."""
    FEEDBACK = "feedback"
    """Written by the environment: tool results, user replies."""
    SCAFFOLD = "scaffold"
    """Template tokens nobody sampled: role headers, a close that the harness added."""


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open token range [start, end) of one kind.

    `turn` is the turn last begun when the span was written: -1 before the first decision, k from decision k on.
    """

    start: int
    end: int
    kind: SpanKind
    turn: int

    def __len__(self) -> int:
        return self.end - self.start


def check_partition(spans: Sequence[Span], length: int) -> None:
    """Raise `SpanError` unless `spans`, in order, cover [0, length) without gap, overlap or empty span."""
    at = 0
    for index, span in enumerate(spans):
        if span.start != at:
            what = "leaves a gap" if span.start > at else "overlaps its neighbour"
            raise SpanError(f"span {index} ({span.kind}) starts at token {span.start}, expected {at}: it {what}")
        if span.end <= span.start:
            raise SpanError(f"span {index} ({span.kind}) is empty: [{span.start}, {span.end})")
        at = span.end
    if at != length:
        raise SpanError(f"spans end at token {at} but the trajectory has {length} tokens: every token needs one span")


def mask_of(spans: Iterable[Span], length: int, *kinds: SpanKind) -> NDArray[np.bool_]:
    """Return a bool mask [T], true on tokens whose span is of one of `kinds`."""
    mask_T = np.zeros(length, dtype=np.bool_)
    for span in spans:
        if span.kind in kinds:
            mask_T[span.start : span.end] = True
    return mask_T


def credit_mask(spans: Iterable[Span], length: int) -> NDArray[np.bool_]:
    """Return the policy mask [T]: true exactly on decision tokens, the only ones that may receive gradient."""
    return mask_of(spans, length, SpanKind.DECISION)


def value_mask(spans: Iterable[Span], length: int) -> NDArray[np.bool_]:
    """Return the value mask [T]: true on decision and feedback tokens, where a prefix value exists."""
    return mask_of(spans, length, SpanKind.DECISION, SpanKind.FEEDBACK)
