"""Weights through memory of the GPU that the trainer and an engine share, by vLLM's own transfer (`weights: ipc`).

Parameters travel under the names that they have in the model, so this is for models whose checkpoints use the same
names, as dense ones do; others go by way of the disk. The output head is sent beside the embeddings, also where it is
tied.
"""

import base64
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

from .local import LocalReplica

__all__ = ["MemoryTransfer"]


class MemoryTransfer:
    """Sends the weights of `model`, as they then are, to one replica, whose coroutines `wait` runs."""

    def __init__(self, model: Any, replica: LocalReplica, wait: Callable[[Any], Any]) -> None:
        self._sender = WeightTransferTrainerFactory.trainer_init(
            IPCTrainerInitInfo(rank=0, packed=True), client=_Client(replica, wait), source=_Parameters(model)
        )

    def send(self) -> None:
        """Send all weights; return when the replica has them."""
        self._sender.send_weights()


class _Client:
    """What vLLM's sender asks of the engine, step by step."""

    def __init__(self, replica: LocalReplica, wait: Callable[[Any], Any]) -> None:
        self._replica, self._wait = replica, wait

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._step("init_weight_transfer_engine", init_info=init_info)

    def shutdown_weight_transfer_engine(self) -> None:
        self._step("shutdown_weight_transfer_engine")

    def start_weight_update(self) -> None:
        self._step("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        handles = update_info.pop("ipc_handles")  # no JSON and no msgpack; the engine of our own child unpickles them
        update_info["ipc_handles_pickled"] = base64.b64encode(pickle.dumps(handles)).decode()
        self._step("update_weights", update_info=update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._step("finish_weight_update")

    def _step(self, name: str, **arguments: Any) -> None:
        self._wait(self._replica.call(name, **arguments))


class _Parameters(WeightSource):
    def __init__(self, model: Any) -> None:
        self._model = model

    def metadata(self) -> list[ParamMeta]:
        return [ParamMeta(name, weight.dtype, tuple(weight.shape)) for name, weight in self]

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        head = self._model.get_output_embeddings()
        named = dict(self._model.named_parameters())
        for name, weight in named.items():
            yield name, weight.detach()
        place = next(name for name, module in self._model.named_modules() if module is head)
        if f"{place}.weight" not in named:
            yield f"{place}.weight", head.weight.detach()
