"""What the alarms are computed from, read off a step's trajectories and credits. No thresholds here.

Dimensions: N decision tokens of the step, E episodes. A number that cannot be computed (no call, no process reward, no
spread) is NaN, never 0.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from accredit.credit import Credit, Trajectory
from accredit.credit.process import cut_steps, mean_tokens_per_step, step_count

__all__ = ["evidence"]

Floats = NDArray[np.float64]

DECILES = 10
LATE = 3  # deciles that count as late
BASELINE_TERMS = ("outcome", "turn", "luck")  # of R - V_0, without what was put on top of R


def evidence(trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> dict[str, float]:
    """Return one step's evidence by metric name; shares lie in [0, 1], NaN is not computed."""
    decided = [t.credit_mask for t in trajectories]
    credit_N = _joined([c.credit.total[mask_T] for c, mask_T in zip(credits, decided, strict=True)])
    advantage_N = _joined([c.advantage.total[mask_T] for c, mask_T in zip(credits, decided, strict=True)])
    place_N = _joined([_places(mask_T) for mask_T in decided])
    energy_D = _energy(credit_N, _joined([_tenths(mask_T) for mask_T in decided]))
    return {
        "health/token_reward_mean": _token_reward(trajectories, decided),
        "health/tokens_per_turn": _mean_tokens(trajectories, "turn"),
        "health/tokens_per_call": _mean_tokens(trajectories, "call"),
        **_scales(trajectories, credits),
        **_process(trajectories, credits),
        **_shape(advantage_N, place_N),
        "health/credit_one_sign_share": _one_sign(credit_N),
        "health/credit_late_energy": float(energy_D[-LATE:].sum()),
        **{f"health/credit_energy_decile_{decile}": float(share) for decile, share in enumerate(energy_D)},
        "health/masked_gradient_share": _masked_share(credits, decided),
    }


def _places(mask_T: NDArray[np.bool_]) -> Floats:
    """float64 [n], where each decision token stands among those of its episode, from above 0 to 1."""
    count = int(mask_T.sum())
    return (np.arange(count) + 1) / max(1, count)


def _tenths(mask_T: NDArray[np.bool_]) -> Floats:
    """float64 [n], the tenth of its episode's decision tokens that each ends in, 0 to 9; the last one ends in 9."""
    count = int(mask_T.sum())
    return ((DECILES * (np.arange(count) + 1) - 1) // max(1, count)).astype(np.float64)


def _token_reward(trajectories: Sequence[Trajectory], decided: Sequence[NDArray[np.bool_]]) -> float:
    """Return what an average decision token was paid, before any baseline: R less charges, over decision tokens."""
    scored = [(t, mask_T) for t, mask_T in zip(trajectories, decided, strict=True) if t.reward is not None]
    paid = sum((t.reward or 0.0) - sum(charge.amount for charge in t.charges) for t, _ in scored)
    tokens = sum(int(mask_T.sum()) for _, mask_T in scored)
    return paid / tokens if tokens else float("nan")


def _mean_tokens(trajectories: Sequence[Trajectory], grain: str) -> float:
    found = mean_tokens_per_step([cut_steps(t, "call" if grain == "call" else "turn") for t in trajectories])
    return float("nan") if found is None else found


def _scales(trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> dict[str, float]:
    """Return the root mean square of what episodes were credited, and of the baseline they were compared with."""
    credit_E, baseline_E = [], []
    for trajectory, credit in zip(trajectories, credits, strict=True):
        if trajectory.reward is None:
            continue
        surprise = sum(float(credit.credit.terms[n].sum()) for n in BASELINE_TERMS if n in credit.credit.terms)
        credit_E.append(float(credit.credit.total.sum()))
        baseline_E.append(trajectory.reward - surprise)
    return {"health/credit_scale": _rms(credit_E), "health/baseline_scale": _rms(baseline_E)}


def _process(trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> dict[str, float]:
    """Return how the process part goes with the outcome, and how much of it varies inside a step."""
    sums_E, right_E, inside, total = [], [], 0.0, []
    for trajectory, credit in zip(trajectories, credits, strict=True):
        process_T = credit.credit.terms.get("process")
        if process_T is None or trajectory.reward is None:
            continue
        sums_E.append(float(process_T.sum()))
        right_E.append(trajectory.reward >= 1 - 1e-9)
        steps = cut_steps(trajectory, "call" if trajectory.calls else "turn")
        for step in range(step_count(steps)):
            paid = process_T[steps == step]
            inside += float(((paid - paid.mean()) ** 2).sum())
            total.append(paid)
    paid_N = _joined(total)
    variance = float(((paid_N - paid_N.mean()) ** 2).sum()) if paid_N.size else 0.0
    sums, right = np.array(sums_E), np.array(right_E)
    spread = len(sums) > 1 and sums.std() > 1e-12
    high = sums > sums.mean() + sums.std() if spread else np.zeros(len(sums), dtype=np.bool_)
    tells = spread and right.any() and not right.all()
    return {
        "health/process_outcome_correlation": float(np.corrcoef(sums, right)[0, 1]) if tells else float("nan"),
        "health/process_high_wrong_share": float((high & ~right).mean()) if tells else float("nan"),
        "health/process_inside_step_share": inside / variance if variance > 1e-18 else float("nan"),
    }


def _shape(advantage_N: Floats, place_N: Floats) -> dict[str, float]:
    """Return mean, skew and lean to early places of the advantages that are not 0, in units of their spread."""
    loud = advantage_N != 0
    loud_N, place_N = advantage_N[loud], place_N[loud]
    spread = float(loud_N.std()) if loud_N.size else 0.0
    if spread <= 1e-12:
        return dict.fromkeys(("health/advantage_lean", "health/advantage_skew", "health/advantage_tilt"), float("nan"))
    standard_N = (loud_N - loud_N.mean()) / spread
    early = place_N < np.median(place_N)
    tilt = float(standard_N[early].mean() - standard_N[~early].mean()) if early.any() else 0.0
    return {
        "health/advantage_lean": float(loud_N.mean()) / spread,
        "health/advantage_skew": float((standard_N**3).mean()),
        "health/advantage_tilt": tilt,
    }


def _one_sign(credit_N: Floats) -> float:
    loud_N = credit_N[credit_N != 0]
    share = float((loud_N > 0).mean()) if loud_N.size else float("nan")
    return max(share, 1 - share) if loud_N.size else float("nan")


def _energy(credit_N: Floats, tenth_N: Floats) -> Floats:
    """float64 [10], the share of sum c^2 in each tenth of the episodes; NaN without credit."""
    energy_D = np.bincount(tenth_N.astype(np.int64), weights=credit_N**2, minlength=DECILES)
    total = float(energy_D.sum())
    return energy_D / total if total > 0 else np.full(DECILES, np.nan)


def _masked_share(credits: Sequence[Credit], decided: Sequence[NDArray[np.bool_]]) -> float:
    """Return the share of sum |advantage| on tokens that the policy did not decide: must be exactly 0."""
    masked = sum(float(np.abs(c.advantage.total[~mask_T]).sum()) for c, mask_T in zip(credits, decided, strict=True))
    total = masked + sum(float(np.abs(c.advantage.total[m]).sum()) for c, m in zip(credits, decided, strict=True))
    return masked / total if total > 0 else 0.0


def _rms(values: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values else float("nan")


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])
