"""From scores of steps to rewards of tokens, and back.

A *score* says how good a step is; NaN says nothing, which is never 0: such a step enters no mean and gets no reward. A
scorer is any function of a trajectory and its steps: a rule, a verifier, or a learned process reward model.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.trajectory import Trajectory

from .steps import Steps, step_count, step_ends, steps_of

__all__ = ["Place", "Scorer", "back_to_steps", "sum_scores", "token_rewards"]

Scorer = Callable[[Trajectory, Steps], NDArray[np.float64]]
"""A trajectory and its steps to float64 [S], one score a step; NaN where it says nothing."""

Place = Literal["end", "broadcast"]

Floats = NDArray[np.float64]


def token_rewards(steps: Steps, scores_S: Floats, place: Place = "end") -> Floats:
    """Return float64 [T]: the score of a step at its last token, or on each of its tokens.

    Broadcast gives every token the whole score, so a long step sums to more than a short one; `end` sums to the scores.
    Tokens outside any step, and steps without a score, get 0.

    Raises:
        CreditError: not one score a step, or an unknown place.

    """
    if scores_S.shape != (step_count(steps),):
        raise CreditError(
            f"scores have shape {scores_S.shape} but there are {step_count(steps)} steps: give one a step"
        )
    known_S = np.nan_to_num(scores_S, nan=0.0)
    rewards_T = np.zeros(len(steps))
    if place == "end":
        rewards_T[step_ends(steps)] = known_S
    elif place == "broadcast":
        rewards_T[steps >= 0] = known_S[steps[steps >= 0]]
    else:
        raise CreditError(f"place={place!r}: expected 'end' or 'broadcast'")
    return rewards_T


def back_to_steps(steps: Steps, noisy_T: Floats) -> Floats:
    """Return float64 [S], the mean of noisy token scores over each step; NaN tokens enter no mean."""
    means = np.full(step_count(steps), np.nan)
    for step, tokens in enumerate(steps_of(steps)):
        known = noisy_T[tokens][~np.isnan(noisy_T[tokens])]
        means[step] = known.mean() if len(known) else np.nan
    return means


def sum_scores(scores_RS: Floats) -> Floats:
    """Return float64 [S], the sum over the R scorers that say something of a step; NaN where none does."""
    silent_S = np.isnan(scores_RS).all(axis=0)
    return np.where(silent_S, np.nan, np.nan_to_num(scores_RS, nan=0.0).sum(axis=0))
