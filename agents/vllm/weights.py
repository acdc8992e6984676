"""Weights on their way to the engine: a Hugging Face folder, written whole at every update.

Of a model with an adapter the engine gets the rest once, at its start, and then the adapter alone.

The output head is always written beside the embeddings, also where the model ties them, and the configuration says so:
a vLLM that takes over weights in place may keep a copy of a tied head and leave it as it was.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging as progress

from accredit.agents.models import has_adapter

__all__ = ["Outbox", "export"]


@torch.no_grad()
def export(model: Any, folder: Path) -> None:
    """Write a `transformers` model to `folder` with a head of its own, and without an adapter that it may have."""
    head = model.get_output_embeddings()
    name = next(name for name, module in model.named_modules() if module is head)
    state = dict(model.state_dict())
    shell = model
    if has_adapter(model):
        from accredit.agents.lora import base_state

        state = base_state(model)
        with torch.device("meta"):
            shell = type(model)(model.config)  # knows how a model without an adapter is written
    state[f"{name}.weight"] = head.weight.detach().clone()
    tied, bars = model.config.tie_word_embeddings, progress.is_progress_bar_enabled()
    shell.config.tie_word_embeddings = False
    progress.disable_progress_bar()
    try:
        shell.save_pretrained(folder, state_dict=state)
    finally:
        shell.config.tie_word_embeddings = tied
        if bars:
            progress.enable_progress_bar()


class Outbox:
    """A folder for exports, one at a time: writing the next deletes those before it but the newest."""

    def __init__(self, where: str | None) -> None:
        if where is not None:
            Path(where).mkdir(parents=True, exist_ok=True)
        self._path = Path(tempfile.mkdtemp(prefix="accredit-weights-", dir=where))
        self._path.chmod(0o755)  # a server may run as another user
        self._count = 0

    def put(self, model: Any, adapter: bool = False) -> Path:
        """Write the weights, or the adapter alone, and return their folder."""
        for old in self._path.glob("*"):
            if old.name != f"{self._count:06d}":
                shutil.rmtree(old)
        self._count += 1
        folder = self._path / f"{self._count:06d}"
        if adapter:
            from accredit.agents.lora import save

            save(model, folder)
        else:
            export(model, folder)
        return folder

    def close(self) -> None:
        """Delete what is left."""
        shutil.rmtree(self._path, ignore_errors=True)
