"""What a replica of the engine offers, wherever it runs. Its coroutines all run in the policy's one event loop."""

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accredit.agents.policy import EngineError

__all__ = ["Asked", "Replica", "ReplicaLost", "Sampled"]


class ReplicaLost(EngineError):
    """A replica died or does not answer; another one may."""


class Asked(NamedTuple):
    """One decision to sample: int32 [T] ids of the context, and how to go on from them."""

    ids: NDArray[np.int32]
    limit: int
    stop_ids: frozenset[int]
    temperature: float
    seed: int


class Sampled(NamedTuple):
    """Sampled ids, int32 [N], and their log-probabilities in nats, float32 [N], those of the raw logits."""

    ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]


class Replica(Protocol):
    """One engine with weights of its own."""

    name: str

    async def start(self) -> None:
        """Wait until it stands, and check its settings; raise `EngineError` if it cannot serve."""
        ...

    async def sample(self, asked: Asked) -> Sampled:
        """Sample one decision; raise `ReplicaLost` if the replica is gone."""
        ...

    async def load(self, folder: Path) -> None:
        """Take over the weights in `folder` in place, or the adapter there, and clear the prefix cache."""
        ...

    async def close(self) -> None:
        """Stop what the replica started."""
        ...
