"""Process, outcome and KL as one reward a token, and the returns that come of it.

    r_t = w_process * process_t + w_outcome * outcome_t + beta * kl_t

The sign of the KL term: kl_t = log pi_ref(x_t) - log pi(x_t) on decision tokens. Its expectation under the policy is
-KL(pi || pi_ref), never above 0, so a positive beta is a *penalty on drift from the reference*. (In `trainer.loss` the
same penalty is a term to be minimised and has the other sign.)

Only `less_the_mean` knows of a group.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.trajectory import Trajectory

from .steps import Steps

__all__ = ["clip_factors", "kl_rewards", "less_the_mean", "potential_differences", "returns_to_go", "step_places"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def kl_rewards(trajectory: Trajectory, reference_logprobs_T: Floats) -> Floats:
    """Return float64 [T], log pi_ref - log pi in nats on decision tokens, 0 elsewhere: negative where pi has drifted.

    Raises:
        CreditError: the reference has another length or is not finite on a decision token.

    """
    mask_T = trajectory.credit_mask
    if reference_logprobs_T.shape != mask_T.shape or not bool(np.isfinite(reference_logprobs_T[mask_T]).all()):
        raise CreditError(
            f"the reference's log-probabilities have shape {reference_logprobs_T.shape}: expected {mask_T.shape}, "
            f"finite on decision tokens (episode {trajectory.episode_id or '?'})"
        )
    kl_T = np.zeros(len(trajectory))
    kl_T[mask_T] = reference_logprobs_T[mask_T] - trajectory.logprobs[mask_T]
    return kl_T


def potential_differences(potentials_S: Floats) -> Floats:
    """Return float64 [S], what each step adds to a potential Phi: Phi_k - Phi_(k-1) (Ng et al. 1999, theorem 1).

    `potentials_S` are scores of the prefix that ends with each step. Phi is 0 before the first step and 0 at the end of
    the episode, so the differences sum to exactly 0 whatever Phi says, and shape nothing but *when* reward is paid. A
    step without a score keeps the potential that was.
    """
    phi_S = potentials_S.copy()
    last = 0.0
    for step, potential in enumerate(phi_S):
        last = last if np.isnan(potential) else float(potential)
        phi_S[step] = last
    phi_S[-1:] = 0.0
    differences_S: Floats = np.diff(phi_S, prepend=0.0)
    return differences_S


def clip_factors(rewards_T: Floats, limit: float | None) -> Floats:
    """Return float64 [T] in (0, 1], by which every part of a token's reward shrinks so that |total| <= limit."""
    factors_T = np.ones(len(rewards_T))
    if limit is not None:
        over_T = np.abs(rewards_T) > limit
        factors_T[over_T] = limit / np.abs(rewards_T[over_T])
    return factors_T


def step_places(steps: Steps) -> Ints:
    """Return int64 [T], the place of every token among the steps: 2k + 1 in step k, 2k between the steps before it.

    A token in a gap of one step (two pieces that were merged) is in that step.
    """
    beyond = int(steps.max(initial=-1)) + 1
    before_T = np.maximum.accumulate(steps)
    after_T = np.minimum.accumulate(np.where(steps >= 0, steps, beyond)[::-1])[::-1]
    places_T: Ints = np.where(before_T == after_T, 2 * before_T + 1, 2 * (before_T + 1))
    return places_T


def returns_to_go(rewards_T: Floats, places_T: Ints, gamma: float) -> Floats:
    """Return float64 [P], by place (see `step_places`) the rewards from there on; each later step weighs gamma less."""
    count = int(places_T.max(initial=0)) + 1
    returns_P: Floats = np.bincount(places_T, weights=rewards_T, minlength=count).astype(np.float64)
    for place in range(count - 2, -1, -1):
        returns_P[place] += returns_P[place + 1] * (1.0 if place % 2 else gamma)
    return returns_P


def less_the_mean(returns: Sequence[Floats]) -> list[Floats]:
    """Return ragged returns [P] less their mean over the group at each place; an ended member counts with 0.

    Because every member counts at every place, whether it got there or not, the comparison does not depend on anyone's
    decision to stop: the gradient keeps the exact direction, times (G - 1) / G.
    """
    longest = max((len(each) for each in returns), default=0)
    table_GP = np.zeros((len(returns), longest))
    for row_P, each in zip(table_GP, returns, strict=True):
        row_P[: len(each)] = each
    centred_GP = table_GP - (table_GP[0] + (table_GP - table_GP[0]).mean(axis=0)) if len(returns) else table_GP
    return [row_P[: len(each)] for row_P, each in zip(centred_GP, returns, strict=True)]
