"""Log-probabilities and entropies from hidden states, without the [tokens, vocabulary] matrix.

The logits of a block of tokens over a block of the vocabulary are made, used and dropped, in the forward pass and again
in the backward pass (the online softmax of Milakov & Gimelshein 2018, arXiv 1805.02867, with the recomputation of
Wijmans et al. 2024, arXiv 2411.09009). Products and sums are in float32 whatever the weights are (float64 for float64).

Dimensions: N tokens, D hidden size, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Scores", "log_probabilities"]

BLOCK = (1024, 8192)
"""Tokens and vocabulary entries of a block: 32 MB of float32."""


class Scores(NamedTuple):
    """Of each token: the log-probability of its label, and the entropy of the distribution it was drawn from; nats."""

    logprobs_N: Tensor
    entropy_N: Tensor


def log_probabilities(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_N: Tensor, block: tuple[int, int] = BLOCK
) -> Scores:
    """Return float32 [N] (float64 for float64 input) log softmax(hidden weight^T + bias)[label], and the entropy.

    Gradients flow to hidden, weight and bias, from both results. `block` bounds the logits held at once, tokens x
    vocabulary.
    """
    return Scores(*_LogProbabilities.apply(hidden_ND, weight_VD, bias_V, labels_N, block))


class _LogProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, labels_N: Tensor, block: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        exact = _exact(hidden_ND)
        top_N = torch.full(labels_N.shape, float("-inf"), dtype=exact, device=hidden_ND.device)
        sum_N, moment_N, label_N = (torch.zeros_like(top_N) for _ in range(3))
        for entries in _blocks(len(weight_VD), block[1]):
            weight = _ready(weight_VD[entries])
            for tokens in _blocks(len(labels_N), block[0]):
                logits = _logits(hidden_ND[tokens], weight, bias_V, entries)
                _pick(label_N[tokens], logits, labels_N[tokens], entries)
                top = torch.maximum(top_N[tokens], logits.amax(1))
                shrink = (top_N[tokens] - top).exp()
                powers = (logits - top[:, None]).exp_()
                sum_N[tokens] = sum_N[tokens] * shrink + powers.sum(1)
                moment_N[tokens] = moment_N[tokens] * shrink + powers.mul_(logits).sum(1)
                top_N[tokens] = top
        norm_N = top_N + sum_N.log()
        entropy_N = norm_N - moment_N / sum_N
        ctx.save_for_backward(hidden_ND, weight_VD, bias_V, labels_N, norm_N, entropy_N)
        ctx.block = block
        ctx.set_materialize_grads(False)
        return label_N - norm_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """With p the softmax and H the entropy: d logprob / d logit = onehot - p, d H / d logit = -p (log p + H)."""
        by_logprob_N, by_entropy_N = gradients
        hidden_ND, weight_VD, bias_V, labels_N, norm_N, entropy_N = ctx.saved_tensors
        exact = _exact(hidden_ND)
        if by_logprob_N is None:
            by_logprob_N = torch.zeros_like(norm_N)
        to_hidden, to_weight, to_bias = ctx.needs_input_grad[:3]
        hidden_grad = torch.zeros_like(hidden_ND, dtype=exact) if to_hidden else None
        weight_grad = torch.empty_like(weight_VD) if to_weight else None
        bias_grad = torch.empty_like(bias_V) if to_bias and bias_V is not None else None
        for entries in _blocks(len(weight_VD), ctx.block[1]):
            weight = _ready(weight_VD[entries])
            block_grad = torch.zeros(weight.shape, dtype=exact, device=weight.device)
            block_bias = torch.zeros(len(weight), dtype=exact, device=weight.device)
            for tokens in _blocks(len(labels_N), ctx.block[0]):
                logits = _logits(hidden_ND[tokens], weight, bias_V, entries).sub_(norm_N[tokens, None])
                by_logit = logits.exp()
                if by_entropy_N is None:
                    by_logit.mul_(-by_logprob_N[tokens, None])
                else:
                    logits.add_(entropy_N[tokens, None]).mul_(by_entropy_N[tokens, None])
                    by_logit.mul_(logits.add_(by_logprob_N[tokens, None]).neg_())
                _credit(by_logit, by_logprob_N[tokens], labels_N[tokens], entries)
                by_logit = by_logit.to(weight.dtype)
                if hidden_grad is not None:
                    hidden_grad[tokens] += _product(by_logit, weight)
                if weight_grad is not None:
                    block_grad += _product(by_logit.T, _ready(hidden_ND[tokens]))
                if bias_grad is not None:
                    block_bias += by_logit.sum(0, dtype=exact)
            if weight_grad is not None:
                weight_grad[entries] = block_grad
            if bias_grad is not None:
                bias_grad[entries] = block_bias
        return hidden_grad.to(hidden_ND.dtype) if hidden_grad is not None else None, weight_grad, bias_grad, None, None


def _exact(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def _ready(tensor: Tensor) -> Tensor:
    """Return the operand of a product: 16-bit numbers stay as they are where the product can still sum in float32."""
    return tensor if tensor.device.type == "cuda" else tensor.to(_exact(tensor))


def _product(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(a, b, out_dtype=torch.float32)
    return a @ b


def _logits(hidden_nD: Tensor, weight_vD: Tensor, bias_V: Tensor | None, entries: slice) -> Tensor:
    logits = _product(_ready(hidden_nD), weight_vD.T)
    return logits if bias_V is None else logits.add_(bias_V[entries])


def _blocks(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _inside(labels_n: Tensor, entries: slice) -> tuple[Tensor, Tensor]:
    """Return which labels lie among the entries, and which of the entries they are."""
    (rows,) = ((labels_n >= entries.start) & (labels_n < entries.stop)).nonzero(as_tuple=True)
    return rows, labels_n[rows] - entries.start


def _pick(label_n: Tensor, logits: Tensor, labels_n: Tensor, entries: slice) -> None:
    rows, columns = _inside(labels_n, entries)
    label_n[rows] = logits[rows, columns]


def _credit(by_logit: Tensor, by_logprob_n: Tensor, labels_n: Tensor, entries: slice) -> None:
    rows, columns = _inside(labels_n, entries)
    by_logit[rows, columns] += by_logprob_n[rows]
