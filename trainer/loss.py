"""The policy-gradient loss per decision token, and the KL penalty. Pure functions of tensors [N].

Advantages are given; nothing here normalises, averages or masks: the weights of `trainer.batch` do.
"""

import torch
from torch import Tensor

from accredit.sandboxes.errors import AccreditError

__all__ = ["LossError", "kl_penalty", "policy_loss"]


class LossError(AccreditError, ValueError):
    """An unknown form of the loss."""


def policy_loss(
    logprobs_N: Tensor,
    sampled_logprobs_N: Tensor,
    advantages_N: Tensor,
    kind: str = "clipped",
    clip_low: float = 0.2,
    clip_high: float = 0.28,
) -> tuple[Tensor, Tensor]:
    """Return the loss [N] to minimise, and whether the clip took the gradient [N, bool].

    With ratio r = exp(logprob - sampled logprob): `clipped` is -min(r A, clip(r, 1 - low, 1 + high) A)
    (Schulman et al. 2017, arXiv 1707.06347, eq. 7; the asymmetric bounds are Yu et al. 2025, arXiv 2503.14476, eq. 10),
    `unclipped` is -r A, whose gradient on policy is -A grad log pi.
    """
    ratio_N = (logprobs_N - sampled_logprobs_N).exp()
    plain_N = ratio_N * advantages_N
    if kind == "unclipped":
        return -plain_N, torch.zeros_like(plain_N, dtype=torch.bool)
    if kind != "clipped":
        raise LossError(f"unknown loss '{kind}': expected clipped or unclipped")
    held_N = ratio_N.clamp(1 - clip_low, 1 + clip_high) * advantages_N
    return -torch.minimum(plain_N, held_N), held_N < plain_N


def kl_penalty(logprobs_N: Tensor, reference_logprobs_N: Tensor, estimator: str = "k3") -> Tensor:
    """Return an estimate [N] of KL(policy || reference) per token, to be added to the loss with a positive weight.

    The sign: minimising it pulls the policy towards the reference. With d = logprob - reference logprob on tokens that
    the policy sampled (estimators of Schulman 2020, "Approximating KL divergence"):

    - `k1`: value d, unbiased. Differentiated as it stands it has gradient 0 in expectation, so its gradient here is
      d grad log pi, the score-function gradient of the KL.
    - `k2`: value d^2 / 2, gradient d grad log pi.
    - `k3`: value exp(-d) - 1 + d, never negative, gradient (1 - exp(-d)) grad log pi: that of KL(reference || policy)
      in expectation.
    """
    d_N = logprobs_N - reference_logprobs_N
    if estimator == "k1":
        return d_N.detach() * (1 + logprobs_N - logprobs_N.detach())
    if estimator == "k2":
        return d_N.square() / 2
    if estimator == "k3":
        return (-d_N).exp() - 1 + d_N
    raise LossError(f"unknown KL estimator '{estimator}': expected k1, k2 or k3")
