"""MT-GRPO: turn rewards compared turn by turn, outcomes compared whole.

arXiv 2505.11821, section 4 ("Reinforcing multi-turn reasoning in LLM agents"). For trajectory i with N turns

    T_ik = (r_ik - mean of r_k) / F       over the members for which turn k is not the last
    O_i  = (o_i - mean of o) / F          o = the outcome, with what the last turn was paid
    advantage  T_ik + weight O_i          on turn k < N - 1
               O_i                        on the last turn

with F the population's standard deviation of each comparison, or 1. The paper has two turns; this is its form for any
number. Turns are counted without those that sampled nothing; comparisons of one member or of equal numbers are 0. A
comparison by position is biased when the policy decides when to stop.

The credit compares without F: the turn's part on the tokens of its turn, the outcome's on all decision tokens. It sums
to R - mean of R when all members have equally many turns.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group

from .charges import check_charge_scale, with_charges
from .options import check_choice, check_weight
from .rewards import all_equal, exact_mean, read_rewards, spread
from .turns import DecidedTurns, decided_turns

__all__ = ["MTGRPO"]

Floats = NDArray[np.float64]
Scale = Literal["none", "spread"]


@dataclass(frozen=True, slots=True)
class MTGRPO:
    """Prices every turn by its own reward among the group's at that turn, plus the outcome among outcomes.

    Attributes:
        weight: the weight of the outcome before the last turn, lambda in the paper.
        scale: "spread" (F = the population's standard deviation) or "none" (F = 1).
        charge_scale: multiplies every charge.

    """

    weight: float = 1.0
    scale: Scale = "spread"
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_weight("weight", self.weight)
        check_choice("scale", self.scale, get_args(Scale))
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `outcome`, `turn`, `charge:*`."""
        rewards = read_rewards(group)
        scored = rewards.scored.tolist() if rewards.teaches else []
        turns = {index: decided_turns(group.trajectories[index]) for index in scored}
        ends_S2 = np.array([(group.trajectories[i].outcome, turns[i].paid_N[-1:].sum()) for i in scored]).reshape(-1, 2)
        end_S2, end_scale = self._compare(ends_S2, rewards.size)
        earlier = {index: np.zeros((len(found), 2)) for index, found in turns.items()}  # (credit, advantage) a turn
        for turn in range(max((len(found) - 1 for found in turns.values()), default=0)):
            here = [index for index, found in turns.items() if turn < len(found) - 1]
            paid_M1 = np.array([turns[index].paid_N[turn] for index in here])[:, None]
            gained_M1, scale = self._compare(paid_M1, rewards.size)
            for index, gained in zip(here, gained_M1[:, 0].tolist(), strict=True):
                earlier[index][turn] = gained, scale * gained
        end = dict(zip(scored, end_S2, strict=True))
        priced = []
        for index, trajectory in enumerate(group.trajectories):
            credit = {name: np.zeros(len(trajectory)) for name in rewards.names}
            advantage = {name: np.zeros(len(trajectory)) for name in rewards.names}
            if index in turns and len(turns[index]):
                self._book(turns[index], end[index], end_scale, earlier[index], credit, advantage)
            priced.append(with_charges(trajectory, credit, advantage, self.charge_scale))
        return tuple(priced)

    def _compare(self, values_MP: Floats, size: float) -> tuple[Floats, float]:
        """float64 [M, P], parts of M numbers -> [M, P] less their means, and 1 / F; `size` as in `all_equal`."""
        totals_M = values_MP.sum(axis=1)
        if len(values_MP) < 2 or all_equal(totals_M, size):
            return np.zeros_like(values_MP), 1.0
        return values_MP - exact_mean(values_MP), 1 / spread(totals_M) if self.scale == "spread" else 1.0

    def _book(
        self,
        turns: DecidedTurns,
        end_2: Floats,
        end_scale: float,
        earlier_N2: Floats,
        credit: dict[str, Floats],
        advantage: dict[str, Floats],
    ) -> None:
        weight_N = np.full(len(turns), self.weight)
        weight_N[-1] = 1.0
        tokens = sum(len(span) for span in turns.spans)
        for name, part in zip(credit, end_2.tolist(), strict=False):
            credit[name] += turns.shared(np.full(len(turns), part / tokens))
            advantage[name] += turns.shared(weight_N * (end_scale * part))
        if "turn" in credit:
            credit["turn"] += turns.split(earlier_N2[:, 0])
            advantage["turn"] += turns.shared(earlier_N2[:, 1])
