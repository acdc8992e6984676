"""Importance weights for what older weights, or another engine, sampled, and how far apart the two are.

Words: the *sampler* is the policy that decided the tokens; the *proximal* policy is the trainer's at the start of the
step. The clipped ratio of `trainer.loss` is then taken against the proximal policy, and each token's loss is multiplied
by the truncated weight of proximal over sampler: decoupled PPO (Hilton et al. 2022, arXiv 2110.00641, eq. 4) with the
truncation of Espeholt et al. 2018 (arXiv 1802.01561, section 4.1). With a cap a weight is biased towards the sampler
and its variance is bounded. Log-probabilities are those of decision tokens alone, so nothing else can enter a weight.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.sandboxes.errors import AccreditError

__all__ = ["Importance", "ImportanceError", "gap_metrics", "importance_of"]

Floats = NDArray[np.floating]


class ImportanceError(AccreditError, ValueError):
    """Weights that cannot be computed."""


class Importance(NamedTuple):
    """`weights` has a float32 array [N] a row, at most the cap; `metrics` say what became of the weights."""

    weights: list[NDArray[np.float32]]
    metrics: dict[str, float]


def importance_of(
    proximal: Sequence[Floats], sampled: Sequence[Floats], owners: Sequence[int], level: str, cap: float
) -> Importance:
    """Return the truncated importance weight of every decision token.

    - `token`: min(p / q, cap) of the token itself. Exact for episodes of one decision token; in longer ones it leaves
      out that later tokens, and so rewards, follow from other decisions than the policy's: biased, of low variance.
    - `sequence`: min(product of p / q over all decision tokens of the episode, cap), the same for all of them. Unbiased
      as the cap grows (Precup, Sutton & Singh 2000, section 3); its variance grows with the number of tokens.

    Args:
        proximal: log p of the trainer at the start of the step, [N] a row, in nats.
        sampled: log q of the sampler, alike.
        owners: which episode each row belongs to; an episode may have several.
        level: token or sequence.
        cap: largest weight, at least 1; inf truncates nothing.

    Returns:
        The weights, with these metrics, which count tokens or episodes as `level` does: `policy/importance_mean`, of
        truncated weights; `policy/importance_truncated_share`; `policy/importance_ess_share`, the effective sample size
        (sum w)^2 / sum w^2 over the number of weights w before truncation (Kong 1992), 1 where all are equal.

    Raises:
        ImportanceError: an unknown level, a cap below 1, or a log-probability that is not finite.

    """
    if level not in ("token", "sequence"):
        raise ImportanceError(f"unknown level of importance weights '{level}': expected token or sequence")
    if not cap >= 1:
        raise ImportanceError(f"the cap of importance weights is {cap:g}, expected at least 1, the weight on policy")
    ratios = [np.asarray(p, np.float64) - np.asarray(q, np.float64) for p, q in zip(proximal, sampled, strict=True)]
    for owner, ratio_N in zip(owners, ratios, strict=True):
        if not np.isfinite(ratio_N).all():
            at = int(np.argmin(np.isfinite(ratio_N)))
            raise ImportanceError(f"episode {owner} has a log-probability that is not finite at decision token {at}")
    if level == "sequence":
        sums: dict[int, float] = {}
        for owner, ratio_N in zip(owners, ratios, strict=True):
            sums[owner] = sums.get(owner, 0.0) + float(ratio_N.sum())
        logs = np.array(list(sums.values()))
        ratios = [np.full(len(ratio_N), sums[owner]) for owner, ratio_N in zip(owners, ratios, strict=True)]
    else:
        logs = np.concatenate(ratios) if ratios else np.zeros(0)
    most = np.log(cap)
    weights = [np.exp(np.minimum(ratio_N, most)).astype(np.float32) for ratio_N in ratios]
    if not logs.size:
        return Importance(weights, {})
    shares = np.exp(logs - logs.max())  # in units of the largest, so that none overflows
    return Importance(
        weights,
        {
            "policy/importance_mean": float(np.exp(np.minimum(logs, most)).mean()),
            "policy/importance_truncated_share": float((logs > most).mean()),
            "policy/importance_ess_share": float(shares.sum() ** 2 / (shares**2).sum() / logs.size),
        },
    )


def gap_metrics(proximal_N: Floats, sampled_N: Floats) -> dict[str, float]:
    """Return how far the trainer is from the sampler on what was sampled; NaN without a token.

    With d = log p - log q: the mean and the largest |d|, and the estimate of KL(sampler || trainer) that is the mean of
    exp(d) - 1 - d (k3 of Schulman 2020, "Approximating KL divergence"), nats a token.
    """
    d_N = np.asarray(proximal_N, np.float64) - np.asarray(sampled_N, np.float64)
    if not d_N.size:
        return dict.fromkeys(
            ("policy/sampler_gap_nats", "policy/sampler_gap_max_nats", "policy/sampler_kl_nats"), float("nan")
        )
    return {
        "policy/sampler_gap_nats": float(np.abs(d_N).mean()),
        "policy/sampler_gap_max_nats": float(np.abs(d_N).max()),
        "policy/sampler_kl_nats": float((np.exp(d_N) - 1 - d_N).mean()),
    }
