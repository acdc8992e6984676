"""What may be set of the vLLM engine, what may not, and the environment that it starts in.

vLLM reads much of its configuration from environment variables, and sets some itself, such as LD_PRELOAD, which tools
and sandboxes of this process must not inherit. `engine_environment` sets ours for as long as an engine starts, so that
its processes inherit them, and puts everything back.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["VLLMOptions", "engine_environment", "refused_arguments"]

_OURS = {
    "model": "model.path",
    "tokenizer": "model.path",
    "dtype": "model.dtype",
    "max_model_len": "rollout.episode_tokens",
    "max_num_seqs": "rollout.vllm.sequences",
    "gpu_memory_utilization": "rollout.vllm.gpu_memory",
    "seed": "seed",
    "weight_transfer_config": "rollout.vllm.weights",
    "enable_lora": "model.lora",
    "max_lora_rank": "model.lora.rank",
}
_NOT_THE_POLICYS = {
    "logprobs_mode": "log-probabilities are taken from the raw logits, whatever the temperature",
    "logits_processors": "what they sample from is another policy than the one that is trained",
    "generation_config": "a model folder's own temperature, top-p or penalties would make another policy of it",
    "override_generation_config": "temperature, top-p or penalties would make another policy of it",
    "enable_prefix_caching": "it is on, and cleared at every update",
    "skip_tokenizer_init": "the engine sees ids only",
}
_LAUNCHERS = {
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
    *("ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
}
"""What torchrun tells the processes of a run. An engine that read it would take itself for one of them."""


@dataclass(frozen=True, slots=True)
class VLLMOptions:
    """How the engine runs. Sizes are in tokens, GB or shares; times in seconds."""

    servers: tuple[str, ...] = ()
    """Addresses of vLLM servers; empty starts the engine with the run."""
    replicas: int = 1
    """Engines that the run starts, where there are no servers."""
    context_tokens: int = 4096
    dtype: str = "float32"
    sequences: int = 256
    """Most sequences in a batch of one replica."""
    gpu_memory: float = 0.4
    """Share of the GPU's memory that the engine may take; the rest is the trainer's."""
    cpu_cache_gb: int = 1
    """Keys and values of a replica on the CPU, in GB."""
    threads: int | None = None
    """CPU threads of a replica; None: OMP_NUM_THREADS, else the cores divided among the replicas."""
    weights: Literal["disk", "ipc"] = "disk"
    """How weights reach an engine of this run: a folder, or memory of the GPU that it shares with the trainer."""
    weights_dir: str | None = None
    """Where they are written on their way; None: a temporary folder. Servers must see it under the same path."""
    lora_rank: int | None = None
    """Rank of the adapters that are handed over in place of weights; None: whole models are."""
    tolerance: float | None = None
    """Largest gap of log-probabilities, in nats, that the guard lets pass; None: by `dtype`."""
    start_s: float = 600.0
    """Most seconds until an engine stands or a server answers."""
    request_s: float = 600.0
    """Most seconds for a decision, or for taking over weights."""
    logs: bool = False
    """Whether vLLM's own log is shown; errors always are."""
    engine_args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """More of vLLM's engine arguments, such as tensor_parallel_size."""


def refused_arguments(engine_args: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with extra engine arguments: a reason for each that cannot be given."""
    found = [f"{name}: set {ours} instead" for name, ours in _OURS.items() if name in engine_args]
    return found + [f"{name}: {why}" for name, why in _NOT_THE_POLICYS.items() if name in engine_args]


@contextmanager
def engine_environment(options: VLLMOptions, on_gpu: bool) -> Iterator[None]:
    """Hold the environment variables of an engine that starts; put all variables back afterwards."""
    before = dict(os.environ)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for name in before:
        if name in _LAUNCHERS or name.startswith("TORCHELASTIC_"):
            del os.environ[name]
    wanted = before.get("OMP_NUM_THREADS", "")
    threads = options.threads or (int(wanted) if wanted.isdigit() else max(1, cores // options.replicas))
    os.environ.update(
        OMP_NUM_THREADS=str(threads),
        VLLM_CPU_KVCACHE_SPACE=str(options.cpu_cache_gb),
        VLLM_CPU_OMP_THREADS_BIND="nobind",  # the cores are shared with the trainer and the environments
        VLLM_ENGINE_READY_TIMEOUT_S=str(int(options.start_s)),
        VLLM_NO_USAGE_STATS="1",  # nothing is sent anywhere
    )
    if not on_gpu:
        os.environ["TORCH_COMPILE_DISABLE"] = "1"  # compiling needs a compiler, and takes longer than it saves
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the worker lives in the engine's own process
    if options.weights == "ipc":
        os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # handles of shared memory from this process
    if not options.logs:
        os.environ.update(
            VLLM_LOGGING_LEVEL="ERROR", TORCH_CPP_LOG_LEVEL="ERROR", PYTHONWARNINGS="ignore", TORCH_LOGS="-all"
        )
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)
