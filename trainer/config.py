"""The configuration of a run: what a YAML or TOML file may say, with defaults, units and bounds.

`trainer.config_file` reads it. Nothing below the trainer sees these classes: they are taken apart at the border.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from accredit.sandboxes.errors import AccreditError

__all__ = ["ConfigError", "RunConfig", "SFTConfig", "TrainConfig"]


class ConfigError(AccreditError, ValueError):
    """A configuration that cannot be run; the message lists everything that is wrong with it."""

    exit_code = 2


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class LoRAConfig(_Part):
    """Train low-rank adapters beside frozen weights, where `model.lora` is not null."""

    rank: int = Field(default=16, ge=1, le=512, description="rank of an adapter's two matrices")
    alpha: float = Field(default=32.0, gt=0, description="an adapter's output is multiplied by alpha / rank")
    targets: Literal["auto"] | tuple[str, ...] = Field(
        default="auto",
        description="last parts of the names of the layers to adapt, such as [q_proj, v_proj]; 'auto' is every linear "
        "layer but the output head, which cannot be adapted",
    )
    dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of an adapter's inputs dropped while training; the sampler drops none, so that in "
        "reinforcement learning the two part",
    )

    @field_validator("targets", mode="before")
    @classmethod
    def _names(cls, targets: Any) -> Any:
        listed = isinstance(targets, list | tuple) and targets and all(isinstance(name, str) for name in targets)
        if targets != "auto" and not listed:
            raise ValueError("expected 'auto' or a list of layers' names, such as [q_proj, v_proj]")
        return targets


class ModelConfig(_Part):
    """Which policy to start from."""

    path: str = Field(
        default="base",
        description="'base' (shipped), 'smollm2', a Hugging Face folder, or a checkpoint of another run",
    )
    dtype: Literal["float32", "bfloat16"] = Field(default="float32", description="precision of weights and rollouts")
    device: str = Field(default="auto", description="'auto' (cuda, mps, else cpu) or a torch device")
    tools_format: Literal["auto", "json", "signature"] = Field(
        default="auto", description="how tools are told: 'signature' is one short line a tool, 'json' the Hermes block"
    )
    lora: LoRAConfig | None = Field(default=None, description="train low-rank adapters; null: all weights")


class VLLMConfig(_Part):
    """The vLLM engine, where `rollout.engine` is vllm."""

    servers: tuple[str, ...] = Field(
        default=(), description="addresses of vLLM servers; without any, the run starts the engine itself"
    )
    replicas: int = Field(default=1, ge=1, description="engines that the run starts")
    sequences: int = Field(default=256, ge=1, description="most sequences in a batch of one replica")
    gpu_memory: float = Field(default=0.4, gt=0, le=1, description="share of the GPU's memory for the engine")
    cpu_cache_gb: int = Field(default=1, ge=1, description="GB for keys and values of a replica on the CPU")
    threads: int | None = Field(
        default=None, ge=1, description="CPU threads of a replica; null: OMP_NUM_THREADS, else the cores divided"
    )
    tolerance: float | None = Field(
        default=None,
        gt=0,
        description="largest gap in nats between the engine's log-probabilities and the trainer's; null: 1e-3 in "
        "float32, 1 in bfloat16",
    )
    weights: Literal["disk", "ipc"] = Field(
        default="disk",
        description="how weights reach an engine of this run: 'disk' (weights_dir), or 'ipc', memory of the GPU "
        "that it shares with the trainer",
    )
    weights_dir: str | None = Field(
        default=None, description="where weights are handed over; null: a temporary folder. Servers must see it too"
    )
    start_s: float = Field(default=600.0, gt=0, description="most seconds until an engine stands or a server answers")
    request_s: float = Field(default=600.0, gt=0, description="most seconds for a decision, or to take over weights")
    logs: bool = Field(default=False, description="show vLLM's own log")
    engine_args: dict[str, Any] = Field(
        default_factory=dict, description="more of vLLM's engine arguments, such as tensor_parallel_size"
    )

    @model_validator(mode="after")
    def _is_the_policy(self) -> "VLLMConfig":
        from accredit.agents.vllm.options import refused_arguments

        refused = refused_arguments(self.engine_args)
        if refused:
            raise ValueError("engine_args: " + "; ".join(refused))
        if self.servers and (self.engine_args or self.replicas > 1 or self.weights == "ipc"):
            raise ValueError(
                "servers have a number, arguments and memory of their own: leave out replicas, engine_args and weights"
            )
        return self


class RayConfig(_Part):
    """Workers of a Ray cluster that live the episodes, where `rollout.ray.workers` is not 0."""

    address: str = Field(
        default="auto", description="'auto' (the cluster of this machine), 'local' (start one here), or host:port"
    )
    workers: int = Field(
        default=0,
        ge=0,
        description="engines, each with weights of its own, spread over the nodes; 0: episodes are lived in the run's "
        "own processes",
    )
    gpus: float = Field(default=0.0, ge=0, description="GPUs of a worker")
    cpus: float = Field(default=1.0, ge=0, description="CPU cores of a worker, by which Ray places it")
    start_s: float = Field(default=600.0, gt=0, description="most seconds until a worker stands or has new weights")
    share_s: float = Field(
        default=3600.0, gt=0, description="most seconds for a worker's share of a rollout; after that it counts as lost"
    )


class RolloutConfig(_Part):
    """How episodes are lived."""

    engine: Literal["transformers", "vllm"] = Field(
        default="transformers", description="what samples: 'transformers' in this process, or 'vllm'"
    )

    groups: int = Field(default=12, ge=1, description="tasks a step")
    group_size: int = Field(default=8, ge=1, description="episodes a task")
    decision_tokens: int = Field(default=64, ge=1, description="most tokens sampled in a turn")
    episode_tokens: int = Field(default=1024, ge=16, description="most tokens of an episode, prompt included")
    turns: int | None = Field(default=None, ge=1, description="most turns; null leaves it to the environment")
    seconds: float = Field(
        default=120.0,
        gt=0,
        description="most seconds of an episode in its environment; waiting for decisions is free",
    )
    workers: int = Field(default=8, ge=1, description="threads that step environments")
    max_staleness: int = Field(
        default=0,
        ge=0,
        description="steps by which episodes are lived ahead, while the trainer updates, with weights so many versions "
        "old; 0: the trainer waits for the episodes of its own weights",
    )
    vllm: VLLMConfig = VLLMConfig()
    ray: RayConfig = RayConfig()

    @field_validator("engine", mode="before")
    @classmethod
    def _can_train(cls, engine: Any) -> Any:
        if engine == "openai":
            raise ValueError(
                "openai servers are for evaluation (accredit eval --server): nobody can give them new weights, or "
                "check that their log-probabilities are the policy's. To train with vLLM servers: engine vllm, and "
                "their addresses in rollout.vllm.servers"
            )
        return engine


class CreditConfig(_Part):
    """Which credit function prices the groups, and its options."""

    function: str = Field(
        default="anchored",
        description="a name from `accredit.credit.functions`, or package.module:name for a function of your own",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="keyword options of the function")
    charge_scale: float = Field(default=1.0, ge=0, description="multiplies every charge; 0 turns charges off")
    charge_scale_end: float | None = Field(default=None, ge=0, description="anneal to this by the last step")
    check: bool = Field(
        default=True, description="refuse a function that breaks what training needs (trainer.preflight)"
    )

    @model_validator(mode="after")
    def _can_be_made(self) -> "CreditConfig":
        from accredit.credit.functions import credit_function

        if "charge_scale" in self.options:
            raise ValueError("options.charge_scale: set credit.charge_scale instead, which the run can anneal")
        for scale in {self.charge_scale, self.charge_scale if self.charge_scale_end is None else self.charge_scale_end}:
            credit_function(self.function, charge_scale=scale, **self.options)
        return self


class LossConfig(_Part):
    """The policy-gradient loss."""

    kind: Literal["clipped", "unclipped"] = Field(default="clipped", description="clipped ratio (PPO) or plain ratio")
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="the ratio is held above 1 - clip_low")
    clip_high: float = Field(default=0.28, gt=0, description="the ratio is held below 1 + clip_high")
    kl: float = Field(default=0.0, ge=0, description="weight of the KL penalty towards the reference policy")
    kl_estimator: Literal["k1", "k2", "k3"] = Field(default="k3", description="Schulman's estimators; see trainer.loss")
    entropy: float = Field(default=0.0, ge=0, description="weight of a bonus for the policy's entropy")
    aggregation: Literal["token_mean", "sequence_mean", "constant"] = Field(
        default="token_mean",
        description="token_mean: over all decision tokens of the step; sequence_mean: mean a trajectory, then over "
        "trajectories; constant: sum divided by trajectories times loss.constant_tokens",
    )
    constant_tokens: int = Field(default=256, ge=1, description="divisor a trajectory of the 'constant' aggregation")
    importance: Literal["none", "token", "sequence"] = Field(
        default="none",
        description="weights for what older weights or another engine sampled, over a token or all decision tokens of "
        "an episode; the clipped ratio is then against the trainer's policy at the start of the step",
    )
    importance_cap: float = Field(default=2.0, ge=1, description="largest importance weight; .inf truncates nothing")


class OptimizerConfig(_Part):
    """AdamW."""

    lr: float = Field(default=3e-4, gt=0, description="peak learning rate")
    warmup_steps: int = Field(default=0, ge=0, description="steps of linear warm-up")
    decay: Literal["constant", "linear", "cosine"] = Field(default="constant", description="schedule after the warm-up")
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="decay of the two moments")
    weight_decay: float = Field(default=0.0, ge=0, description="decoupled weight decay")
    grad_clip: float = Field(default=1.0, gt=0, description="largest gradient norm")
    epochs: int = Field(default=1, ge=1, description="passes over a step's trajectories")
    minibatches: int = Field(default=1, ge=1, description="optimizer steps a pass")
    micro_tokens: int = Field(
        default=16_384, ge=64, description="most tokens in one forward pass, a prefix that rows share counted once"
    )
    gradient_checkpointing: bool = Field(
        default=False, description="compute a layer's activations again in the backward pass: less memory, more time"
    )


class EvaluationConfig(_Part):
    """Held-out evaluation."""

    every: int = Field(default=10, ge=0, description="steps between evaluations; 0 evaluates only before and after")
    episodes: int = Field(default=200, ge=1, description="held-out tasks, one episode each")
    temperature: float = Field(default=1.0, ge=0, description="0 is greedy")


class CheckpointConfig(_Part):
    """Which checkpoints are kept on disk."""

    every: int = Field(default=50, ge=1, description="steps between checkpoints; the last step is always kept")
    keep: int = Field(default=2, ge=1, description="newest checkpoints kept, beside the best by held-out success")


class SaveConfig(CheckpointConfig):
    """What is kept on disk."""

    every: int = Field(default=10, ge=1, description="steps between checkpoints; the last step is always kept")
    traces_every: int = Field(default=1, ge=0, description="steps between stored rollouts; 0 stores only evaluations")


class RunConfig(_Part):
    """What every kind of training says."""

    name: str = Field(default="run", min_length=1, pattern=r"^[\w.-]+$", description="the run directory is runs/NAME")
    runs_dir: str = Field(default="runs", description="where run directories lie")
    env: str = Field(description="an environment's name, or file.py:Class, or package.module:Class")
    env_options: dict[str, Any] = Field(default_factory=dict, description="reset options, such as level")
    seed: int = Field(default=0, ge=0, description="every other seed of the run is derived from it")
    trackers: tuple[Literal["wandb", "trackio"], ...] = Field(
        default=(), description="where metrics go beside metrics.jsonl and TensorBoard: wandb, trackio"
    )
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _hands_over(self) -> "RunConfig":
        if self.model.lora is not None and self.rollout.vllm.weights == "ipc":
            raise ValueError(
                "rollout.vllm.weights is ipc, expected disk with model.lora: adapters are handed over in folders"
            )
        return self


class TrainConfig(RunConfig):
    """A policy-gradient run."""

    steps: int = Field(
        default=60, ge=1, description="steps: groups x group_size episodes, then epochs x minibatches updates"
    )
    credit: CreditConfig = CreditConfig()
    loss: LossConfig = LossConfig()
    save: SaveConfig = SaveConfig()

    @model_validator(mode="after")
    def _consistent(self) -> "TrainConfig":
        if self.rollout.decision_tokens >= self.rollout.episode_tokens:
            raise ValueError("rollout.decision_tokens must be smaller than rollout.episode_tokens")
        if self.optimizer.minibatches > self.rollout.groups * self.rollout.group_size:
            raise ValueError("optimizer.minibatches exceeds the episodes of a step (rollout.groups x group_size)")
        return self


class SFTConfig(RunConfig):
    """A supervised warm start on the scripted expert's trajectories."""

    steps: int = Field(default=200, ge=1, description="optimizer steps")
    episodes: int = Field(default=512, ge=1, description="expert trajectories to learn from")
    batch: int = Field(default=32, ge=1, description="trajectories a step")
    save: CheckpointConfig = CheckpointConfig()
