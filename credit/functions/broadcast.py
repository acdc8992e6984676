"""Broadcast: every decision token carries the whole episode's surprise.

REINFORCE with a baseline (Williams 1992, eq. 11) whose baseline is the mean reward of the group:

    advantage_t = R - V_0        credit_t = (R - V_0) / n        for each of the n decision tokens
    V_0 = mean of R over the scored members

Unbiased up to the factor (G - 1) / G, and noisy in proportion to everything else that happened in the episode. This is
the plainest function: it knows neither turns nor states.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group

from .charges import check_charge_scale, with_charges
from .rewards import Rewards, exact_mean, read_rewards

__all__ = ["Broadcast", "broadcast_surprise", "mean_surprise"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Prices a group by R minus the group's mean, spread over the decision tokens.

    `charge_scale` multiplies every charge.
    """

    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `outcome`, `turn`, `charge:*`."""
        return broadcast_surprise(group, mean_surprise, self.charge_scale)


def mean_surprise(parts: Floats) -> Floats:
    """float64 [S, 2] -> [S, 2]: each part of R minus its mean over the scored members."""
    surprise_S2: Floats = parts - exact_mean(parts)
    return surprise_S2


def broadcast_surprise(
    group: Group,
    surprise: Callable[[Floats], Floats],
    charge_scale: float,
    advantage_scale: Callable[[Rewards], float] = lambda rewards: 1.0,
) -> tuple[Credit, ...]:
    """Price a group by one number a trajectory.

    Args:
        group: the rollouts.
        surprise: maps the parts of R [S, 2] of the scored members to the parts of R - V_0 [S, 2].
        charge_scale: multiplies every charge.
        advantage_scale: multiplies the advantages (never the credit, which sums to R - V_0); read only when the group
            carries a signal.

    """
    rewards = read_rewards(group)
    surprise_G2 = np.zeros((len(group), 2))
    scale = 1.0
    if rewards.teaches:
        surprise_G2[rewards.scored] = surprise(rewards.parts)
        scale = advantage_scale(rewards)
    priced = []
    for trajectory, surprise_2 in zip(group.trajectories, surprise_G2, strict=True):
        mask_T = trajectory.credit_mask
        count = max(1, int(mask_T.sum()))
        parts = dict(zip(rewards.names, surprise_2, strict=False))  # without the turn part where nobody has one
        credit = {name: np.where(mask_T, part / count, 0.0) for name, part in parts.items()}
        advantage = {name: np.where(mask_T, part * scale, 0.0) for name, part in parts.items()}
        priced.append(with_charges(trajectory, credit, advantage, charge_scale))
    return tuple(priced)
