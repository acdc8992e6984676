"""Attention of the embedded engine on a CPU, for models whose query heads share keys and values in groups.

`transformers` copies keys and values once for every query head before it attends under a mask. While sampling these
are the whole batch's keys and values at every layer and every token, more memory traffic than the model's own products.
Here the query heads of a group are attended to as more queries of the head that they share, and nothing is copied.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["NAME", "attend_by", "attend_in_groups", "attention"]

NAME = "accredit_grouped"


def attend_in_groups(model: Any) -> None:
    """Let `model` (a `transformers` model) attend by groups wherever it would by "sdpa"."""
    if model.config._attn_implementation == "sdpa":
        attend_by(model, NAME, attention)


def attend_by(model: Any, name: str, function: Callable[..., tuple[Tensor, None]]) -> None:
    """Register `function` as `name` beside the library's own attention, and let `model` attend by it from now on."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)
    model.set_attn_implementation(name)


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend: "sdpa" with its arguments and result, without copies of keys and values where a CPU can do without.

    query is [B, H, N, D], key and value are [B, H / groups, S, D], the mask [B, 1, N, S]; the result is [B, N, H, D].
    """
    batch, heads, queries, size = query.shape
    shared = key.shape[1]
    if shared == heads or attention_mask is None or attention_mask.shape[1] != 1 or query.device.type != "cpu":
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **others)
    groups = heads // shared
    attended = scaled_dot_product_attention(
        query.reshape(batch, shared, groups * queries, size),
        key,
        value,
        attention_mask.repeat(1, 1, groups, 1),
        dropout,
        scale=scaling,
    )
    return attended.reshape(batch, heads, queries, size).transpose(1, 2).contiguous(), None
