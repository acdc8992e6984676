"""The processes of a run, started by torchrun: who is first, and what they tell each other.

Every process runs the same loop on the same data: what one of them has lived or priced is gathered by all, so a
decision taken from it is the same everywhere and needs no message. Only the first process writes. A single process that
nobody launched is a company of one, to which all of this is free.

Weights and gradients travel in `distributed_weights`; here are Python objects alone, over gloo.
"""

import datetime
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from accredit.sandboxes.errors import AccreditError

__all__ = ["ALONE", "ProcessLost", "Processes", "Unheard", "launched", "processes_of", "speaks"]

PATIENCE = datetime.timedelta(hours=3)
"""Longest wait for another process, which may be living a long rollout. One that dies is noticed at once."""

_DEATH = ("Connection closed by peer", "Connection reset", "Broken pipe", "Connection refused", "Socket closed", "NCCL")

T = TypeVar("T")


class ProcessLost(AccreditError, RuntimeError):
    """Another process of the run has ended, so this one cannot go on."""


class Processes:
    """One process (`rank` of `world`) and its company."""

    def __init__(self, rank: int = 0, world: int = 1, sharded: bool = False) -> None:
        self.rank, self.world = rank, world
        self.sharded = sharded
        """Whether weights are sharded, which they are under torchrun, also with one process."""

    @property
    def first(self) -> bool:
        """Whether this process writes the run directory and speaks."""
        return self.rank == 0

    def gather(self, own: T) -> list[T]:
        """Return what every process gave, by rank. All have to call it."""
        if self.world == 1:
            return [own]
        found: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(found, own)
        return found

    def from_first(self, work: Callable[[], T]) -> T:
        """Let the first process do `work`; return the result everywhere, or raise everywhere what it raised.

        All have to call it.
        """
        if self.world == 1:
            return work()
        told: list[Any] = [None, None]
        failure: Exception | None = None
        if self.first:
            try:
                told[0] = work()
            except Exception as error:
                failure = error
                told[1] = f"{type(error).__name__}: {error}"
        torch.distributed.broadcast_object_list(told, src=0)
        if failure is not None:
            raise failure
        if told[1] is not None:
            raise ProcessLost(f"process 0 could not go on: {told[1]}")
        return told[0]

    def share(self, items: Sequence[T]) -> list[T]:
        """Return this process's part of what all hold: every `world`-th item."""
        return list(items[self.rank :: self.world])

    def together(self, shares: Sequence[Sequence[T]]) -> list[T]:
        """Return the items in their order, from the parts that `share` dealt, by rank."""
        count = sum(len(share) for share in shares)
        return [shares[index % self.world][index // self.world] for index in range(count)]


ALONE = Processes()


def launched() -> bool:
    """Whether torchrun, or what sets the same variables, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ and "MASTER_ADDR" in os.environ


def speaks() -> bool:
    """Whether this process is the one to print: alone, or the first of those that torchrun started."""
    return not launched() or os.environ["RANK"] == "0"


class Unheard:
    """Stands where the first process has its listener and its files: takes everything, keeps nothing."""

    def started(self, run: Any, config: Any, first_step: int) -> None:
        """Begin."""

    def lived(self, done: int, of: int) -> None:
        """Count."""

    def stepped(self, step: int, metrics: Any) -> None:
        """Step."""

    def evaluated(self, step: int, evaluation: Any) -> None:
        """Evaluate."""

    def write(self, *_: Any, **__: Any) -> None:
        """Write."""

    def clear(self) -> None:
        """Clear."""

    def close(self) -> None:
        """Close."""


@contextmanager
def processes_of(device: str) -> Iterator[Processes]:
    """Join the company that torchrun started, and leave it at the end; without torchrun, be alone.

    On GPUs, each process sees one of its own from now on. `device` is the configuration's `model.device`.

    Raises:
        ProcessLost: another process of the run died.
        AccreditError: there are more processes on this machine than GPUs.

    """
    if not launched():
        yield ALONE
        return
    backend = "gloo"
    if device in ("auto", "cuda") and torch.cuda.device_count():
        _take_gpu(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl"
    torch.distributed.init_process_group(backend, timeout=PATIENCE)
    here = Processes(torch.distributed.get_rank(), torch.distributed.get_world_size(), sharded=True)
    try:
        yield here
    except RuntimeError as error:
        if isinstance(error, AccreditError) or not any(word in str(error) for word in _DEATH):
            raise
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends the others now: the message comes first
        raise ProcessLost(
            f"process {here.rank} of {here.world} lost another process of the run, which died or failed; what it said, "
            "and its exit code, stand beside this. What was written before is whole: start all processes again with "
            "--resume"
        ) from error
    torch.distributed.destroy_process_group()


def _take_gpu(local_rank: int) -> None:
    """Let this process see one GPU alone: its own. Engines that it starts inherit that."""
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise AccreditError(
            f"process {local_rank} of this machine has no GPU of its own: torchrun --nproc-per-node is larger than the "
            f"{count} GPUs that are visible. Start {count}, or train on the CPU with model.device=cpu"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    os.environ["CUDA_VISIBLE_DEVICES"] = names[local_rank]
    torch.cuda.set_device(0)
