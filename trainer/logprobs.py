"""Log-probabilities of decision tokens, without ever holding the full [tokens, vocabulary] matrix.

The body runs over whole rows, because feedback is context; the head runs on the positions before decision tokens
alone, in chunks that are computed again in the backward pass when there is more than one.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .batch import Batch

__all__ = ["score"]

_CHUNK_ELEMENTS = 2**25


def score(model: Any, batch: Batch, chunk_elements: int = _CHUNK_ELEMENTS) -> Tensor:
    """Return the log-probabilities of the batch's decision tokens, float32 [N] in nats, with gradient.

    `model` is a `transformers` causal language model; `chunk_elements` bounds the logits held at once (tokens x
    vocabulary).
    """
    hidden_RTD = model.base_model(input_ids=batch.token_ids_RT, use_cache=False).last_hidden_state
    hidden_ND = hidden_RTD[batch.row_N, batch.target_N - 1]
    head = model.get_output_embeddings()
    labels_N = batch.labels_N
    size = max(1, chunk_elements // head.weight.shape[0])
    if len(labels_N) <= size:
        return _head(head, hidden_ND, labels_N)
    parts = [
        checkpoint(_head, head, hidden, labels, use_reentrant=False)
        for hidden, labels in zip(hidden_ND.split(size), labels_N.split(size), strict=True)
    ]
    return torch.cat(parts)


def _head(head: Any, hidden_ND: Tensor, labels_N: Tensor) -> Tensor:
    return head(hidden_ND).float().log_softmax(-1).gather(1, labels_N[:, None])[:, 0]
