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
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit
from accredit.credit.spans import SpanKind, mask_of
from accredit.credit.trajectory import Group, Trajectory

from .anchors import Anchor, find_anchors
from .charges import check_charge_scale, with_charges
from .group import inverse_spread
from .moves import nearest_span
from .rewards import read_rewards

__all__ = ["Anchored"]

Floats = NDArray[np.float64]
NULL_STEP = 1e-12  # a move of V below this share of max |R| is rounding, not a step for lambda to count


@dataclass(frozen=True, slots=True)
class Anchored:
    """Prices a group by the moves of V between anchors.

    Attributes:
        kappa: how many visits the previous anchor's value counts for in a state's value. 0 trusts every shared state;
            above 0 the values of rarely visited states are calmer, and what shrinking held back is settled where the
            rollouts part next, at the latest in the last turn.
        lam: lambda in [0, 1], the weight of each later skill interval.
        scale: "none", or "spread" to divide the advantages by the standard deviation of R in the group. It changes the
            weight of whole tasks, as in GRPO, and never the credit.
        charge_scale: multiplies every charge.

    """

    kappa: float = 1.0
    lam: float = 0.0
    scale: Literal["none", "spread"] = "none"
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.kappa) and self.kappa >= 0):
            raise CreditError(f"kappa={self.kappa}: expected a number of visits of at least 0")
        if not 0 <= self.lam <= 1:
            raise CreditError(f"lam={self.lam}: expected lambda between 0 (pure Doob) and 1")
        if self.scale not in ("none", "spread"):
            raise CreditError(f"scale={self.scale!r}: expected 'none' or 'spread'")
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory, float64 [T] terms `outcome`, `turn`, `luck` and `charge:*`."""
        rewards = read_rewards(group)
        anchors: dict[int, list[Anchor]] = {}
        scale, null_step = 1.0, 0.0
        if rewards.teaches:
            scored = [group.trajectories[i] for i in rewards.scored]
            anchors = dict(zip(rewards.scored.tolist(), find_anchors(scored, rewards.parts, self.kappa), strict=True))
            null_step = NULL_STEP * float(np.abs(rewards.parts).max())
            scale = inverse_spread(rewards) if self.scale == "spread" else 1.0
        priced = []
        for index, trajectory in enumerate(group.trajectories):
            credit_T3 = np.zeros((len(trajectory), 3))  # outcome, turn, luck
            advantage_T2 = np.zeros((len(trajectory), 2))
            if index in anchors:
                steps = _steps(trajectory, anchors[index])
                _book_credit(trajectory, steps, credit_T3)
                _book_advantage(steps, self.lam, null_step, advantage_T2)
            credit = {name: credit_T3[:, i].copy() for i, name in enumerate(rewards.names)}
            credit["luck"] = credit_T3[:, 2].copy()
            advantage = {name: advantage_T2[:, i] * scale for i, name in enumerate(rewards.names)}
            priced.append(with_charges(trajectory, credit, advantage, self.charge_scale))
        return tuple(priced)


class Step(NamedTuple):
    """An interval between two anchors: the move of V in it, and where its tokens are.

    Attributes:
        end: the position of the anchor reached.
        moved: V(b) - V(a) by part of R, (outcome, turn rewards).
        decisions: indices of its decision tokens.
        feedback: indices of its feedback tokens.
        own: the rollout's own weight in V(a).

    """

    end: int
    moved: tuple[float, float]
    decisions: NDArray[np.intp]
    feedback: NDArray[np.intp]
    own: float


def _steps(trajectory: Trajectory, anchors: list[Anchor]) -> list[Step]:
    null_turns = _null_turns(trajectory)
    moving = [span for span in trajectory.spans if span.turn not in null_turns]
    decision_N = np.flatnonzero(mask_of(moving, len(trajectory), SpanKind.DECISION))
    feedback_N = np.flatnonzero(mask_of(moving, len(trajectory), SpanKind.FEEDBACK))
    positions = [anchor.position for anchor in anchors]
    cut_decisions = np.searchsorted(decision_N, positions).tolist()
    cut_feedback = np.searchsorted(feedback_N, positions).tolist()
    moved = np.diff(np.array([anchor.value for anchor in anchors]), axis=0).tolist()
    return [
        Step(
            end=positions[i + 1],
            moved=(outcome, turn),
            decisions=decision_N[cut_decisions[i] : cut_decisions[i + 1]],
            feedback=feedback_N[cut_feedback[i] : cut_feedback[i + 1]],
            own=anchors[i].own,
        )
        for i, (outcome, turn) in enumerate(moved)
    ]


def _null_turns(trajectory: Trajectory) -> set[int]:
    """Return the turns that left the state key as it was, paid nothing and did not end the episode."""
    keys, last = trajectory.state_keys, trajectory.turns - 1
    paid_K = trajectory.turn_rewards
    return {k for k in range(last) if keys[k] is not None and keys[k] == keys[k + 1] and paid_K[k] == 0}


def _book_credit(trajectory: Trajectory, steps: list[Step], credit_T3: Floats) -> None:
    for step in steps:
        outcome, turn = step.moved
        if not (outcome or turn):
            continue
        if count := len(step.decisions):
            credit_T3[step.decisions] += (outcome / count, turn / count, 0.0)
            continue
        tokens = step.feedback if len(step.feedback) else nearest_span(trajectory, step.end)
        if len(tokens):
            credit_T3[tokens, 2] += (outcome + turn) / len(tokens)


def _book_advantage(steps: list[Step], lam: float, null_step: float, advantage_T2: Floats) -> None:
    later = (0.0, 0.0)
    for step in reversed(steps):
        if not len(step.decisions):
            continue
        outcome, turn = step.moved
        moves = max(abs(outcome), abs(turn)) > null_step
        mixed = (outcome + lam * later[0], turn + lam * later[1]) if moves else (lam * later[0], lam * later[1])
        if mixed != (0.0, 0.0):
            advantage_T2[step.decisions] = np.array(mixed) / (1 - step.own)
        if moves:
            later = mixed
