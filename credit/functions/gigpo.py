"""GiGPO: a group inside the group, of the visits that the rollouts paid to one state.

arXiv 2505.10978, section 4. With F the spread of what is compared, or 1:

    episode   A^E = (R - mean of R) / F                   over the scored members of the group
    step      A^S_k = (G_k - mean of G) / F               over all visits to the state before turn k
    advantage A^E + weight A^S_k                          on every decision token of turn k

G_k = sum_l gamma^(l-k) r_l is the discounted return from turn k on, the outcome paid with the last turn. A state is a
`state_key` before a turn; the start is one state for all. A state visited once adds nothing (in some public code such a
visit is paid its raw return), nor does one whose returns are all equal. Turns are counted without those that sampled
nothing.

The method defines V_0, the mean of R, for its episode part only: `outcome` and `turn` of the credit sum to R - V_0, and
`step`, weight (G_k - mean of G) shared by the tokens of turn k, comes on top. F touches the advantage only.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory

from .broadcast import broadcast_surprise, mean_surprise
from .charges import check_charge_scale, with_charges
from .discount import discounted_sums
from .group import inverse_spread
from .options import check_choice, check_factor, check_weight
from .rewards import all_equal, exact_mean, read_rewards, spread
from .turns import DecidedTurns, decided_turns

__all__ = ["GiGPO"]

Floats = NDArray[np.float64]
Scale = Literal["none", "spread"]
START = ("start",)


@dataclass(frozen=True, slots=True)
class GiGPO:
    """Prices every turn by its episode among episodes and its return among the visits to its state.

    Attributes:
        weight: the weight of the step advantage, omega in the paper.
        gamma: the discount of a turn in [0, 1], in the step returns.
        scale: "none" (F = 1) or "spread" (F = the population's standard deviation, of each comparison by itself).
        charge_scale: multiplies every charge.

    """

    weight: float = 1.0
    gamma: float = 0.95
    scale: Scale = "none"
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_weight("weight", self.weight)
        check_factor("gamma", self.gamma)
        check_choice("scale", self.scale, get_args(Scale))
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory, float64 [T] terms `outcome`, `turn`, `step`, `charge:*`."""
        by_spread = self.scale == "spread"
        episodes = broadcast_surprise(group, mean_surprise, 0.0, inverse_spread if by_spread else lambda rewards: 1.0)
        rewards = read_rewards(group)
        turns = {i: decided_turns(group.trajectories[i]) for i in rewards.scored.tolist()} if rewards.teaches else {}
        step_N = {i: np.zeros((len(found), 2)) for i, found in turns.items()}  # (credit, advantage) a turn
        for visits, returns_M in self._states(group, turns):
            if len(visits) < 2 or all_equal(returns_M, rewards.size):
                continue
            gained_M = self.weight * (returns_M - exact_mean(returns_M))
            scale = 1 / spread(returns_M) if by_spread else 1.0
            for (index, turn), gained in zip(visits, gained_M.tolist(), strict=True):
                step_N[index][turn] = gained, scale * gained
        priced = []
        for index, (trajectory, episode) in enumerate(zip(group.trajectories, episodes, strict=True)):
            credit, advantage = dict(episode.credit.terms), dict(episode.advantage.terms)
            found = turns.get(index)
            credit["step"] = np.zeros(len(trajectory)) if found is None else found.split(step_N[index][:, 0])
            advantage["step"] = np.zeros(len(trajectory)) if found is None else found.shared(step_N[index][:, 1])
            priced.append(with_charges(trajectory, credit, advantage, self.charge_scale))
        return tuple(priced)

    def _states(self, group: Group, turns: dict[int, DecidedTurns]) -> list[tuple[list[tuple[int, int]], Floats]]:
        """Return for every state its visits (member, index of the decided turn) and the float64 [M] returns of them."""
        visits: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
        returns: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for index, found in turns.items():
            trajectory = group.trajectories[index]
            paid_N = found.paid_N.copy()
            paid_N[-1:] += trajectory.outcome or 0.0
            for turn, ahead in enumerate(discounted_sums(paid_N, self.gamma).tolist()):
                state = _state(trajectory, found.spans[turn].turn)
                if state is not None:
                    visits[state].append((index, turn))
                    returns[state].append(ahead)
        return [(visits[state], np.array(returns[state])) for state in visits]


def _state(trajectory: Trajectory, turn: int) -> tuple[str, ...] | None:
    key = trajectory.state_keys[turn]
    if turn == 0 or (key is not None and key == trajectory.state_keys[0]):
        return START
    return None if key is None else ("state", key)
