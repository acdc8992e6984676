"""State values: prefix values of a group without a critic, from the states and tokens that its own rollouts share.

`state_values(group)` estimates V at the anchors of the group (`anchors.py`): the mean of what still came over the
rollouts that visited a state, shrunk by `kappa` visits toward the anchor before it. Between two anchors V moves evenly
over the decision tokens, because the group says nothing finer; where there is none it moves over the feedback. These
are the partial sums of anchored credit: V_t = V_0 + the credit of the first t tokens.

A rollout's own reward is part of every mean, with the weight 1 / visits. A group that teaches nothing has V = R
throughout, so that every function of values gives it exactly 0.
"""

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.trajectory import Group, Trajectory
from accredit.credit.values import Values

from .anchored import Anchored
from .rewards import exact_mean, read_rewards

__all__ = ["state_values"]

Floats = NDArray[np.float64]


def state_values(group: Group, kappa: float = 1.0) -> Values:
    """Return the `Values` of the scored trajectories of `group`.

    Args:
        group: whose states are compared.
        kappa: how many visits the previous anchor's value counts for in a state's value; 0 trusts every shared state.

    Raises:
        CreditError: kappa is negative; later, when asked for a trajectory that is not a scored member of the group.

    """
    rewards = read_rewards(group)
    start = float(exact_mean(rewards.parts).sum()) if len(rewards.scored) else 0.0
    priced = Anchored(kappa=kappa, charge_scale=0.0)(group)
    known: dict[Trajectory, Floats] = {}  # by identity: a trajectory equals itself only
    for index, reward in zip(rewards.scored.tolist(), group.rewards[rewards.scored].tolist(), strict=True):
        credit_T = priced[index].credit.total
        known[group.trajectories[index]] = _partial_sums(start, credit_T, reward, rewards.teaches)

    def values(trajectory: Trajectory) -> Floats:
        if trajectory not in known:
            raise CreditError(
                f"episode {trajectory.episode_id or '?'} is no scored member of the group whose states were compared: "
                "ask for the values of its members only"
            )
        return known[trajectory].copy()

    return values


def _partial_sums(start: float, credit_T: Floats, reward: float, teaches: bool) -> Floats:
    if not teaches:
        return np.full(len(credit_T) + 1, reward)
    value_T1 = np.concatenate([[start], start + np.cumsum(credit_T)])
    moving = np.flatnonzero(credit_T)
    value_T1[int(moving[-1]) + 1 if len(moving) else -1 :] = reward  # and not R up to rounding
    return value_T1
