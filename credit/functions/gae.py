"""GAE: generalised advantage estimation over the tokens of a multi-turn trajectory, in the three forms in use.

arXiv 1506.02438, eq. 16: with delta_t = r_t + gamma V_{t+1} - V_t, the advantage is A_t = sum_l (gamma lambda)^l
delta_{t+l}. What differs is what a token of the environment does in these sums:

- `two_masks` (right): V exists on feedback. The TD error of a decision token ends right after that token, before the
  environment speaks, and only the TD errors of decision tokens are summed; l counts decision tokens. The TD errors of
  feedback tokens are luck: booked in the credit, never in an advantage.
- `skipped` (the usual one): feedback positions are dropped, so that a turn's last token is followed by the next turn's
  first. The environment's luck lands on the last token of every turn. What verl's `compute_gae_advantage_return` does
  under its response mask, except that a reward on a masked position is lost there and is paid here.
- `zeroed`: feedback positions stay in the sums with V = 0. The TD error before them is r - V: no decision of an earlier
  turn has a gradient at lambda = 0.

The values include rewards already paid; V_t in the sums is the part still to come. In `two_masks` a turn is paid with
its last token; the other two forms pay it on its last decision token, as trainers do. gamma discounts a decision token
(in `zeroed`: any token after the first decision), and values must be those of the discounted return.

The credit is the TD error at gamma = 1, whatever lambda: it sums to R - V_0 in `two_masks`, and to R - V before the
first decision in the other two, of which `zeroed` books the TD errors of feedback as luck.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory
from accredit.credit.values import Values

from .charges import check_charge_scale
from .critic import check_values, price_by_values
from .discount import discounted_sums
from .moves import Moves, book_luck, value_moves
from .options import check_choice, check_factor
from .turns import decided_turns

__all__ = ["GAE"]

Floats = NDArray[np.float64]
Feedback = Literal["two_masks", "skipped", "zeroed"]


@dataclass(frozen=True, slots=True)
class GAE:
    """Prices every trajectory by lambda-mixed TD errors of its values.

    Attributes:
        values: trajectory -> float64 [T+1], the prefix values; None takes the group's own state values.
        lam: lambda in [0, 1].
        gamma: the discount in [0, 1] of one token.
        feedback: what a feedback token does in the sums; see the module.
        charge_scale: multiplies every charge.

    """

    values: Values | None = None
    lam: float = 0.95
    gamma: float = 1.0
    feedback: Feedback = "two_masks"
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        check_values(self.values)
        check_factor("lam", self.lam)
        check_factor("gamma", self.gamma)
        check_choice("feedback", self.feedback, get_args(Feedback))
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `value`, `luck`, `charge:*`."""
        judge = {"two_masks": self._two_masks, "skipped": self._skipped, "zeroed": self._zeroed}[self.feedback]
        return price_by_values(group, self.values, self.charge_scale, judge)

    def _two_masks(self, trajectory: Trajectory, value_T1: Floats) -> tuple[Moves, Floats]:
        decided_T = trajectory.credit_mask
        paid_T1 = _paid_with_the_last_token(trajectory)
        ahead_T1 = value_T1 - paid_T1
        # gamma = 1 leaves the plain move of V, to the bit
        error_T = np.diff(value_T1) - (1 - self.gamma) * ahead_T1[1:]
        advantage_T = np.zeros(len(trajectory))
        advantage_T[decided_T] = discounted_sums(error_T[decided_T], self.gamma * self.lam)
        return value_moves(trajectory, value_T1), advantage_T

    def _skipped(self, trajectory: Trajectory, value_T1: Floats) -> tuple[Moves, Floats]:
        at_N = np.flatnonzero(trajectory.credit_mask)
        value_N1 = np.append(value_T1[at_N], value_T1[-1])
        ahead_N1 = value_N1 - np.append(_paid_with_the_decision(trajectory)[at_N], value_T1[-1])
        credit_T, advantage_T = np.zeros(len(trajectory)), np.zeros(len(trajectory))
        credit_T[at_N] = np.diff(value_N1)
        advantage_T[at_N] = discounted_sums(np.diff(value_N1) - (1 - self.gamma) * ahead_N1[1:], self.gamma * self.lam)
        return Moves(credit_T, np.zeros(len(trajectory))), advantage_T

    def _zeroed(self, trajectory: Trajectory, value_T1: Floats) -> tuple[Moves, Floats]:
        length, decided_T = len(trajectory), trajectory.credit_mask
        skill_T, luck_T, advantage_T = np.zeros(length), np.zeros(length), np.zeros(length)
        if not decided_T.any():
            return Moves(skill_T, luck_T), advantage_T
        paid_T1 = _paid_with_the_decision(trajectory)
        last = int(np.flatnonzero(decided_T)[-1])
        paid_T1[last + 1 :] = value_T1[-1]  # the outcome too
        ahead_T1 = np.append(np.where(decided_T, value_T1[:-1] - paid_T1[:-1], 0.0), 0.0)
        reward_T = np.diff(paid_T1)
        first = int(decided_T.argmax())
        error_T = (reward_T + self.gamma * ahead_T1[1:] - ahead_T1[:-1])[first:]
        advantage_T[first:] = discounted_sums(error_T, self.gamma * self.lam)
        advantage_T[~decided_T] = 0.0
        plain_T = reward_T + np.diff(ahead_T1)
        plain_T[:first] = 0.0
        skill_T[decided_T] = plain_T[decided_T]
        for token in np.flatnonzero(~decided_T & (plain_T != 0)).tolist():
            book_luck(trajectory, token + 1, float(plain_T[token]), luck_T)
        return Moves(skill_T, luck_T), advantage_T


def _paid_with_the_last_token(trajectory: Trajectory) -> Floats:
    """float64 [T+1]: what was paid before each token, turn k with the last token before turn k + 1; R at the end."""
    paid_T1 = np.zeros(len(trajectory) + 1)
    for span in trajectory.spans:
        if span.turn >= 0:
            paid_T1[span.start] = trajectory.turn_rewards[: span.turn].sum()
            paid_T1[span.start : span.end] = paid_T1[span.start]
    paid_T1[-1] = trajectory.reward
    return paid_T1


def _paid_with_the_decision(trajectory: Trajectory) -> Floats:
    """float64 [T+1]: the turn rewards paid before each token, each with the last decision token of its turn."""
    turns = decided_turns(trajectory)
    reward_T1 = np.zeros(len(trajectory) + 1)
    for span, paid in zip(turns.spans, turns.paid_N.tolist(), strict=True):
        reward_T1[span.end] = paid
    paid_T1: Floats = np.cumsum(reward_T1)
    return paid_T1
