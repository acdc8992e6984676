"""Checkpoints: written atomically, resumed to the same bits on CPU.

A checkpoint is a folder `step-000040` that appears whole or not at all. It holds a Hugging Face model that
`load_model` reads, the optimizer's state and the step. There is no random state to keep: every seed of a run is derived
from the run's seed, the step and the episode's place in it.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch

from accredit.agents.models import LoadedModel, save_model
from accredit.sandboxes.errors import AccreditError

__all__ = ["CheckpointError", "latest", "load_into", "prune", "save"]

_NAME = re.compile(r"step-(\d{6})$")


class CheckpointError(AccreditError, RuntimeError):
    """A checkpoint cannot be written or does not fit."""


def save(folder: Path, step: int, loaded: LoadedModel, optimizer: Any, facts: dict[str, Any]) -> Path:
    """Write the checkpoint of `step` under `folder`; `facts` are JSON values kept beside it."""
    target = folder / f"step-{step:06d}"
    draft = folder / f".draft-{step:06d}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    save_model(loaded, draft)
    torch.save(optimizer.state_dict(), draft / "optimizer.pt")
    (draft / "state.json").write_text(json.dumps({"step": step, **facts}, indent=1) + "\n")
    for path in [*draft.iterdir(), draft]:
        _sync(path)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    _sync(folder)
    return target


def latest(folder: Path) -> Path | None:
    """Return the newest whole checkpoint under `folder`."""
    found = [path for path in folder.glob("step-*") if _NAME.search(path.name)]
    return max(found, key=lambda path: path.name, default=None)


def load_into(checkpoint: Path, model: Any, optimizer: Any) -> dict[str, Any]:
    """Load weights and optimizer state in place; return the facts that were kept beside them."""
    from safetensors.torch import load_file

    state = load_file(checkpoint / "model.safetensors")
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    if unexpected or set(missing) - tied:
        raise CheckpointError(
            f"{checkpoint} does not fit the model: missing {sorted(set(missing) - tied)[:3]}, unknown {unexpected[:3]}"
        )
    model.tie_weights()
    optimizer.load_state_dict(torch.load(checkpoint / "optimizer.pt", map_location="cpu", weights_only=True))
    return json.loads((checkpoint / "state.json").read_text())


def prune(folder: Path, keep: int, also: set[int]) -> None:
    """Delete all but the newest `keep` checkpoints and the steps in `also`."""
    found = sorted(path for path in folder.glob("step-*") if _NAME.search(path.name))
    for path in found[:-keep]:
        match = _NAME.search(path.name)
        if match and int(match[1]) not in also:
            shutil.rmtree(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
