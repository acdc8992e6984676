"""What both kinds of training start from: the model, the environment's factory, the limits and the optimizer."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from accredit.agents.crew import Crew, LocalCrew, TrainedCrew, Work
from accredit.agents.models import LoadedModel, load_model, load_tokenizer, whole_path
from accredit.agents.policy import EngineError, Policy, TrainedPolicy
from accredit.agents.rollout import Episode, Limits, seeds_of
from accredit.agents.transformers import TransformersPolicy
from accredit.credit import Trajectory
from accredit.envs import EnvError, InfrastructureError, ToolEnv, load_env
from accredit.sandboxes.errors import AccreditError

from .config import ConfigError, ModelConfig, OptimizerConfig, SFTConfig, TrainConfig
from .evaluation import Evaluation, summarise
from .master import MasterAdamW
from .overlap import OverlappedCrew, frozen_copy

if TYPE_CHECKING:
    from accredit.agents.lora import LoRA

__all__ = [
    "Bench",
    "TaskError",
    "check_installed",
    "check_tasks",
    "crew_of",
    "held_out",
    "learning_rate",
    "lora_of",
    "make_crew",
    "make_engine",
    "make_optimizer",
    "prepare",
]

_HELD_OUT = 7_919  # sets the seeds of evaluation apart from those of training, whatever the run's seed

TRIES = 5
"""Seeds with which a task is tried before a split counts as empty."""

_INSTALL = {
    "vllm": "pip install 'accredit[vllm]' beside a GPU (docs/how-to/engines.md says how to install it for a CPU)",
    "ray": "pip install 'accredit[ray]'",
}

_SPLITS = {"train": "training", "heldout": "held-out"}


class TaskError(AccreditError, ValueError):
    """An environment gives no task of a split."""


class Bench(NamedTuple):
    """Model, environment and limits of a run."""

    loaded: LoadedModel
    make_env: Callable[[], ToolEnv]
    limits: Limits
    options: dict[str, Any]


def check_installed(config: TrainConfig | SFTConfig) -> None:
    """Raise `ConfigError` if a package that the configuration needs in this process is not installed."""
    rollout, missing = config.rollout, {f"trackers {name}": name for name in config.trackers}
    if rollout.ray.workers:
        missing["rollout.ray.workers"] = "ray"
    elif rollout.engine == "vllm" and not rollout.vllm.servers:
        missing["rollout.engine vllm"] = "vllm"
    missing = {asked: name for asked, name in missing.items() if find_spec(name) is None}
    if missing:
        words = [f"{asked}: {_INSTALL.get(name, f'pip install {name}')}" for asked, name in missing.items()]
        raise ConfigError(f"not installed: {'; '.join(words)}")


def prepare(config: TrainConfig | SFTConfig, weights: bool = True) -> Bench:
    """Load what the configuration names; a name that cannot be made fails here, before anything is lived.

    Without `weights` the model is None: somebody else holds it, and only its tokenizer is needed.
    """
    make_env = partial(load_env, config.env)
    check_tasks(make_env, config.env, config.env_options)
    torch.manual_seed(config.seed)
    wanted = config.model
    if weights:
        loaded = load_model(
            wanted.path,
            dtype=wanted.dtype,
            device=wanted.device,
            tools_format=wanted.tools_format,
            lora=lora_of(wanted),
        )
    else:
        loaded = load_tokenizer(wanted.path, wanted.tools_format)
    if weights and config.optimizer.gradient_checkpointing:
        loaded.model.gradient_checkpointing_enable({"use_reentrant": False})
    rollout = config.rollout
    limits = Limits(rollout.decision_tokens, rollout.episode_tokens, rollout.turns, None, rollout.seconds)
    return Bench(loaded, make_env, limits, dict(config.env_options))


def lora_of(config: ModelConfig) -> "LoRA | None":
    """Return the adapter that the configuration asks for."""
    if config.lora is None:
        return None
    from accredit.agents.lora import LoRA

    wanted = config.lora
    return LoRA(wanted.rank, wanted.alpha, None if wanted.targets == "auto" else wanted.targets, wanted.dropout)


def check_tasks(make_env: Callable[[], ToolEnv], name: str, options: Mapping[str, Any]) -> None:
    """Raise `TaskError` if a split has no task to begin: nothing could be learnt, or nothing evaluated.

    A hook may fail by bad luck and a machine for a while, so a split is tried with a few seeds, and a machine's failure
    is no finding.
    """
    env = make_env()
    try:
        for split in ("train", "heldout"):
            for seed in range(TRIES):
                try:
                    env.reset(seed=seeds_of(_HELD_OUT, seed), options={**options, "split": split})
                    break
                except InfrastructureError:
                    break
                except EnvError as error:
                    if seed == TRIES - 1:
                        raise TaskError(f"{name} has no {_SPLITS[split]} task to begin: {error}") from error
    finally:
        env.close()


def make_engine(config: TrainConfig | SFTConfig, model: Any) -> TrainedPolicy:
    """Start the engine that samples from `model`; raise `EngineError` if it cannot be."""
    if config.rollout.engine == "transformers":
        return TransformersPolicy(model)
    from accredit.agents.vllm.options import VLLMOptions
    from accredit.agents.vllm.policy import VLLMPolicy

    settings = config.rollout.vllm.model_dump()
    context = config.rollout.episode_tokens
    return VLLMPolicy(model, VLLMOptions(**settings, context_tokens=context, dtype=config.model.dtype))


def crew_of(policy: Policy, bench: Bench, config: TrainConfig | SFTConfig) -> LocalCrew:
    """Return the crew that lives the bench's episodes in this process."""
    return LocalCrew(policy, bench.make_env, bench.loaded.renderer, bench.limits, config.rollout.workers)


