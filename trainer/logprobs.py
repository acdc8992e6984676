"""Log-probabilities and entropies of a batch's decision tokens, under a `transformers` causal language model.

The body runs over the packed rows, because feedback is context; the head runs before decision tokens alone, and never
holds the full [tokens, vocabulary] matrix.
"""

from typing import Any

import torch

from accredit.sandboxes.errors import AccreditError

from .batch import Batch
from .tree_attention import attend_along_trees
from .vocabulary import BLOCK, Scores, log_probabilities

__all__ = ["HeadError", "score"]

_ON_LOGITS = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
)
"""Settings by which configurations of `transformers` say that logits are changed after the head."""


class HeadError(AccreditError, NotImplementedError):
    """The model does more to its logits than a linear head."""


def score(model: Any, batch: Batch, block: tuple[int, int] = BLOCK) -> Scores:
    """Return log-probability and entropy of the batch's decision tokens, float32 [N] in nats, with gradient.

    `block` bounds the logits held at once, tokens x vocabulary. A `PeftModel` is scored as the model in it, with its
    adapter.

    Raises:
        AttentionError: the model cannot attend within packed rows.
        HeadError: the model's logits are more than a linear function of its last hidden state.

    """
    if hasattr(model, "get_base_model"):  # peft's wrapper, whose `base_model` is no body
        model = model.get_base_model()
    head = _head(model)
    attend_along_trees(model)
    # A mask of four dimensions is taken as it is: without one the model would make its own, [T, T].
    nothing = torch.zeros(1, 1, 1, 1, device=batch.token_ids_T.device)
    hidden_TD = model.base_model(
        input_ids=batch.token_ids_T[None],
        position_ids=batch.positions_T[None],
        attention_mask=nothing,
        use_cache=False,
        tree=batch.tree,
    ).last_hidden_state[0]
    scores = log_probabilities(hidden_TD[batch.source_U], head.weight, head.bias, batch.labels_U, block)
    return Scores(scores.logprobs_N[batch.unique_N], scores.entropy_N[batch.unique_N])


def _head(model: Any) -> torch.nn.Linear:
    head, config = model.get_output_embeddings(), model.config.get_text_config()
    if not isinstance(head, torch.nn.Linear):
        raise HeadError(f"{type(model).__name__} has a {type(head).__name__} as its head, expected torch.nn.Linear")
    for name in _ON_LOGITS:
        found = getattr(config, name, None)
        if found is not None and (name == "final_logit_softcapping" or found != 1):
            raise HeadError(
                f"{type(model).__name__} has {name}={found}: its logits are not head(hidden), and to take them for it "
                "would miscompute every log-probability. Train a model without it"
            )
    return head
