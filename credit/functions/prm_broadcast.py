"""Process reward broadcast: the score of a step on the tokens of the step.

DeepSeekMath, arXiv 2402.03300, section 4.1.3 (process supervision with GRPO) is baseline "group", scale "spread", reach
"following": step scores are normalised over all steps of the group, and a token gets the sum over the steps that end
after it. Reach "own" gives a token the score of its own step alone, as in the data of arXiv 2312.08935 (Math-Shepherd).

Scores come from a function: a rule or a process reward model behind it, never the outcome. The method defines no V_0;
the credit, one term `process`, sums to the sum of (score - mean of the scores) over the steps, each shared by the
decision tokens of its step. Tokens outside any step get 0. Steps without a decision token are dropped before any mean.
Scores of a single scored member, and scores that are all equal, teach nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory

from .charges import check_charge_scale, with_charges
from .options import check_choice
from .rewards import all_equal, exact_mean, spread

__all__ = ["PRMBroadcast", "StepScores"]

Floats = NDArray[np.float64]
Baseline = Literal["group", "none"]
Scale = Literal["none", "spread"]
Reach = Literal["own", "following"]


class StepScores(NamedTuple):
    """Steps of a trajectory: `step_T` int64 [T], the step of every token, -1 outside; `score_S` float64 [S]."""

    step_T: NDArray[np.int64]
    score_S: Floats


@dataclass(frozen=True, slots=True)
class PRMBroadcast:
    """Prices every token by the score of its step.

    Attributes:
        scores: trajectory -> `StepScores`, steps numbered in their order.
        baseline: "group" (less the mean over all steps of the group) or "none".
        scale: "none", or "spread" to divide the advantage by the standard deviation over all steps of the group.
        reach: "own" step, or own and all "following" steps.
        charge_scale: multiplies every charge.

    """

    scores: Callable[[Trajectory], StepScores]
    baseline: Baseline = "group"
    scale: Scale = "none"
    reach: Reach = "own"
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        if not callable(self.scores):
            raise CreditError(
                f"scores={self.scores!r}: expected a function from a trajectory to StepScores. A configuration file "
                "cannot hold a function: name one of your own as package.module:name, which makes it"
            )
        check_choice("baseline", self.baseline, get_args(Baseline))
        check_choice("scale", self.scale, get_args(Scale))
        check_choice("reach", self.reach, get_args(Reach))
        check_charge_scale(self.charge_scale)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of every trajectory of the group, float64 [T] terms `process` and `charge:*`.

        Raises:
            CreditError: step ids and scores do not fit the trajectory or each other.

        """
        found = {i: _read(t, self.scores(t)) for i, t in enumerate(group.trajectories) if t.outcome is not None}
        scores_M = np.concatenate([scores.score_S for scores in found.values()]) if found else np.zeros(0)
        teaches = len(found) > 1 and len(scores_M) > 0 and not all_equal(scores_M)
        mean = float(exact_mean(scores_M)) if teaches and self.baseline == "group" else 0.0
        scale = 1 / spread(scores_M) if teaches and self.scale == "spread" else 1.0
        priced = []
        for index, trajectory in enumerate(group.trajectories):
            credit_T, advantage_T = np.zeros(len(trajectory)), np.zeros(len(trajectory))
            if teaches and index in found and len(found[index].score_S):
                step_T, score_S = found[index]
                gained_S = score_S - mean
                inside_T = step_T >= 0
                count_S = np.bincount(step_T[inside_T], minlength=len(score_S))
                reached_S = gained_S if self.reach == "own" else np.cumsum(gained_S[::-1])[::-1]
                credit_T[inside_T] = (gained_S / count_S)[step_T[inside_T]]
                advantage_T[inside_T] = scale * reached_S[step_T[inside_T]]
            priced.append(with_charges(trajectory, {"process": credit_T}, {"process": advantage_T}, self.charge_scale))
        return tuple(priced)


def _read(trajectory: Trajectory, scores: StepScores) -> StepScores:
    """Return the steps that hold decision tokens, numbered anew, on those tokens only."""
    step_T, score_S = np.asarray(scores.step_T, dtype=np.int64), np.asarray(scores.score_S, dtype=np.float64)
    where = f"(episode {trajectory.episode_id or '?'})"
    if step_T.shape != (len(trajectory),) or score_S.ndim != 1:
        raise CreditError(
            f"step ids have shape {step_T.shape} and scores {score_S.shape}, "
            f"expected ({len(trajectory)},) and (S,) {where}"
        )
    if step_T.size and not -1 <= int(step_T.min()) <= int(step_T.max()) < len(score_S):
        raise CreditError(
            f"step ids run from {int(step_T.min())} to {int(step_T.max())} for {len(score_S)} scores, "
            f"expected -1 (outside any step) to {len(score_S) - 1} {where}"
        )
    if not bool(np.isfinite(score_S).all()):
        raise CreditError(f"the score of step {int(np.argmin(np.isfinite(score_S)))} is not finite {where}")
    decided_T = np.where(trajectory.credit_mask, step_T, -1)
    kept_S = np.unique(decided_T[decided_T >= 0])
    renumbered_T = np.where(decided_T >= 0, np.searchsorted(kept_S, decided_T), -1)
    return StepScores(renumbered_T, score_S[kept_S])
