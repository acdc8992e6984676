"""What a step's rollouts and credit look like in numbers. No thresholds and no advice here."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from accredit.credit import Credit, Group, SpanKind, Trajectory

from .alarms import evidence

__all__ = ["step_metrics"]


def step_metrics(
    trajectories: Sequence[Trajectory], credits: Sequence[Credit], groups: Sequence[Group]
) -> dict[str, Any]:
    """Return one step's metrics. Shares lie in [0, 1]; means are an episode unless the name says otherwise."""
    rewards = np.array([t.reward for t in trajectories if t.reward is not None])
    tokens = sum(len(t) for t in trajectories)
    decided = np.concatenate([c.credit.total[t.credit_mask] for t, c in zip(trajectories, credits, strict=True)])
    advantages = np.concatenate([c.advantage.total[t.credit_mask] for t, c in zip(trajectories, credits, strict=True)])
    sampled = np.concatenate([t.logprobs[t.credit_mask] for t in trajectories])
    flat = [_no_spread(group) for group in groups]
    charges = Counter(charge.reason for t in trajectories for charge in t.charges)
    stops = Counter(str(t.stop) for t in trajectories)
    count = len(trajectories)
    return {
        "rollout/reward": float(rewards.mean()) if rewards.size else float("nan"),
        "rollout/success": float((rewards >= 1 - 1e-9).mean()) if rewards.size else float("nan"),
        "rollout/unscored_share": 1 - rewards.size / count,
        "rollout/turns": float(np.mean([t.turns for t in trajectories])),
        "rollout/tokens": tokens / count,
        "rollout/decision_tokens": float(np.mean([sum(len(s) for s in t.decisions) for t in trajectories])),
        "rollout/feedback_tokens": float(
            np.mean([sum(len(s) for s in t.spans if s.kind is SpanKind.FEEDBACK) for t in trajectories])
        ),
        "rollout/no_spread_share": float(np.mean(flat)),
        "rollout/calls": float(np.mean([len(t.calls) for t in trajectories])),
        "rollout/charges": sum(charges.values()) / count,
        **{f"charges/{reason}": number / count for reason, number in sorted(charges.items())},
        **{f"stop/{reason}": number / count for reason, number in sorted(stops.items())},
        "policy/entropy_nats": float(-sampled.mean()) if sampled.size else 0.0,
        "credit/mean": float(decided.mean()) if decided.size else 0.0,
        "credit/spread": float(decided.std()) if decided.size else 0.0,
        "credit/positive_share": float((decided > 0).mean()) if decided.size else 0.0,
        "advantage/mean": float(advantages.mean()) if advantages.size else 0.0,
        "advantage/spread": float(advantages.std()) if advantages.size else 0.0,
        "advantage/silent_share": float((advantages == 0).mean()) if advantages.size else 1.0,
        **evidence(trajectories, credits),
    }


def _no_spread(group: Group) -> bool:
    known = group.rewards[~np.isnan(group.rewards)]
    return not known.size or bool(known.max() == known.min())
