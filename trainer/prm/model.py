"""ProcessRewardModel: the body of a `transformers` model and a linear head that reads its hidden states.

The score of a step is sigmoid(head(hidden state of the step's last token)): what the prefix that ends there is worth,
in [0, 1]. The body sees what the policy saw: a step of a later segment is scored within its segment alone.

Dimensions: R rows (segments that hold a step's end), T padded tokens, S steps, D width of the hidden states.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from accredit.credit import AccreditError, Trajectory
from accredit.credit.process import Scorer, Steps, step_count, step_ends

__all__ = ["PRMError", "ProcessRewardModel", "StepRow", "step_rows"]

_FORMAT = 1


class PRMError(AccreditError, RuntimeError):
    """A folder that holds no process reward model."""


class StepRow(NamedTuple):
    """One segment of a trajectory up to its last step: ids [T], and which steps end where in it (intp [S] each)."""

    token_ids_T: NDArray[np.int32]
    steps_S: NDArray[np.intp]
    at_S: NDArray[np.intp]


def step_rows(trajectory: Trajectory, steps: Steps) -> list[StepRow]:
    """Cut a trajectory into its segments that hold the end of a step."""
    ends_S = step_ends(steps)
    borders = [segment.start for segment in trajectory.segments] + [len(trajectory)]
    rows = []
    for start, end in pairwise(borders):
        inside = np.flatnonzero((ends_S >= start) & (ends_S < end))
        if len(inside):
            at_S = ends_S[inside]
            rows.append(StepRow(trajectory.token_ids[start : int(at_S[-1]) + 1], inside, at_S - start))
    return rows


class ProcessRewardModel(nn.Module):
    """Scores steps. Made from any `transformers` model; a language model's head is left off."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.body = model.base_model
        self.head = nn.Linear(self.body.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)  # says 1/2 of everything until it has learnt
        nn.init.zeros_(self.head.bias)

    def forward(self, rows: Sequence[StepRow]) -> Tensor:
        """Return the logits of all steps of `rows`, float32 [S], row after row."""
        device = self.head.weight.device
        ids_RT = np.zeros((len(rows), max(len(row.token_ids_T) for row in rows)), dtype=np.int64)
        for index, row in enumerate(rows):
            ids_RT[index, : len(row.token_ids_T)] = row.token_ids_T  # padded on the right: causal, so never seen
        row_S = torch.as_tensor(np.repeat(np.arange(len(rows)), [len(row.at_S) for row in rows]), device=device)
        at_S = torch.as_tensor(np.concatenate([row.at_S for row in rows]), device=device)
        hidden_RTD = self.body(input_ids=torch.as_tensor(ids_RT, device=device), use_cache=False).last_hidden_state
        return self.head(hidden_RTD[row_S, at_S].to(self.head.weight.dtype))[:, 0].float()

    @torch.no_grad()
    def score(self, trajectory: Trajectory, steps: Steps) -> NDArray[np.float64]:
        """Return float64 [S] in [0, 1], what the prefix up to the end of each step is worth."""
        scores_S = np.full(step_count(steps), np.nan)
        rows = step_rows(trajectory, steps)
        if rows:
            self.eval()
            found = torch.sigmoid(self(rows)).double().cpu().numpy()
            scores_S[np.concatenate([row.steps_S for row in rows])] = found
        return scores_S

    def scorer(self) -> Scorer:
        """Return the model as a scorer of `accredit.credit.process.ProcessReward`."""
        return self.score

    def save(self, folder: Path | str) -> None:
        """Write a folder: the body as Hugging Face does, `head.safetensors`, and `prm.json`."""
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.body.save_pretrained(folder)
        save_file(
            {name: value.contiguous() for name, value in self.head.state_dict().items()}, folder / "head.safetensors"
        )
        (folder / "prm.json").write_text(json.dumps({"format": _FORMAT}) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str, device: str = "cpu") -> Self:
        """Read a folder that `save` wrote.

        Raises:
            PRMError: it holds no process reward model, a part of one, or one of a newer format.

        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file
        from transformers import AutoModel

        folder = Path(folder)
        if not (folder / "prm.json").is_file():
            raise PRMError(
                f"{folder} holds no process reward model: expected prm.json, as ProcessRewardModel.save writes"
            )
        try:
            found = json.loads((folder / "prm.json").read_text(encoding="utf-8")).get("format")
        except (ValueError, AttributeError) as error:
            raise PRMError(f"{folder / 'prm.json'} is torn ({error}): save the model again") from error
        if found != _FORMAT:
            raise PRMError(f"{folder} has format {found}, expected {_FORMAT}: upgrade Accredit to read it")
        try:
            made = cls(AutoModel.from_pretrained(str(folder), local_files_only=True))
            made.head.load_state_dict(load_file(folder / "head.safetensors"))
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise PRMError(f"{folder} does not hold a whole process reward model: {error}") from error
        return made.to(device).eval()
