"""Counterfactual: what one turn changed, read off two episodes that differ in that turn alone.

Common random numbers: an episode is lived twice, with the environment's seed and the sampling noise of every turn kept,
and only turn k is sampled anew. Of the two members of such a pair

    advantage of turn k = R - R'    the other member's advantage is R' - R; every other turn gets 0

(difference rewards, Wolpert and Tumer 2002, with the policy's own resampled turn as the counterfactual, as in the
baseline of COMA, arXiv 1705.08926, eq. 4). No critic and no verifier; luck that does not depend on the turn is the same
in both and cancels exactly.

What it needs: both members carry `seeds["pair"]`, one number for the two of them, and `seeds["fork_turn"]`, k. A group
may hold many pairs. A member whose partner is missing or unscored teaches nothing. Which of the two came first does not
matter. The credit, R - R' over the decision tokens of turn k, is what the turn changed; there is no V_0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit
from accredit.credit.spans import SpanKind
from accredit.credit.trajectory import Group, Trajectory

from .charges import check_charge_scale, with_charges
from .rewards import all_equal, read_rewards

__all__ = ["FORK_TURN", "PAIR", "Counterfactual"]

Floats = NDArray[np.float64]
PAIR, FORK_TURN = "pair", "fork_turn"


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Prices the resampled turn of every pair by the difference it made. `charge_scale` multiplies every charge."""

    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `outcome`, `turn`, `charge:*`.

        Raises:
            CreditError: a group of several has no pair at all, or a pair is none: more than two members, or two turns.

        """
        partners = _partners(group)
        rewards = read_rewards(group)
        parts = dict(zip(rewards.scored.tolist(), rewards.parts, strict=True))
        priced = []
        for index, trajectory in enumerate(group.trajectories):
            credit = {name: np.zeros(len(trajectory)) for name in rewards.names}
            advantage = {name: np.zeros(len(trajectory)) for name in rewards.names}
            partner = partners.get(index)
            if index in parts and partner in parts:
                both_22 = np.array([parts[index], parts[partner]])
                tokens = _decided(trajectory, trajectory.seeds[FORK_TURN])
                if len(tokens) and not all_equal(both_22.sum(axis=1), rewards.size):
                    for name, changed in zip(rewards.names, (both_22[0] - both_22[1]).tolist(), strict=False):
                        credit[name][tokens] = changed / len(tokens)
                        advantage[name][tokens] = changed
            priced.append(with_charges(trajectory, credit, advantage, self.charge_scale))
        return tuple(priced)


def _partners(group: Group) -> dict[int, int]:
    """Return the partner of every member that has one."""
    pairs: dict[int, list[int]] = {}
    for index, trajectory in enumerate(group.trajectories):
        if PAIR in trajectory.seeds and FORK_TURN in trajectory.seeds:
            pairs.setdefault(trajectory.seeds[PAIR], []).append(index)
    if not pairs and len(group) > 1:
        raise CreditError(
            f"none of the {len(group)} trajectories of a group is a member of a pair: 'counterfactual' needs rollouts "
            f"with one turn sampled anew, which carry the seeds '{PAIR}' and '{FORK_TURN}'"
        )
    for pair, members in pairs.items():
        turns = {group.trajectories[member].seeds[FORK_TURN] for member in members}
        if len(members) > 2 or len(turns) > 1:
            raise CreditError(
                f"pair {pair} has {len(members)} members that forked at turns {sorted(turns)}, "
                "expected two and one turn: give every pair a number of its own"
            )
    twos = [(members[0], members[1]) for members in pairs.values() if len(members) == 2]
    return {one: other for first, second in twos for one, other in ((first, second), (second, first))}


def _decided(trajectory: Trajectory, turn: int) -> NDArray[np.intp]:
    spans = [s for s in trajectory.spans if s.kind is SpanKind.DECISION and s.turn == turn]
    return np.concatenate([np.arange(s.start, s.end) for s in spans]) if spans else np.arange(0)
