"""Attention along the paths of a prefix tree, for any `transformers` model that takes its attention by name.

Registered beside the library's own ("sdpa", "eager"). Called with a `tree` it lets the queries of a segment attend to
the segments above it and, causally, to their own; no [T, T] mask is made and no padding computed. Called without one,
as in sampling, it is the engine's own (`agents.grouped_attention`), so a model can keep it for good. Gradients are
autograd's: the keys and values of a shared segment collect those of all who attended to them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from accredit.agents import grouped_attention
from accredit.sandboxes.errors import AccreditError

from .packing import Tree

__all__ = ["NAME", "AttentionError", "attend_along_trees"]

NAME = "accredit_tree"

_QUERIES = 256
"""Queries attended at once: a longer segment goes in parts, so that what no query of a part may see is not computed."""


class AttentionError(AccreditError, NotImplementedError):
    """The model attends in a way that packed rows do not have."""


def attend_along_trees(model: Any) -> None:
    """Let `model` (a `transformers` model) attend along trees from now on; do nothing if it already does.

    Raises:
        AttentionError: the model does not take its attention by name.

    """
    if model.config._attn_implementation == NAME:
        return
    if not getattr(model, "_supports_attention_backend", False):
        raise AttentionError(
            f"{type(model).__name__} does not take its attention from transformers' attention interface, so packed "
            "rows would see each other: train a model that does (Llama, Qwen, Mistral, SmolLM and most others)"
        )
    grouped_attention.attend_by(model, NAME, _attention)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    tree: Tree | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend; query is [1, H, T, D], key and value are [1, H / groups, T, D], the result is [1, T, H, D]."""
    if softcap is not None or s_aux is not None:
        raise AttentionError(
            f"{type(module).__name__} {'soft-caps its scores' if softcap is not None else 'has attention sinks'}, "
            "which this attention does not compute: train another model"
        )
    if tree is None:
        return grouped_attention.attention(module, query, key, value, attention_mask, dropout, scaling, **others)
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and query.device.type != "cpu":  # elsewhere masked kernels want as many keys as queries
        key, value, groups = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), 1

    def attend(query_L: Tensor, key_S: Tensor, value_S: Tensor, mask_LS: Tensor | None) -> Tensor:
        return scaled_dot_product_attention(
            query_L, key_S, value_S, mask_LS, dropout, mask_LS is None, scale=scaling, enable_gqa=groups > 1
        )

    mask = _staircase(tree, query, sliding_window)
    keys: list[Tensor] = []
    values: list[Tensor] = []
    outputs: list[Tensor] = []
    parts = (tensor.split(tree.lengths, dim=2) for tensor in (query, key, value))
    for query_L, key_L, value_L, parent in zip(*parts, tree.parents, strict=True):
        keys.append(key_L if parent is None else torch.cat([keys[parent], key_L], dim=2))
        values.append(value_L if parent is None else torch.cat([values[parent], value_L], dim=2))
        if parent is None and (sliding_window is None or key_L.shape[2] <= sliding_window):
            outputs.append(attend(query_L, keys[-1], values[-1], None))
            continue
        end = keys[-1].shape[2] - query_L.shape[2]
        for query_Q in query_L.split(_QUERIES, dim=2):
            end += query_Q.shape[2]
            seen = mask(query_Q.shape[2], end)
            outputs.append(attend(query_Q, keys[-1][:, :, :end], values[-1][:, :, :end], seen))
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


def _staircase(tree: Tree, like: Tensor, window: int | None) -> Callable[[int, int], Tensor]:
    """Return what gives the additive mask [L, S] of the last L of S tokens: all are views of one staircase."""
    depths: list[int] = []
    for length, parent in zip(tree.lengths, tree.parents, strict=True):
        depths.append(length + (0 if parent is None else depths[parent]))
    queries, deepest = min(_QUERIES, max(tree.lengths)), max(depths)
    step = torch.arange(queries, device=like.device)[:, None] + deepest
    column = torch.arange(deepest + queries, device=like.device)[None, :]
    hidden = column > step if window is None else (column > step) | (column <= step - window)
    stairs = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(hidden, float("-inf"))

    def mask(length: int, end: int) -> Tensor:
        first = deepest - (end - length)
        seen = stairs[:length, first : first + end]
        return seen if like.device.type == "cpu" else seen.contiguous()  # kernels elsewhere want aligned rows

    return mask
