"""Weights, gradients and optimizer state sharded over the processes of a run, by FSDP2 (`fully_shard`).

Each decoder layer is one unit, the rest (embeddings, last norm, head) another: a unit's weights are whole while it
computes and a 1/world share otherwise. Shards and their AdamW state are float32; a model of 16 bits computes in 16 and
sums its gradients over the processes in float32. A rollout needs whole weights on every process, at its own pace: it
has a copy, in the model's own precision, that `ShardedModel.write_to` brings up to date.

Memory of a process with P parameters, b bytes each (2 or 4), N processes: b P for the whole copy, 16 P / N for shards,
gradients and moments in float32, and two units at a time whole.

What is saved is what one process saves, gathered: any number of processes resumes what any other number wrote.
"""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from accredit.sandboxes.errors import AccreditError

from .batch import Batch
from .logprobs import score
from .tree_attention import attend_along_trees
from .vocabulary import Scores

__all__ = ["ShardError", "ShardedAdamW", "ShardedModel", "gathered"]


class ShardError(AccreditError, NotImplementedError):
    """A model cannot be cut into shards."""


class ShardedModel(nn.Module):
    """A sharded copy of `whole`, a `transformers` model that every process holds alike.

    Calling it scores a batch: all processes call it, each with a batch of its own. `forward` is the only way in, for it
    is where the shards come together.
    """

    def __init__(self, whole: Any, trains: bool = True) -> None:
        super().__init__()
        self.model = copy.deepcopy(whole)
        if not trains:
            self.model.requires_grad_(False)
        attend_along_trees(self.model)
        weight = next(whole.parameters())
        mesh = init_device_mesh(weight.device.type, (torch.distributed.get_world_size(),))
        computed = weight.dtype if weight.dtype.itemsize == 2 else None
        policy = MixedPrecisionPolicy(param_dtype=computed, reduce_dtype=torch.float32)
        for layer in _layers(self.model):
            fully_shard(layer.float(), mesh=mesh, mp_policy=policy)
        self.float()
        # What trains needs the head's weights again in the backward pass, which follows at once.
        fully_shard(self, mesh=mesh, mp_policy=policy, reshard_after_forward=not trains)

    def forward(self, batch: Batch) -> Scores:
        """Return what `logprobs.score` does."""
        return score(self.model, batch)

    @torch.no_grad()
    def write_to(self, whole: Any) -> None:
        """Copy the weights into `whole`, one tensor at a time. All processes call it."""
        for shard, target in zip(self.parameters(), whole.parameters(), strict=True):
            target.copy_(_full(shard))


class ShardedAdamW(torch.optim.AdamW):
    """AdamW on the shards of `sharded`, whose state is written and read as one process has it.

    `whole` is the copy into which a checkpoint's weights are loaded first.
    """

    def __init__(self, sharded: ShardedModel, whole: Any, **options: Any) -> None:
        super().__init__([weight for weight in sharded.parameters() if weight.requires_grad], **options)
        self._whole = whole
        self._rounded = next(whole.parameters()).dtype.itemsize == 2

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state, on the CPU of the first process; elsewhere the tensors are empty. All call it."""
        found = super().state_dict()
        state = {
            number: {name: gathered(value) for name, value in kept.items()} for number, kept in found["state"].items()
        }
        masters = {"masters": [gathered(shard) for shard in self._shards()]} if self._rounded else {}
        return {**found, "state": state, **masters}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the shards out of a whole state, and the weights out of `masters` or the whole copy."""
        shards = self._shards()
        trained = (weight for weight in self._whole.parameters() if weight.requires_grad)
        wholes: Iterable[Tensor] = state_dict["masters"] if self._rounded else trained
        for shard, whole in zip(shards, wholes, strict=True):
            shard.copy_(_cut(whole, shard))
        state = {
            number: {name: _cut(value, shards[int(number)]) if value.dim() else value for name, value in kept.items()}
            for number, kept in state_dict["state"].items()
        }
        super().load_state_dict({"state": state, "param_groups": state_dict["param_groups"]})

    def _shards(self) -> list[DTensor]:
        return [shard for group in self.param_groups for shard in group["params"]]


def gathered(value: Tensor) -> Tensor:
    """Return the whole tensor, on the CPU, to the first process, and an empty one to the others."""
    whole = _full(value)
    return whole.cpu() if torch.distributed.get_rank() == 0 else torch.empty(0)


def _full(value: Tensor) -> Tensor:
    return value.detach().full_tensor() if isinstance(value, DTensor) else value.detach()


def _cut(whole: Tensor, like: DTensor) -> DTensor:
    """Return `whole`, which every process has, sharded as `like` is; nothing travels."""
    moved = whole.to(like.device, like.dtype)
    return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)


def _layers(model: Any) -> nn.ModuleList:
    layers = getattr(model.base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ShardError(
            f"{type(model).__name__} keeps its decoder layers elsewhere than in base_model.layers, so it cannot be "
            "sharded by layer: train it with one process, or train a model that does (Llama, Qwen, Mistral, SmolLM)"
        )
    return layers
