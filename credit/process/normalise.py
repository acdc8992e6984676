"""Standardising and smoothing of scores, with the mask respected: what says nothing enters no mean.

Both are there because users ask for them; both cost something, which `choices.py` says and the tests measure. Nothing
here weighs or adds.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.functions.options import is_count
from accredit.credit.functions.rewards import all_equal, spread
from accredit.credit.spans import Span, SpanKind

__all__ = ["Normalise", "smooth", "standardise"]

Normalise = Literal["none", "group", "position"]

Floats = NDArray[np.float64]


def standardise(scores: Sequence[Floats], how: Normalise) -> list[Floats]:
    """Return the scores of a group less their mean, divided by their population deviation.

    Args:
        scores: ragged list of float64 [S], NaN where a step has no score.
        how: `group` over all scores of the group, `position` over the members that have a score at one step index,
            `none` leaves them as they are.

    Returns:
        ragged list of float64 [S], NaN where there was none. Scores that are all equal become exactly 0.

    Raises:
        CreditError: an unknown way.

    """
    if how not in get_args(Normalise):
        raise CreditError(f"normalise={how!r}: expected one of {', '.join(get_args(Normalise))}")
    longest = max((len(each) for each in scores), default=0)
    table_GS = np.full((len(scores), longest), np.nan)
    for row_S, each in zip(table_GS, scores, strict=True):
        row_S[: len(each)] = each
    if how == "group":
        table_GS = _standard(table_GS)
    elif how == "position":
        for position in range(longest):
            table_GS[:, position] = _standard(table_GS[:, position])
    return [row_S[: len(each)].copy() for row_S, each in zip(table_GS, scores, strict=True)]


def _standard(values: Floats) -> Floats:
    known = values[~np.isnan(values)]
    if not len(known):
        return values
    if all_equal(known):
        return np.where(np.isnan(values), np.nan, 0.0)
    standard: Floats = (values - known.mean()) / spread(known)
    return standard


def smooth(values_T: Floats, spans: Sequence[Span], window: int) -> Floats:
    """Return the centred moving average over `window` tokens inside each decision span; 0 off decision tokens.

    The window is cut at the span's border before the mean is taken: what lies outside enters neither the sum nor the
    count.

    Raises:
        CreditError: the window is not an odd number of at least 1.

    """
    if not is_count(window) or window % 2 == 0:
        raise CreditError(f"window={window!r}: expected an odd number of tokens of at least 1 (1 does not smooth)")
    smooth_T = np.zeros(len(values_T))
    for span in spans:
        if span.kind is SpanKind.DECISION:
            inside_N = values_T[span.start : span.end]
            box = np.ones(window)
            half = window // 2
            sums_N = np.convolve(inside_N, box)[half : half + len(inside_N)]
            counts_N = np.convolve(np.ones(len(inside_N)), box)[half : half + len(inside_N)]
            smooth_T[span.start : span.end] = sums_N / counts_N
    return smooth_T
