"""Export: a checkpoint as a Hugging Face model that `transformers` loads without Accredit, in a folder or on the Hub.

An adapter is added to its base's weights first, or written alone, as peft reads it. What only training needs (the
optimizer's state, the step) stays behind. Pushing needs a token, and is the only thing in Accredit that talks to the
Hub.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from accredit.agents.models import Base, load_model, save_model, saved_base
from accredit.sandboxes.errors import AccreditError

from .checkpoint import find

__all__ = ["ExportError", "export", "hub_token", "push"]

_STAYS = ("optimizer.pt", "state.json")


class ExportError(AccreditError, RuntimeError):
    """A checkpoint cannot be exported or pushed."""


def export(run: Path, which: str, out: Path, *, adapter: bool = False) -> Path:
    """Copy a checkpoint of `run` into the new folder `out`, whole or not at all; return the checkpoint.

    Args:
        run: the directory of a run.
        which: 'last', 'best' (by held-out success), or a step's number.
        out: must not exist, or be empty.
        adapter: write the adapter alone, of a run that trained one.

    Raises:
        CheckpointError: there is no such checkpoint.
        ExportError: `out` is taken or cannot be written, or there is no adapter.
        ModelError: the weights that the adapter was trained on are gone, or others.

    """
    checkpoint = find(run / "checkpoints", which)
    out = Path(out)
    trained = saved_base(checkpoint)
    if adapter and trained is None:
        raise ExportError(f"{checkpoint} holds a whole model, and no adapter: leave out --adapter")
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise ExportError(f"{out} already holds something: choose another folder; nothing was overwritten")
    draft = out.with_name(f".{out.name}.unfinished")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        if trained is not None and not adapter:
            save_model(load_model(str(checkpoint), dtype=_dtype(run), device="cpu"), draft)
        else:
            shutil.copytree(checkpoint, draft, ignore=shutil.ignore_patterns(*_STAYS))
        (draft / "README.md").write_text(_card(run, checkpoint, trained if adapter else None), encoding="utf-8")
        draft.replace(out)
    except OSError as error:
        raise ExportError(f"cannot write {out}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return checkpoint


def hub_token() -> str:
    """Return the Hub's token; raise `ExportError` if there is none."""
    from huggingface_hub import get_token

    token = get_token()
    if not token:
        raise ExportError("no token for the Hugging Face Hub: set HF_TOKEN, or log in with `hf auth login`")
    return token


def push(folder: Path, repository: str, token: str, *, private: bool = True) -> str:
    """Upload an exported folder to the model repository `repository`, made if need be; return its address.

    Raises:
        ExportError: the Hub refuses or cannot be reached.

    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi(token=token)
    try:
        made = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message="Exported by Accredit")
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise ExportError(f"cannot push to {repository}: {str(error).splitlines()[0]}; {folder} is whole") from error
    except Exception as error:  # the client's transport raises kinds of its own
        raise ExportError(f"cannot push to {repository}: {type(error).__name__}: {error}; {folder} is whole") from error
    return str(made)


def _config(run: Path) -> dict[str, Any]:
    path = run / "config.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}


def _dtype(run: Path) -> str:
    return (_config(run).get("model") or {}).get("dtype", "float32")


def _card(run: Path, checkpoint: Path, base: Base | None) -> str:
    facts, config = json.loads((checkpoint / "state.json").read_text()), _config(run)
    best = f", held-out success {facts['best_success']:.3f}" if facts["step"] == facts.get("best_step") else ""
    library = "transformers" if base is None else "peft"
    front = yaml.safe_dump({"library_name": library, "pipeline_tag": "text-generation", "tags": ["accredit"]})
    kind = "" if base is None else f"An adapter (LoRA) for the weights with SHA-256 `{base.sha256}`. "
    return (
        f"---\n{front}---\n\n# {run.resolve().name}, step {facts['step']}\n\n{kind}"
        f"Started from `{(config.get('model') or {}).get('path', 'base')}` and trained with Accredit on "
        f"`{config.get('env', 'an environment')}`{best}.\n\n```yaml\n{yaml.safe_dump(config, sort_keys=False)}```\n"
    )
