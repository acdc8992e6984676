"""Checkpoints: written atomically, resumed to the same bits on CPU.

A checkpoint is a folder `step-000040` that appears whole or not at all. It holds a Hugging Face model that
`load_model` reads, or the adapter alone where one is trained, the optimizer's state and the step. There is no random
state to keep: every seed of a run is derived from the run's seed, the step and the episode's place in it. The link
`best` beside them names the checkpoint with the best held-out success. What a kill left half written or half deleted
has a name that begins with a dot.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from accredit.agents.models import Base, LoadedModel, ModelError, save_model, saved_base
from accredit.sandboxes.errors import AccreditError

__all__ = ["CheckpointError", "find", "latest", "load_into", "save", "sweep", "tidy"]

_log = logging.getLogger(__name__)
_NAME = re.compile(r"step-\d{6}$")


class CheckpointError(AccreditError, RuntimeError):
    """A checkpoint cannot be written or does not fit."""


def save(
    folder: Path,
    step: int,
    loaded: LoadedModel,
    optimizer_state: dict[str, Any],
    facts: dict[str, Any],
    beside: Callable[[Path], None] | None = None,
) -> Path:
    """Write the checkpoint of `step` under `folder`; `facts` are JSON values kept beside it.

    `beside` writes more files into the folder that it gets.

    Raises:
        CheckpointError: it cannot be written; those before it are whole.

    """
    target = folder / f"step-{step:06d}"
    draft = folder / f".draft-{step:06d}"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        save_model(loaded, draft)
        torch.save(optimizer_state, draft / "optimizer.pt")
        (draft / "state.json").write_text(json.dumps({"step": step, **facts}, indent=1) + "\n")
        if beside is not None:
            beside(draft)
        for path in [*draft.iterdir(), draft]:
            _sync(path)
        if target.exists():
            _delete(target)
        draft.rename(target)
        _sync(folder)
    except Exception as error:  # safetensors, torch and the file system each raise their own kind
        shutil.rmtree(draft, ignore_errors=True)
        free_mb = shutil.disk_usage(folder).free / 2**20 if folder.exists() else 0
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"cannot write the checkpoint of step {step} to {folder}: {first}. {free_mb:,.0f} MB are free there; the "
            "checkpoints before it are whole: make room, then go on with --resume"
        ) from error
    return target


def latest(folder: Path) -> Path | None:
    """Return the newest whole checkpoint under `folder`."""
    return next(reversed(_kept(folder).values()), None)


def load_into(checkpoint: Path, loaded: LoadedModel, optimizer: Any) -> dict[str, Any]:
    """Load weights and optimizer state in place; return the facts that were kept beside them.

    Raises:
        CheckpointError: the weights do not fit the model, or the adapter not the base.

    """
    if loaded.base is None:
        _load_weights(checkpoint, loaded.model)
    else:
        _load_adapter(checkpoint, loaded.model, loaded.base)
    optimizer.load_state_dict(torch.load(checkpoint / "optimizer.pt", map_location="cpu", weights_only=True))
    return json.loads((checkpoint / "state.json").read_text())


def _load_adapter(checkpoint: Path, model: Any, base: Base) -> None:
    from accredit.agents.lora import load_into

    try:
        saved = saved_base(checkpoint)
        if saved is None or saved.sha256 != base.sha256:
            raise CheckpointError(
                f"{checkpoint} was trained on other weights than those at {base.path}: expected SHA-256 "
                f"{saved.sha256[:12] if saved else 'of a base'}, found {base.sha256[:12]}. Put the weights back that "
                "the run started from, or start a run of another name"
            )
        load_into(model, checkpoint)
    except ModelError as error:
        raise CheckpointError(f"{checkpoint} does not fit the model: {error}") from error


def _load_weights(checkpoint: Path, model: Any) -> None:
    from safetensors.torch import load_file

    state = load_file(checkpoint / "model.safetensors")
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    if unexpected or set(missing) - tied:
        raise CheckpointError(
            f"{checkpoint} does not fit the model: missing {sorted(set(missing) - tied)[:3]}, unknown {unexpected[:3]}"
        )
    model.tie_weights()


def tidy(folder: Path, keep: int, best: int) -> None:
    """Let the link `best` name that step, and delete all checkpoints but it and the newest `keep`."""
    point_best(folder, best)
    prune(folder, keep, {best})


def prune(folder: Path, keep: int, also: set[int]) -> None:
    """Delete all but the newest `keep` checkpoints and the steps in `also`."""
    for step, path in list(_kept(folder).items())[:-keep]:
        if step not in also:
            _delete(path)


def point_best(folder: Path, step: int) -> None:
    """Let the link `best` name the checkpoint of `step`, if it is kept."""
    if not (folder / f"step-{step:06d}").is_dir():
        return
    draft = folder / ".best"
    try:
        draft.unlink(missing_ok=True)
        draft.symlink_to(f"step-{step:06d}")
        draft.replace(folder / "best")
    except OSError as error:  # a file system without links
        _log.warning("no link %s to step %d: %s", folder / "best", step, error)


def sweep(folder: Path) -> None:
    """Delete what a kill left half written or half deleted."""
    for path in [*folder.glob(".draft-*"), *folder.glob(".gone-*")]:
        shutil.rmtree(path, ignore_errors=True)


def find(folder: Path, which: str) -> Path:
    """Return the checkpoint `which` of those under `folder`: 'last', 'best', or a step's number.

    Raises:
        CheckpointError: it is not there; names those that are.

    """
    kept = _kept(folder)
    if not kept:
        raise CheckpointError(f"{folder} holds no checkpoint: expected step-000010 or the like")
    steps = list(kept)
    if which == "last":
        return kept[steps[-1]]
    if which == "best":
        facts = json.loads((kept[steps[-1]] / "state.json").read_text())
        step, success = facts["best_step"], facts["best_success"]
        if step in kept:
            return kept[step]
        known = "no evaluation was scored" if success < 0 else f"held-out success was best after step {step}"
        raise CheckpointError(
            f"no checkpoint of {folder} is the best: {known} ({success:.3f}"
            f"{', the model that the run started from' if step == 0 else ''}); kept are steps {steps}"
        )
    if not which.isdecimal():
        raise CheckpointError(f"there is no checkpoint '{which}': expected last, best, or a step of {steps}")
    if int(which) not in kept:
        raise CheckpointError(f"step {which} has no checkpoint in {folder}: kept are steps {steps} (save.keep, best)")
    return kept[int(which)]


def _kept(folder: Path) -> dict[int, Path]:
    """Return the whole checkpoints under `folder` by step, the oldest first."""
    found = sorted(path for path in folder.glob("step-*") if _NAME.search(path.name))
    return {int(path.name.removeprefix("step-")): path for path in found}


def _delete(path: Path) -> None:
    """Delete a checkpoint, so that a kill never leaves half of it under its name."""
    gone = path.with_name(f".gone-{path.name}")
    shutil.rmtree(gone, ignore_errors=True)
    path.rename(gone)
    shutil.rmtree(gone)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
