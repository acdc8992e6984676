"""Prefix values: the one thing that credit functions with a critic ask for.

`Values` maps a trajectory of T tokens to float64 [T+1]. Entry t is V before token t: E[R | the first t tokens], in
units of the whole reward R, outcome and turn rewards together. So entry 0 is V_0, entry t+1 the value right after token
t (before the environment spoke, if token t is a decision), and entry T is R. A process whose values are known, a value
head, Monte Carlo continuations and the group's own states (`accredit.credit.functions.state_values`) all fit.

Nothing here estimates a value. `prefix_values` reads one and refuses what cannot be one.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .errors import CreditError
from .trajectory import Trajectory

__all__ = ["Values", "prefix_values"]

Values = Callable[[Trajectory], NDArray[np.float64]]
"""Prefix values of a trajectory, float64 [T+1]: entry t is V before token t, entry T is R."""

TOLERANCE = 1e-6  # of entry T against R: room for a value that travelled through float32


def prefix_values(values: Values, trajectory: Trajectory) -> NDArray[np.float64]:
    """Return `values(trajectory)`, float64 [T+1], with the last entry, and those that equal it up to it, R exactly.

    Raises:
        CreditError: the trajectory is unscored, or the values have another shape, are not finite, or do not end in R.

    """
    reward, where = trajectory.reward, f"(episode {trajectory.episode_id or '?'})"
    if reward is None:
        raise CreditError(f"an unscored trajectory has no reward for its values to end in {where}: leave it out")
    value_T1 = np.array(values(trajectory), dtype=np.float64)
    length = len(trajectory)
    if value_T1.shape != (length + 1,):
        raise CreditError(
            f"values have shape {value_T1.shape} for {length} tokens, expected ({length + 1},) {where}: "
            "one before every token, and R at the end"
        )
    if not bool(np.isfinite(value_T1).all()):
        raise CreditError(f"the value before token {int(np.argmin(np.isfinite(value_T1)))} is not finite {where}")
    if abs(value_T1[-1] - reward) > TOLERANCE * max(1.0, abs(reward)):
        raise CreditError(f"values end in {value_T1[-1]:g}, expected the reward {reward:g} {where}: entry T is R")
    moving = np.flatnonzero(value_T1 != value_T1[-1])
    value_T1[int(moving[-1]) + 1 if len(moving) else 0 :] = reward  # a rounded end is no move of the last token
    return value_T1
