"""Log-probabilities and entropy of decision tokens, without ever holding the full [tokens, vocabulary] matrix.

The body runs over whole rows, because feedback is context; the head runs on the positions before decision tokens
alone, in chunks that are computed again in the backward pass when there is more than one.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .batch import Batch

__all__ = ["Scored", "score"]

_CHUNK_ELEMENTS = 2**25


class Scored(NamedTuple):
    """Per decision token, float32 [N]: log-probability in nats (with gradient) and entropy in nats (without)."""

    logprobs_N: Tensor
    entropy_N: Tensor


def score(model: Any, batch: Batch, chunk_elements: int = _CHUNK_ELEMENTS) -> Scored:
    """Score the decision tokens of a batch under `model`, a `transformers` causal language model.

    `chunk_elements` bounds the logits held at once (tokens x vocabulary).
    """
    hidden_RTD = model.base_model(input_ids=batch.token_ids_RT, use_cache=False).last_hidden_state
    hidden_ND = hidden_RTD[batch.row_N, batch.target_N - 1]
    head = model.get_output_embeddings()
    labels_N = batch.labels_N
    size = max(1, chunk_elements // head.weight.shape[0])
    if len(labels_N) <= size:
        return Scored(*_head(head, hidden_ND, labels_N))
    parts = [
        checkpoint(_head, head, hidden, labels, use_reentrant=False)
        for hidden, labels in zip(hidden_ND.split(size), labels_N.split(size), strict=True)
    ]
    return Scored(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]))


def _head(head: Any, hidden_ND: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    logprobs_NV = head(hidden_ND).float().log_softmax(-1)
    with torch.no_grad():
        entropy_N = -(logprobs_NV.exp() * logprobs_NV).sum(-1)
    return logprobs_NV.gather(1, labels_N[:, None])[:, 0], entropy_N
