"""AdamW on float32 copies of 16-bit weights.

A bfloat16 weight has 8 significant bits: a step of less than about 0.2 % of it is rounded away, and most steps of
reinforcement learning are. So the steps are taken on copies in float32, and rounded afterwards. Gradients are summed
over micro-batches in float32, too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["MasterAdamW"]


class MasterAdamW(torch.optim.AdamW):
    """AdamW whose parameters are float32 copies of `weights`, which follow them after every step.

    A backward pass leaves its gradients with the copies, not with the weights. The copies are part of the state.
    """

    def __init__(self, weights: Iterable[Tensor], **options: Any) -> None:
        self._weights = [weight for weight in weights if weight.requires_grad]
        self._masters = [weight.detach().float().clone() for weight in self._weights]
        super().__init__(self._masters, **options)
        for weight, master in zip(self._weights, self._masters, strict=True):
            weight.register_post_accumulate_grad_hook(lambda weight, master=master: _hand_over(weight, master))

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Step the copies and round the weights to them."""
        loss = super().step(closure)
        for weight, master in zip(self._weights, self._masters, strict=True):
            weight.copy_(master)
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return AdamW's state and, as `masters`, the copies."""
        return {**super().state_dict(), "masters": list(self._masters)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take both in place."""
        masters: Sequence[Tensor] = state_dict["masters"]
        super().load_state_dict({name: part for name, part in state_dict.items() if name != "masters"})
        with torch.no_grad():
            for master, found in zip(self._masters, masters, strict=True):
                master.copy_(found)


def _hand_over(weight: Tensor, master: Tensor) -> None:
    assert weight.grad is not None
    if master.grad is None:
        master.grad = weight.grad.float()
    else:
        master.grad += weight.grad
    weight.grad = None
