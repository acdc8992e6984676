"""Discounted sums of what is still to come."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["discounted_sums"]

Floats = NDArray[np.float64]


def discounted_sums(values: Floats, factor: float) -> Floats:
    """float64 [N] -> [N]: entry j is sum_l factor^l values[j + l], for a factor between 0 and 1.

    Adds ever longer runs (1, 2, 4, ... terms), log2 N whole-array steps; a run whose factor has vanished is left out.
    """
    if factor == 1.0:
        sums: Floats = np.cumsum(values[::-1])[::-1]
        return sums
    sums, reach = values.copy(), 1
    while reach < len(values) and factor > 0.0:
        sums[:-reach] += factor * sums[reach:]
        factor, reach = factor * factor, 2 * reach
    return sums
