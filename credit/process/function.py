"""ProcessReward: the outcome, scores of steps and a KL penalty as one credit function.

    r_t = w_process * process_t + w_outcome * outcome_t + beta * kl_t          (terms: see `combine.py`)
    A_t = sum over the parts of (return of the part from t on, less the group's mean of it)

- `outcome` (and `turn`): w_outcome (R - mean R) on every decision token, as in `broadcast`.
- `process`: with p_k the score of step k, a token of step k gets w_process (G_k - mean G_k), G_k = sum_j>=k
  gamma^(j-k) p_j, the mean over all scored members, where one that ended earlier counts with 0. A decision token
  outside any step has no reward of its own and shares the return of the steps after it.
- `decay`: what a wrong outcome takes back of the process part, so that both can be seen.
- `kl`: as `process`, for beta * (log pi_ref - log pi). The sign: a positive beta penalises drift from the reference.

So at the default settings the gradient has the direction of that of E[sum of r], up to the factor (G - 1) / G (policy
gradient with reward to go and a baseline: Sutton et al. 2000, theorem 1). The credit of the process part is the score
itself, over its step's tokens, less an even share of the group's mean: it sums to the member's process return less the
mean. Other settings follow DeepSeekMath's process supervision (arXiv 2402.03300, section 4.1.3: normalise='group') and
the like; they warn with what they cost.

A process score changes the objective; in the form 'potential' (Ng et al. 1999) it does not. An unscored member gets
no credit, keeps its charges, and enters no mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.functions.charges import check_charge_scale, with_charges
from accredit.credit.functions.options import is_number
from accredit.credit.functions.rewards import Rewards, all_equal, exact_mean, read_rewards, spread
from accredit.credit.ledger import Credit
from accredit.credit.trajectory import Group, Trajectory

from .choices import warn_of
from .combine import clip_factors, kl_rewards, less_the_mean, potential_differences, returns_to_go, step_places
from .normalise import Normalise, smooth, standardise
from .rules import RULES
from .scores import Place, Scorer, sum_scores, token_rewards
from .steps import Grain, Steps, TokenBytes, check_steps, cut_steps, step_count, step_ends

__all__ = ["ProcessReward"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ProcessReward:
    """Prices a group by outcome, step scores and drift.

    Attributes:
        steps: what a step is: `turn`, `call`, `line` or `sentence`.
        least_tokens: shorter steps join the next one.
        rules: names from `RULES`; their scores are added.
        scorers: further scorers (a `Verifier`, a learned process reward model), added to the rules.
        w_process: weight of the process part; .5 to 1 for rules, .1 to .5 for a learned model.
        w_outcome: weight of the outcome.
        beta: weight of the KL penalty, read when there is a `reference`; .01 to .05.
        reference: gives the reference policy's log-probabilities, float64 [T] in nats. A training run has `loss.kl`
            for this instead; do not use both.
        form: `additive` pays the scores; `potential` takes them for values of prefixes and pays their differences,
            which moves no optimum.
        gamma: weight of each later step in a step's return.
        wrong_decay: multiplies the process part of a whole trajectory whose reward is below `right_from`.
        right_from: the least reward of a right outcome.
        normalise: `none`, or standardise scores, outcome and KL before they are weighed: over the `group` or by step
            `position`.
        place: where the credit of a step is shown: over its tokens (`broadcast`) or on its last one (`end`).
        window: odd width in tokens of a moving average of the process part inside a span; 1 is none.
        clip: largest |r_t|; None does not clip.
        clip_at: `reward` clips r_t before any baseline, `advantage` what comes out.
        charged: whether rules judge calls that the environment charged.
        token_bytes: the bytes of token ids; needed by lines and sentences.
        charge_scale: multiplies every charge.

    """

    steps: Grain = "turn"
    least_tokens: int = 1
    rules: Sequence[str] = ("format", "validity", "execution")
    scorers: Sequence[Scorer] = ()
    w_process: float = 0.5
    w_outcome: float = 1.0
    beta: float = 0.02
    reference: Callable[[Trajectory], Floats] | None = None
    form: Literal["additive", "potential"] = "additive"
    gamma: float = 1.0
    wrong_decay: float = 0.5
    right_from: float = 1.0
    normalise: Normalise = "none"
    place: Place = "broadcast"
    window: int = 1
    clip: float | None = 2.0
    clip_at: Literal["reward", "advantage"] = "reward"
    charged: bool = False
    token_bytes: TokenBytes | None = None
    charge_scale: float = 1.0

    def __post_init__(self) -> None:
        self._check()
        unsafe = {
            "position": self.normalise == "position",
            "group": self.normalise == "group",
            "shaping": self.form == "potential" and self.normalise != "none",
            "window": self.window > 1,
            "clip": self.clip_at == "advantage" and self.clip is not None,
            "gamma": self.gamma < 1,
            "charged": self.charged and self.charge_scale > 0,
        }
        for choice, chosen in unsafe.items():
            if chosen:
                warn_of(choice)

    @classmethod
    def recommended(cls, reference: Callable[[Trajectory], Floats] | None = None, **changes: Any) -> Self:
        """Return the start that we recommend: outcome, rules by call, and a KL penalty when given a reference."""
        return replace(cls(steps="call", reference=reference), **changes)

    def __call__(self, group: Group, /) -> tuple[Credit, ...]:
        """Return the credit of the group: float64 [T] terms `outcome`, `turn`, `process`, `decay`, `kl`, `charge:*`."""
        rewards = read_rewards(group)
        priced: dict[int, _Terms] = {}
        if len(rewards.scored) > 1:
            members = [group.trajectories[index] for index in rewards.scored]
            priced = dict(zip(rewards.scored.tolist(), self._price(members, rewards), strict=True))
        names = (
            *rewards.names,
            "process",
            *(("decay",) if self.wrong_decay < 1 else ()),
            *(("kl",) if self.reference else ()),
        )
        credits = []
        for index, trajectory in enumerate(group.trajectories):
            zero = {name: np.zeros(len(trajectory)) for name in names}
            found = priced.get(index, _Terms(zero, {name: term_T.copy() for name, term_T in zero.items()}))
            credits.append(with_charges(trajectory, found.credit, found.advantage, self.charge_scale))
        return tuple(credits)

    def _price(self, members: Sequence[Trajectory], rewards: Rewards) -> list["_Terms"]:
        rows = [self._read(trajectory, parts_2) for trajectory, parts_2 in zip(members, rewards.parts, strict=True)]
        scores = standardise([row.scores_S for row in rows], self.normalise)
        kl = [self.beta * kl_T for kl_T in self._standard_kl([row.kl_T for row in rows], members)]
        decays = [self.wrong_decay if _is_wrong(t, self.right_from) else 1.0 for t in members]
        process_T = [
            self.w_process * token_rewards(row.steps, score_S, "end") for row, score_S in zip(rows, scores, strict=True)
        ]
        parts_S2 = np.array([row.parts_2 for row in rows])
        surprise_S2 = self.w_outcome * (parts_S2 - exact_mean(parts_S2))
        totals_S = parts_S2.sum(axis=1)
        if all_equal(totals_S, rewards.size):
            surprise_S2 = np.zeros_like(surprise_S2)
        elif self.normalise != "none":
            surprise_S2 = surprise_S2 / spread(totals_S)
        places = [step_places(row.steps) for row in rows]
        paid = {
            "process": _Paid(self._advantages(process_T, places), process_T),
            **({"decay": self._decayed(process_T, places, decays)} if self.wrong_decay < 1 else {}),
            **({"kl": _Paid(self._advantages(kl, places), kl)} if self.reference else {}),
        }
        means = {
            name: float(exact_mean(np.array([each.sum() for each in part.rewards]))) for name, part in paid.items()
        }
        priced = []
        for index, (trajectory, row) in enumerate(zip(members, rows, strict=True)):
            mask_T = trajectory.credit_mask
            count = max(1, int(mask_T.sum()))
            parts = dict(zip(rewards.names, surprise_S2[index], strict=False))
            credit = {name: np.where(mask_T, part / count, 0.0) for name, part in parts.items()}
            advantage = {name: np.where(mask_T, part, 0.0) for name, part in parts.items()}
            for name, part in paid.items():
                shown_T = part.rewards[index] if name == "kl" else self._shown(row.steps, part.rewards[index])
                credit_T = np.where(mask_T, shown_T - means[name] / count, 0.0)
                advantage_T = np.where(mask_T, part.advantages[index], 0.0)
                credit[name] = credit_T if name == "kl" else self._smooth(credit_T, trajectory)
                advantage[name] = advantage_T if name == "kl" else self._smooth(advantage_T, trajectory)
            if self.clip_at == "advantage":
                factors_T = clip_factors(np.sum(list(advantage.values()), axis=0), self.clip)
                advantage = {name: term_T * factors_T for name, term_T in advantage.items()}
            priced.append(_Terms(credit, advantage))
        return priced

    def _read(self, trajectory: Trajectory, parts_2: Floats) -> "_Row":
        """Return what a member's tokens are paid before any comparison, clipped where `clip_at` says so."""
        steps = cut_steps(trajectory, self.steps, self.token_bytes, self.least_tokens)
        scorers = [*(RULES[name](self.charged) for name in self.rules), *self.scorers]
        scores = [np.asarray(scorer(trajectory, steps), dtype=np.float64) for scorer in scorers]
        for each in scores:
            if each.shape != (step_count(steps),):
                raise CreditError(
                    f"a scorer gave shape {each.shape} for {step_count(steps)} steps: give one score a step"
                )
        scores_S = sum_scores(np.array(scores).reshape(len(scores), step_count(steps)))
        if self.form == "potential":
            scores_S = potential_differences(scores_S)
        kl_T = kl_rewards(trajectory, self.reference(trajectory)) if self.reference else np.zeros(len(trajectory))
        decided = np.flatnonzero(trajectory.credit_mask)
        if self.clip_at == "reward" and len(decided):
            total_T = self.w_process * token_rewards(steps, scores_S, "end") + self.beta * kl_T
            total_T[decided[-1]] += self.w_outcome * float(parts_2.sum())
            factors_T = clip_factors(total_T, self.clip)
            scores_S, kl_T = scores_S * factors_T[step_ends(steps)], kl_T * factors_T
            parts_2 = parts_2 * factors_T[decided[-1]]
        return _Row(steps, scores_S, kl_T, parts_2)

    def _advantages(self, rewards: Sequence[Floats], places: Sequence[NDArray[np.int64]]) -> list[Floats]:
        """float64 [T] a member: its return from each token on, less the group's mean."""
        return self._compared([returns_to_go(*each, self.gamma) for each in zip(rewards, places, strict=True)], places)

    def _decayed(
        self, rewards: Sequence[Floats], places: Sequence[NDArray[np.int64]], decays: Sequence[float]
    ) -> "_Paid":
        """Return what wrong outcomes take from the process part, as a part of its own.

        Over whole returns (gamma = 1) a wrong outcome also takes from a token its share of what was earned before it,
        because the decision may be what made the outcome wrong.
        """
        lost = [(decay - 1) * rewards_T for rewards_T, decay in zip(rewards, decays, strict=True)]
        returns = [returns_to_go(*each, self.gamma) for each in zip(lost, places, strict=True)]
        if self.gamma == 1:
            returns = [np.full_like(returns_P, returns_P[0]) for returns_P in returns]
        return _Paid(self._compared(returns, places), lost)

    def _compared(self, returns: Sequence[Floats], places: Sequence[NDArray[np.int64]]) -> list[Floats]:
        centred = less_the_mean(returns) if self.normalise == "none" else returns
        return [surprise_P[places_T] for surprise_P, places_T in zip(centred, places, strict=True)]

    def _standard_kl(self, kl: list[Floats], members: Sequence[Trajectory]) -> list[Floats]:
        if self.normalise == "none" or not self.reference:
            return kl
        masked = [kl_T[t.credit_mask] for kl_T, t in zip(kl, members, strict=True)]
        for kl_T, known_N, t in zip(kl, standardise(masked, self.normalise), members, strict=True):
            kl_T[t.credit_mask] = known_N
        return kl

    def _shown(self, steps: Steps, ends_T: Floats) -> Floats:
        """Return the rewards at the ends of steps where `place` shows them; a step keeps its sum."""
        if self.place == "end":
            return ends_T
        ends = step_ends(steps)
        sizes_S = np.bincount(steps[steps >= 0], minlength=len(ends))
        return token_rewards(steps, ends_T[ends] / np.maximum(sizes_S, 1), "broadcast")

    def _smooth(self, values_T: Floats, trajectory: Trajectory) -> Floats:
        return smooth(values_T, trajectory.spans, self.window) if self.window > 1 else values_T

    def _check(self) -> None:
        check_charge_scale(self.charge_scale)
        if isinstance(self.rules, str) or not isinstance(self.rules, Sequence):
            raise CreditError(f"rules={self.rules!r}: expected a list of some of {', '.join(RULES)}")
        for name in self.rules:
            if name not in tuple(RULES):
                raise CreditError(f"rules: there is no rule '{name}': expected some of {', '.join(RULES)}")
        for name, value, top in (
            ("w_process", self.w_process, np.inf),
            ("w_outcome", self.w_outcome, np.inf),
            ("beta", self.beta, np.inf),
            ("gamma", self.gamma, 1.0),
            ("wrong_decay", self.wrong_decay, 1.0),
        ):
            if not is_number(value, 0, top):
                raise CreditError(f"{name}={value!r}: expected a number {'of at least 0' if top > 1 else 'in [0, 1]'}")
        if self.clip is not None and not (is_number(self.clip, 0) and self.clip > 0):
            raise CreditError(f"clip={self.clip!r}: expected a number above 0, or None for no clip")
        if not is_number(self.right_from):
            raise CreditError(f"right_from={self.right_from!r}: expected the least reward of a right outcome")
        if not isinstance(self.charged, bool):
            raise CreditError(f"charged={self.charged!r}: expected true or false")
        if not isinstance(self.scorers, Sequence) or not all(map(callable, self.scorers)):
            raise CreditError(f"scorers={self.scorers!r}: expected functions from a trajectory and its steps to scores")
        if not (self.reference is None or callable(self.reference)):
            raise CreditError(f"reference={self.reference!r}: expected a function from a trajectory to float64 [T]")
        for name, chosen, known in (
            ("form", self.form, ("additive", "potential")),
            ("clip_at", self.clip_at, ("reward", "advantage")),
            ("place", self.place, ("end", "broadcast")),
        ):
            if chosen not in known:
                raise CreditError(f"{name}={chosen!r}: expected {known[0]!r} or {known[1]!r}")
        check_steps(self.steps, self.token_bytes, self.least_tokens)
        standardise([], self.normalise)
        smooth(np.zeros(0), (), self.window)


class _Terms(NamedTuple):
    credit: dict[str, Floats]
    advantage: dict[str, Floats]


class _Paid(NamedTuple):
    """One part of the reward over a group, ragged: advantages [T] and the rewards [T] themselves, weighed."""

    advantages: list[Floats]
    rewards: list[Floats]


class _Row(NamedTuple):
    """What one member is paid: scores of its steps, KL of its tokens, the parts of its reward."""

    steps: Steps
    scores_S: Floats
    kl_T: Floats
    parts_2: Floats


def _is_wrong(trajectory: Trajectory, right_from: float) -> bool:
    return trajectory.reward is not None and trajectory.reward < right_from - 1e-9
