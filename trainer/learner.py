"""What lives episodes and what learns from them: one model for both, or a whole copy and the shards of processes."""

from typing import NamedTuple

import torch

from accredit.agents.crew import TrainedCrew

from .config import TrainConfig
from .distributed import Processes
from .setup import Bench, make_crew, make_optimizer
from .update import Updater

__all__ = ["Learner", "make_learner"]


class Learner(NamedTuple):
    """The parts of a run that hold weights. `bench.loaded.model` has the newest whole after `crew.updated`."""

    crew: TrainedCrew
    optimizer: torch.optim.Optimizer
    updater: Updater


def make_learner(config: TrainConfig, bench: Bench, processes: Processes) -> Learner:
    """Start what samples, and make what learns, from the weights in `bench`.

    Raises:
        EngineError: nothing can be started to sample.
        ShardError: the model cannot be cut into shards.

    """
    whole, settings = bench.loaded.model, config.optimizer
    if not processes.sharded:
        optimizer = make_optimizer(whole, settings)
        return Learner(make_crew(config, bench), optimizer, Updater(whole, optimizer, config.loss, settings))
    from .distributed_rollout import FirstCrew, SplitCrew
    from .distributed_weights import ShardedAdamW, ShardedModel

    reference = ShardedModel(whole, trains=False) if config.loss.kl > 0 else None
    sharded = ShardedModel(whole)
    optimizer = ShardedAdamW(sharded, whole, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay)
    updater = Updater(sharded, optimizer, config.loss, settings, processes, reference)
    if config.rollout.ray.workers:
        own = make_crew(config, bench) if processes.first else None
        return Learner(FirstCrew(own, processes, sharded, whole), optimizer, updater)
    return Learner(SplitCrew(make_crew(config, bench), processes, sharded, whole), optimizer, updater)
