"""Anchored: credit between the prefixes whose value the group's own rollouts can estimate, without a critic.

Doob's increments c_t = V_t - V_{t-1} of the reward R, on the grain the data supports. Anchors (`anchors.py`) cut a
trajectory into intervals; an interval from anchor a to anchor b is worth V(b) - V(a):

- it holds decision tokens: *skill*. credit = (V(b) - V(a)) / n on each of its n decision tokens, and every one of them
  gets the same advantage (V(b) - V(a)) / (1 - w), where w is this rollout's own weight in V(a). This leaves what the
  rollout itself reached out of the compared value, so that a turn after which all stand in one state gets exactly 0;
  without inner anchors it is R minus the mean of the others, RLOO (arXiv 2402.14740, eq. 8).
- it holds feedback tokens only: *luck*. The term `luck` of the credit, on those tokens; no advantage ever.
- it holds neither (the reward fell after the last token, or hidden luck moved the state): luck, booked on the nearest
  span before it, in the credit only.
- a turn that left the state key as it was, paid nothing and did not end the episode decided nothing: its tokens get
  exactly 0 and do not count, whether or not the state is an anchor.

Skill and luck together sum to R - V_0, V_0 the mean reward of the scored members.

What the grain allows: a state key is known at a turn's border only, *after* the environment spoke. So the luck of a
turn is told from its skill only where several rollouts left one state by the same tokens (a token anchor). Where a
rollout's decision is unique, the turn's luck stays inside the advantage of that decision. A state that no other rollout
visited is no anchor: the interval then runs on to the next one, and its decisions share one advantage. Without state
keys and shared tokens the whole trajectory is one interval, and its luck is inside it.

lambda mixes in later skill: advantage_j = sum_l lambda^l (V(b_{j+l}) - V(a_{j+l})) / (1 - w_j) over the later skill
intervals in which V moved (GAE, arXiv 1506.02438, eq. 16, over anchors instead of tokens). 0 is pure Doob.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory

from .anchors import find_anchors
from .baseline import group_shifts
from .charges import check_charge_scale, with_charges
from .group import inverse_spread
from .moves import nearest_span
from .options import is_number
from .pieces import Floats, Pieces, cut
from .rewards import read_rewards

__all__ = ["Anchored"]

NULL_STEP = 1e-12  # a move of V below this share of max |R| is rounding, not a step for lambda to count


@dataclass(frozen=True, slots=True)
class Anchored:
    """Prices a group by the moves of V between anchors.

    Attributes:
        kappa: how many visits the previous anchor's value counts for in a state's value. 0 trusts every shared state;
            above 0 the values of rarely visited states are calmer, and what shrinking held back is settled where the
            rollouts part next, at the latest in the last turn.
        lam: lambda in [0, 1], the weight of each later skill interval.
        baseline: "value", V of the state, or "optimal", the baseline of least variance (`baseline.py`). It moves the
            advantage by a term `baseline` and never the credit. Where several decisions in a row must all be right
            its gradient has several times the signal-to-noise; turns whose only sampled choice decided nothing are
            then no longer paid exactly 0.
        scale: "none", or "spread" to divide the advantages by the standard deviation of R in the group. It changes the
            weight of whole tasks, as in GRPO, and never the credit.
        charge_scale: multiplies every charge.

    """

    kappa: float = 1.0
    lam: float = 0.0
    baseline: Literal["value", "optimal"] = "value"
    scale: Literal["none", "spread"] = "none"
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.kappa, 0):
            raise CreditError(f"kappa={self.kappa!r}: expected a number of visits of at least 0")
        if not is_number(self.lam, 0, 1):
            raise CreditError(f"lam={self.lam!r}: expected lambda between 0 (pure Doob) and 1")
        if self.baseline not in ("value", "optimal"):
            raise CreditError(f"baseline={self.baseline!r}: expected 'value' or 'optimal'")
        if self.scale not in ("none", "spread"):
            raise CreditError(f"scale={self.scale!r}: expected 'none' or 'spread'")
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory, float64 [T] terms `outcome`, `turn`, `luck` and `charge:*`."""
        rewards = read_rewards(group)
        pieces: dict[int, Pieces] = {}
        gained: dict[int, Floats] = {}
        shift: dict[int, Floats] = {}
        scale = 1.0
        if rewards.teaches:
            members = rewards.scored.tolist()
            scored = [group.trajectories[i] for i in members]
            anchors = dict(zip(members, find_anchors(scored, rewards.parts, self.kappa), strict=True))
            null_step = NULL_STEP * float(np.abs(rewards.parts).max())
            pieces = {i: cut(group.trajectories[i], anchors[i]) for i in members}
            gained = {i: _gained(pieces[i], self.lam, null_step) for i in members}
            scale = inverse_spread(rewards) if self.scale == "spread" else 1.0
            if self.baseline == "optimal":
                shift = group_shifts(group, anchors, pieces, gained, null_step, rewards.totals)
        priced = []
        for index, trajectory in enumerate(group.trajectories):
            if index in pieces:
                credit = _credit(trajectory, pieces[index], rewards.names)
                advantage = _advantage(pieces[index], rewards.names, gained[index], shift.get(index), scale)
            else:
                credit = {name: np.zeros(len(trajectory)) for name in (*rewards.names, "luck")}
                advantage = {name: np.zeros(len(trajectory)) for name in rewards.names}
            priced.append(with_charges(trajectory, credit, advantage, self.charge_scale))
        return tuple(priced)


