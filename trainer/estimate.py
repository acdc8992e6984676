"""How much memory a run will take, before anything is loaded. An estimate: activations depend on the kernels."""

from pathlib import Path

from .config import SFTConfig, TrainConfig

__all__ = ["memory_estimate"]

_BYTES = {"float32": 4, "bfloat16": 2}


def memory_estimate(config: TrainConfig | SFTConfig) -> str:
    """Return a few lines in MB: weights, gradients, optimizer, kept keys and values, logits, activations."""
    import torch
    import transformers

    from accredit.agents.models import locate

    from .vocabulary import BLOCK

    folder, options = locate(config.model.path)
    shape = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, **options)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(shape)
    parameters = sum(weight.numel() for weight in model.parameters())
    size = _BYTES[config.model.dtype]
    exact = 4 * parameters  # float32, in which gradients are summed and 16-bit weights have a second copy
    rollout, micro = config.rollout, config.optimizer.micro_tokens
    layers = shape.num_hidden_layers
    kept = layers + 34 if config.optimizer.gradient_checkpointing else 34 * layers
    heads = getattr(shape, "num_key_value_heads", shape.num_attention_heads)
    head_size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    token_bytes = 2 * shape.num_hidden_layers * heads * head_size * size
    rows = rollout.groups * rollout.group_size
    parts = {
        "weights": parameters * size,
        "gradients": exact,
        "optimizer": 2 * exact if size == 4 else 3 * exact,
        "reference policy": parameters * size if isinstance(config, TrainConfig) and config.loss.kl > 0 else 0,
        "keys and values (rollout, twice: kept and in use)": 2 * rows * rollout.episode_tokens * token_bytes,
        "activations of a micro-batch": micro * kept * shape.hidden_size * size,
        "logits of a block": 2 * 4 * BLOCK[0] * min(BLOCK[1], shape.vocab_size),
    }
    lines = [f"memory estimate ({parameters / 1e6:.1f} M parameters from {Path(folder).name}):"]
    lines += [f"  {name}: {amount / 2**20:,.0f} MB" for name, amount in parts.items() if amount]
    return "\n".join([*lines, f"  together: {sum(parts.values()) / 2**20:,.0f} MB at most"])
