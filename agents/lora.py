"""Low-rank adapters (LoRA), by peft: added to a model in place, trained alone, switched off for the reference.

The model stays the `transformers` model that it was, with its body and its head; only linear layers of the body become
peft's. The output head and the embeddings are never adapted: the head is computed in blocks of the vocabulary, and many
models share it with the embeddings. Adapters are float32 whatever the model is, so that a small step is not rounded
away.

A layer with weight W computes W x + (alpha / rank) B A x (Hu et al. 2021, arXiv 2106.09685, section 4.1); B starts at
0, and so does every change of the policy.
"""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
from torch import Tensor, nn

from .models import ModelError

__all__ = ["LoRA", "adapted_layers", "add", "base_state", "load_into", "merged", "rank_of", "save", "switched_off"]

WEIGHTS = "adapter_model.safetensors"
_NAME = "default"
_PREFIX = "base_model.model."
"""What peft writes before the names of a model's parts."""


@dataclass(frozen=True, slots=True)
class LoRA:
    """What is added: `rank` and `alpha` of the formula above, and to which layers.

    `targets` are last parts of layers' names, such as q_proj; None is every linear layer of the body. `dropout` is the
    share of an adapter's inputs that is dropped while training.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] | None = None
    dropout: float = 0.0


def adapted_layers(model: Any, lora: LoRA) -> dict[str, nn.Linear]:
    """Return the linear layers of `model` that `lora` adapts, by name.

    Raises:
        ModelError: a target is none of them; names the nearest.

    """
    head = model.get_output_embeddings()
    linear = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head
    }
    known = sorted({name.rpartition(".")[2] for name in linear})
    for target in lora.targets or ():
        if target in known:
            continue
        found = next((module for name, module in model.named_modules() if name.rpartition(".")[2] == target), None)
        near = difflib.get_close_matches(target, known, n=1)
        if found is head:
            why = "it is the output head, which is computed in blocks of the vocabulary and stays as it is"
        elif found is not None:
            why = f"it is a {type(found).__name__}"
        else:
            why = f"did you mean '{near[0]}'?" if near else "no layer has this name"
        raise ModelError(f"model.lora.targets: cannot adapt '{target}': {why}. Expected some of: {', '.join(known)}")
    wanted = known if lora.targets is None else lora.targets
    return {name: module for name, module in linear.items() if name.rpartition(".")[2] in wanted}


def add(model: Any, lora: LoRA, base: Path) -> None:
    """Freeze `model` and add an adapter that changes nothing yet; `base` is where its own weights lie.

    Raises:
        ModelError: there is no such layer.

    """
    targets = {name.rpartition(".")[2] for name in adapted_layers(model, lora)}
    model.requires_grad_(False)
    model.add_adapter(
        peft.LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,  # pyright: ignore[reportArgumentType]  # any number
            target_modules=sorted(targets),
            lora_dropout=lora.dropout,
            bias="none",
            task_type="CAUSAL_LM",
        ),
        _NAME,
    )
    model.peft_config[_NAME].base_model_name_or_path = str(base)
    for weight in _weights(model).values():
        weight.data = weight.data.float()


def rank_of(model: Any) -> int:
    """Return the rank of an adapted model's adapter."""
    return int(model.peft_config[_NAME].r)


@contextmanager
def switched_off(model: Any) -> Iterator[None]:
    """Let `model` compute what it did before the adapter was added, without dropout."""
    training = model.training
    model.eval()
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()
        model.train(training)


def save(model: Any, folder: Path) -> None:
    """Write the adapter of `model` to `folder`, as peft does."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: weight.detach().cpu().contiguous() for name, weight in _weights(model).items()}, folder / WEIGHTS)
    model.peft_config[_NAME].save_pretrained(str(folder))


@torch.no_grad()
def load_into(model: Any, folder: Path) -> None:
    """Copy the adapter in `folder` into that of `model`.

    Raises:
        ModelError: it has other layers or another rank.

    """
    from safetensors.torch import load_file

    found, weights = load_file(folder / WEIGHTS), _weights(model)
    other = sorted(found.keys() ^ weights.keys())
    other += [name for name in weights.keys() & found.keys() if weights[name].shape != found[name].shape]
    if other:
        raise ModelError(f"the adapter in {folder} does not fit that of the model: they differ in {other[:3]}")
    for name, weight in weights.items():
        weight.copy_(found[name])


def merged(model: Any, folder: Path) -> Any:
    """Return `model`, which has no adapter, with the one in `folder` added to its weights for good."""
    return peft.PeftModel.from_pretrained(model, str(folder)).merge_and_unload()  # pyright: ignore[reportCallIssue]


def base_state(model: Any) -> dict[str, Tensor]:
    """Return the weights below the adapter, under the names they have without it."""
    adapter = {id(weight) for weight in _weights(model).values()}
    state = model.state_dict(keep_vars=True)
    return {
        name.replace(".base_layer.", "."): weight.detach()
        for name, weight in state.items()
        if id(weight) not in adapter
    }


def _weights(model: Any) -> dict[str, nn.Parameter]:
    """Return the adapter's weights, under the names that they have in peft's files."""
    return {
        _PREFIX + name.replace(f".{_NAME}.", "."): weight
        for name, weight in model.named_parameters()
        if ".lora_A." in name or ".lora_B." in name
    }