def _credit(trajectory: Trajectory, pieces: Pieces, names: tuple[str, ...]) -> dict[str, Floats]:
    lucky_N = pieces.decisions_N == 0
    share_N2 = pieces.moved_N2 / np.where(lucky_N, np.inf, pieces.decisions_N)[:, None]
    credit = {}
    for part, name in enumerate(names):
        credit[name] = pieces.per_token(np.where(pieces.decided_P, share_N2[pieces.interval_P, part], 0.0))
    credit["luck"] = pieces.per_token(_luck(trajectory, pieces, lucky_N))
    return credit


def _luck(trajectory: Trajectory, pieces: Pieces, lucky_N: NDArray[np.bool_]) -> Floats:
    """float64 [P], the luck of the intervals without decision tokens, an equal amount on each of its tokens."""
    moved_N = np.where(lucky_N, pieces.moved_N2.sum(axis=1), 0.0)
    fed_P, length_P = pieces.fed_P, pieces.length_P
    fed_N = np.bincount(pieces.interval_P[fed_P], weights=length_P[fed_P], minlength=len(moved_N))
    share_N = moved_N / np.where(fed_N == 0, np.inf, fed_N)
    luck_P = np.where(fed_P, share_N[pieces.interval_P], 0.0)
    for interval in np.flatnonzero((fed_N == 0) & (moved_N != 0)).tolist():
        tokens = nearest_span(trajectory, pieces.end_N[interval])
        if len(tokens):
            booked = slice(*np.searchsorted(pieces.start_P, (tokens[0], tokens[-1] + 1)).tolist())
            luck_P[booked] += moved_N[interval] / len(tokens)
    return luck_P


def _gained(pieces: Pieces, lam: float, null_step: float) -> Floats:
    """float64 [N, 2], the advantage of every interval over the value it starts from, by part of R."""
    later = (0.0, 0.0)
    moved, decisions = pieces.moved_N2.tolist(), pieces.decisions_N.tolist()
    gained = [(0.0, 0.0)] * len(moved)
    for interval in reversed(range(len(moved))):
        if not decisions[interval]:
            continue
        outcome, turn = moved[interval]
        moves = max(abs(outcome), abs(turn)) > null_step
        mixed = (outcome + lam * later[0], turn + lam * later[1]) if moves else (lam * later[0], lam * later[1])
        if mixed != (0.0, 0.0):
            others = 1 - pieces.own_N[interval]
            gained[interval] = mixed[0] / others, mixed[1] / others
        if moves:
            later = mixed
    return np.array(gained).reshape(-1, 2)


def _advantage(
    pieces: Pieces, names: tuple[str, ...], gained_N2: Floats, shift_N: Floats | None, scale: float
) -> dict[str, Floats]:
    advantage_2P = np.where(pieces.decided_P, scale * gained_N2.T[:, pieces.interval_P], 0.0)
    advantage = {name: pieces.per_token(advantage_2P[part]) for part, name in enumerate(names)}
    if shift_N is not None:
        advantage["baseline"] = pieces.per_token(np.where(pieces.decided_P, -scale * shift_N[pieces.interval_P], 0.0))
    return advantage