def make_crew(config: TrainConfig | SFTConfig, bench: Bench) -> TrainedCrew:
    """Start what lives episodes with the weights of the bench's model; raise `EngineError` if it cannot be.

    Where episodes are lived ahead it has a copy of the weights for itself, on which they do not change meanwhile.
    """
    if config.rollout.max_staleness:
        model = bench.loaded.model
        sampler = frozen_copy(model)
        return OverlappedCrew(
            _crew(config, bench._replace(loaded=bench.loaded._replace(model=sampler))), sampler, model
        )
    return _crew(config, bench)


def _crew(config: TrainConfig | SFTConfig, bench: Bench) -> TrainedCrew:
    if config.rollout.ray.workers:
        try:
            from accredit.agents.ray import RayCrew, RayOptions
        except ImportError as error:
            raise EngineError(
                f"rollout.ray.workers needs Ray, which cannot be imported here ({error}): pip install 'accredit[ray]', "
                "or set rollout.ray.workers=0 to live episodes in this process"
            ) from error

        options = RayOptions(**config.rollout.ray.model_dump())
        return RayCrew(bench.loaded.model, partial(_in_worker, _with_whole_paths(config)), options)
    return crew_of(make_engine(config, bench.loaded.model), bench, config)


def _with_whole_paths(config: TrainConfig | SFTConfig) -> TrainConfig | SFTConfig:
    """Name files so that a worker finds them from another working directory; they have to be on every node."""
    place, colon, name = config.env.partition(":")
    env = f"{Path(place).expanduser().resolve()}{colon}{name}" if place.endswith(".py") else config.env
    model = config.model.model_copy(update={"path": whole_path(config.model.path)})
    return config.model_copy(update={"env": env, "model": model})


def _in_worker(config: TrainConfig | SFTConfig) -> tuple[Any, LocalCrew]:
    """Return what a worker on another node has: a model of its own, and the crew that samples from it."""
    bench = prepare(config)
    return bench.loaded.model, crew_of(make_engine(config, bench.loaded.model), bench, config)


def make_optimizer(model: Any, config: OptimizerConfig) -> torch.optim.AdamW:
    """Return AdamW over all weights that train, or over float32 copies of weights that have 16 bits."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    kind = torch.optim.AdamW if weights[0].dtype.itemsize > 2 else MasterAdamW
    return kind(weights, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay)


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """Return the learning rate of 0-based `step` of `steps`."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    if config.decay == "linear":
        return config.lr * (1 - 0.9 * done)
    if config.decay == "cosine":
        return config.lr * (0.1 + 0.9 * 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * done)))))
    return config.lr


def held_out(
    bench: Bench,
    crew: Crew,
    config: TrainConfig | SFTConfig,
    episodes: int,
    temperature: float,
    tag: str,
    *,
    samples: int = 1,
    on_done: Callable[[Trajectory], None] | None = None,
    ended: Mapping[str, Trajectory] | None = None,
) -> tuple[Evaluation, Sequence[Trajectory]]:
    """Live `samples` episodes on each of `episodes` held-out tasks, the same in every run; return them by task."""
    options = {**bench.options, "split": "heldout"}
    waiting: list[Episode] = []
    for index in range(episodes):
        seed, group = seeds_of(_HELD_OUT, index), f"{tag}-{index:04d}"
        for sample in range(samples):
            own = (sample,) if sample else ()
            name = group if samples == 1 else f"{group}-{sample:03d}"
            waiting.append(Episode(name, group, seed, seeds_of(seed, 1, *own), seeds_of(seed, 2, *own), options))
    at_once = max(64, config.rollout.groups * config.rollout.group_size)
    lived = crew.live(waiting, Work(temperature=temperature, at_once=at_once, ended=ended), on_done)
    return summarise(lived), lived
