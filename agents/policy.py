"""What every engine offers: ids in, ids and log-probabilities out, with the policy version.

An engine never sees text and never re-encodes. Sampling noise belongs to the episode: an engine that honours `seed`
draws the noise of (seed, turn) and nothing else, so the order in which episodes finish changes no result. What trains
needs more than a policy: a `TrainedPolicy` takes over new weights and answers for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accredit.envs import Decision, ToolEnv
from accredit.sandboxes.errors import AccreditError

__all__ = ["Decision", "EngineError", "Policy", "Request", "TrainedPolicy", "sampling_noise", "turn_seed"]


class EngineError(AccreditError, RuntimeError):
    """An engine cannot be started, has died, or was asked for something that it cannot do."""


@dataclass(frozen=True, slots=True)
class Request:
    """One turn of one episode that waits for the policy.

    `token_ids` is the whole segment so far (int32 [T]); `limit` the most tokens to sample. `env` is there for scripted
    and human policies, which read the environment instead of the ids.
    """

    episode_id: str
    token_ids: NDArray[np.int32]
    turn: int
    seed: int
    limit: int
    stop_ids: frozenset[int]
    temperature: float = 1.0
    env: ToolEnv | None = field(default=None, repr=False)


class Policy(Protocol):
    """A batched, asynchronous sampler of decisions."""

    lockstep: bool
    """Whether a batch waits until every live episode asks, which makes batches, and so results, repeatable."""

    @property
    def version(self) -> int:
        """The version of the weights that the next decision is sampled from."""
        ...

    async def sample(self, requests: Sequence[Request]) -> list[Decision]:
        """Return one decision a request, in order. Log-probabilities are the policy's own at temperature 1."""
        ...

    def forget(self, episode_id: str) -> None:
        """Drop whatever is kept for an episode that has ended."""
        ...


class TrainedPolicy(Policy, Protocol):
    """A policy whose weights the trainer changes in place."""

    def updated(self, version: int) -> dict[str, float]:
        """Take over the weights as they are now, drop what was computed with the old ones; return metrics of it."""
        ...

    def close(self) -> None:
        """Stop what was started for the policy."""
        ...


def sampling_noise(seed: int, turn: int, count: int) -> NDArray[np.float64]:
    """Return the uniforms in [0, 1), float64 [count], that decide one turn of the episode with sampler seed `seed`."""
    return np.random.Generator(np.random.Philox(key=[seed & (2**64 - 1), turn])).random(count)


def turn_seed(seed: int, turn: int) -> int:
    """Return the 63-bit seed that an engine with a generator of its own gets for one turn of an episode."""
    return int(np.random.SeedSequence([seed, turn]).generate_state(1, np.uint64)[0] >> np.uint64(1))
