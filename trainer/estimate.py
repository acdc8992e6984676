"""How much memory a run will take, before anything is loaded. An estimate: activations depend on the kernels."""

from pathlib import Path
from typing import Any

from .config import SFTConfig, TrainConfig
from .setup import lora_of

__all__ = ["memory_estimate"]

_BYTES = {"float32": 4, "bfloat16": 2}


def memory_estimate(config: TrainConfig | SFTConfig) -> str:
    """Return a few lines in MB: weights, gradients, optimizer, kept keys and values, logits, activations."""
    import torch
    import transformers

    from accredit.agents.models import locate, saved_base

    from .vocabulary import BLOCK

    path = config.model.path
    while adapter := saved_base(locate(path)[0]):
        path = adapter.path
    folder, options = locate(path)
    shape = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, **options)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(shape)
    parameters = sum(weight.numel() for weight in model.parameters())
    size = _BYTES[config.model.dtype]
    lora = lora_of(config.model)
    trained = parameters if lora is None else _adapter_parameters(model, lora)
    exact = 4 * trained  # float32, in which gradients are summed and 16-bit weights have a second copy
    copies = size == 2 and lora is None
    has_reference = isinstance(config, TrainConfig) and config.loss.kl > 0 and lora is None
    rollout, micro = config.rollout, config.optimizer.micro_tokens
    layers = shape.num_hidden_layers
    kept = layers + 34 if config.optimizer.gradient_checkpointing else 34 * layers
    heads = getattr(shape, "num_key_value_heads", shape.num_attention_heads)
    head_size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    token_bytes = 2 * shape.num_hidden_layers * heads * head_size * size
    rows = rollout.groups * rollout.group_size
    ahead = rollout.max_staleness
    parts = {
        "weights": parameters * size,
        "weights that live episodes ahead, and those that wait": (parameters + ahead * trained) * size if ahead else 0,
        "adapter": 0 if lora is None else exact,
        "gradients": exact,
        "optimizer": 3 * exact if copies else 2 * exact,
        "reference policy": parameters * size if has_reference else 0,
        "keys and values (rollout, twice: kept and in use)": 2 * rows * rollout.episode_tokens * token_bytes,
        "activations of a micro-batch": micro * kept * shape.hidden_size * size,
        "logits of a block": 2 * 4 * BLOCK[0] * min(BLOCK[1], shape.vocab_size),
    }
    of = "" if lora is None else f", {trained / 1e6:.2f} M trained"
    lines = [f"memory estimate ({parameters / 1e6:.1f} M parameters from {Path(folder).name}{of}):"]
    lines += [f"  {name}: {amount / 2**20:,.0f} MB" for name, amount in parts.items() if amount]
    return "\n".join([*lines, f"  together: {sum(parts.values()) / 2**20:,.0f} MB at most"])


def _adapter_parameters(model: Any, lora: Any) -> int:
    from accredit.agents.lora import adapted_layers

    layers = adapted_layers(model, lora).values()
    return sum(lora.rank * (layer.in_features + layer.out_features) for layer in layers)
