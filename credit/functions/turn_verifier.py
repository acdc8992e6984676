"""Turn-level credit with verifiers: every turn is paid its own reward and, discounted, those that came after it.

arXiv 2507.11948, section 3 (Kevin; the sum of discounted turn scores):

    G_k = sum over l >= k of gamma^(l-k) r_l         the outcome paid with the last turn
    advantage of turn k = (G_k - baseline) / F       on every decision token of turn k

The baseline is the mean of G over all turns of the group (a member without decision tokens counts once, with R), or
over the members' turns at the same position, which is biased when the policy decides when to stop. F is the standard
deviation of G over all those turns, or 1. gamma = 0 pays a turn its own verifier alone. Turns are counted without those
that sampled nothing.

The credit pays every reward to its turn, undiscounted, less V_0, the mean of R, spread evenly: it sums to R - V_0.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group

from .charges import check_charge_scale, with_charges
from .discount import discounted_sums
from .options import check_choice, check_factor
from .rewards import Rewards, all_equal, exact_mean, read_rewards, spread
from .turns import decided_turns

__all__ = ["TurnVerifier"]

Floats = NDArray[np.float64]
Scale = Literal["none", "spread"]
Baseline = Literal["group", "position"]


@dataclass(frozen=True, slots=True)
class TurnVerifier:
    """Prices every turn by its discounted return, which starts with its own reward.

    Attributes:
        gamma: the discount of a turn in [0, 1].
        baseline: "group" (all turns together) or "position" (turn k against the other members' turn k).
        scale: "none" (F = 1) or "spread".
        charge_scale: multiplies every charge.

    """

    gamma: float = 0.95
    baseline: Baseline = "group"
    scale: Scale = "none"
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_factor("gamma", self.gamma)
        check_choice("baseline", self.baseline, get_args(Baseline))
        check_choice("scale", self.scale, get_args(Scale))
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `outcome`, `turn`, `charge:*`."""
        rewards = read_rewards(group)
        mean_2 = exact_mean(rewards.parts) if rewards.teaches else np.zeros(2)
        turns = {i: decided_turns(group.trajectories[i]) for i in rewards.scored.tolist()} if rewards.teaches else {}
        paid, ahead = {}, []
        for index, found in turns.items():
            paid[index] = np.stack([np.zeros(len(found)), found.paid_N], axis=1)  # float64 [N, 2]: outcome, turn
            paid[index][-1:, 0] = group.trajectories[index].outcome
            ahead.append(np.stack([discounted_sums(part_N, self.gamma) for part_N in paid[index].T], axis=1))
        gained, scale = self._gained(ahead, rewards)
        priced = []
        for index, trajectory in enumerate(group.trajectories):
            credit = {name: np.zeros(len(trajectory)) for name in rewards.names}
            advantage = {name: np.zeros(len(trajectory)) for name in rewards.names}
            if index in turns and len(turns[index]):
                found, share_T = turns[index], trajectory.credit_mask / trajectory.credit_mask.sum()
                gained_N2 = gained[list(turns).index(index)]
                for part, name in enumerate(rewards.names):
                    credit[name] = found.split(paid[index][:, part]) - mean_2[part] * share_T
                    advantage[name] = found.shared(scale * gained_N2[:, part])
            priced.append(with_charges(trajectory, credit, advantage, self.charge_scale))
        return tuple(priced)

    def _gained(self, ahead: list[Floats], rewards: Rewards) -> tuple[list[Floats], float]:
        """Return G less its baseline for every member, ragged list of float64 [N, 2], and 1 / F."""
        if not ahead:
            return [], 1.0
        members = zip(ahead, rewards.parts, strict=True)
        every_M2 = np.concatenate([found if len(found) else part_2[None] for found, part_2 in members])
        totals_M = every_M2.sum(axis=1)
        if all_equal(totals_M, rewards.size):
            return [np.zeros_like(found) for found in ahead], 1.0
        scale = 1 / spread(totals_M) if self.scale == "spread" else 1.0
        if self.baseline == "group":
            mean_2 = exact_mean(every_M2)
            return [found - mean_2 for found in ahead], scale
        longest = max(map(len, ahead))
        means_N2 = [exact_mean(np.array([found[k] for found in ahead if k < len(found)])) for k in range(longest)]
        return [found - np.array(means_N2[: len(found)]).reshape(-1, 2) for found in ahead], scale
