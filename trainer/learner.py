"""What lives episodes and what learns from them: one model for both, or a whole copy and the shards of processes."""

from typing import NamedTuple

import torch

from accredit.agents.crew import TrainedCrew

from .config import ConfigError, TrainConfig
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
        ConfigError: the processes cannot all have an engine of the kind that is configured, or share out an adapter.
        EngineError: nothing can be started to sample.
        ShardError: the model cannot be cut into shards.

    """
    whole, settings = bench.loaded.model, config.optimizer
    if not processes.sharded:
        optimizer = make_optimizer(whole, settings)
        updater = Updater(whole, optimizer, config.loss, settings)
        return Learner(make_crew(config, bench), optimizer, updater)  # what starts processes comes last
    if bench.loaded.base is not None:
        raise ConfigError(
            "model.lora is set, expected null under torchrun, whose processes share out whole weights. An adapter's "
            "gradients and moments are small: train it with one process, or set model.lora to null"
        )
    from .distributed_rollout import FirstCrew, SplitCrew
    from .distributed_weights import ShardedAdamW, ShardedModel

    reference = ShardedModel(whole, trains=False) if config.loss.kl > 0 else None
    sharded = ShardedModel(whole)
    optimizer = ShardedAdamW(sharded, whole, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay)
    updater = Updater(sharded, optimizer, config.loss, settings, processes, reference)
    if config.rollout.ray.workers:
        whole.to("cpu")  # nobody samples from it here
        own = make_crew(config, bench) if processes.first else None
        return Learner(FirstCrew(own, processes, sharded, whole), optimizer, updater)
    own = make_crew(_of_process(config, processes, whole.device.type), bench)
    return Learner(SplitCrew(own, processes, sharded, whole), optimizer, updater)


def _of_process(config: TrainConfig, processes: Processes, device: str) -> TrainConfig:
    """Return the configuration of one process's engine: it has its own replicas, or its share of the servers."""
    rollout = config.rollout
    servers = rollout.vllm.servers
    if rollout.engine != "vllm":
        return config
    if not servers and device == "cpu":
        raise ConfigError(
            "rollout.engine is vllm, which starts inside a process of the run on a CPU and would take its company for "
            "its own: start servers and name them in rollout.vllm.servers, or use the transformers engine"
        )
    if servers and len(servers) < processes.world:
        raise ConfigError(
            f"rollout.vllm.servers names {len(servers)} servers for {processes.world} processes: each needs one of its "
            "own, for it lives a share of the episodes and hands over weights. Start more servers or fewer processes"
        )
    vllm = rollout.vllm.model_copy(update={"servers": servers[processes.rank :: processes.world]})
    return config.model_copy(update={"rollout": rollout.model_copy(update={"vllm": vllm})})
