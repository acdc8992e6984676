"""Fitting a process reward model: cross-entropy between its scores and the labels, over labelled steps.

Labels may be soft (a state's mean reward); the loss is least where the score is the label. All labelled steps weigh
the same. Seeds are passed in; on a CPU the same seed gives the same weights.
"""

from collections.abc import Sequence

import numpy as np
import torch

from .labels import LabelError, Labelled
from .model import ProcessRewardModel, StepRow, step_rows

__all__ = ["fit"]


def fit(
    model: ProcessRewardModel,
    labelled: Sequence[Labelled],
    *,
    epochs: int = 3,
    lr: float = 1e-4,
    batch: int = 32,
    seed: int = 0,
    grad_clip: float = 1.0,
) -> list[float]:
    """Train body and head in place.

    Args:
        model: what learns.
        labelled: what it learns from; steps without a label are skipped.
        epochs: passes over the rows.
        lr: learning rate of AdamW.
        batch: rows (segments) an optimizer step.
        seed: of the order of rows, and of dropout.
        grad_clip: largest gradient norm.

    Returns:
        The mean loss of each epoch, in nats a step.

    Raises:
        LabelError: nothing is labelled.

    """
    rows: list[tuple[StepRow, np.ndarray]] = []
    for trajectory, steps, labels_S in labelled:
        for row in step_rows(trajectory, steps):
            known = ~np.isnan(labels_S[row.steps_S])
            if known.any():
                kept = StepRow(row.token_ids_T, row.steps_S[known], row.at_S[known])
                rows.append((kept, labels_S[kept.steps_S]))
    if not rows:
        raise LabelError(
            f"none of the {len(labelled)} trajectories has a labelled step: there is nothing to learn from"
        )
    device = model.head.weight.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)  # of dropout, where the body has any
        losses = _descend(model, rows, epochs, lr, batch, seed, grad_clip)
    model.eval()
    return losses


def _descend(
    model: ProcessRewardModel,
    rows: Sequence[tuple[StepRow, np.ndarray]],
    epochs: int,
    lr: float,
    batch: int,
    seed: int,
    grad_clip: float,
) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    shuffle = np.random.default_rng(seed)
    losses = []
    for _ in range(epochs):
        total, count = 0.0, 0
        order = shuffle.permutation(len(rows))
        model.train()
        for start in range(0, len(rows), batch):
            chosen = [rows[index] for index in order[start : start + batch]]
            labels_S = np.concatenate([labels for _, labels in chosen]).astype(np.float32)
            logits_S = model([row for row, _ in chosen])
            targets_S = torch.as_tensor(labels_S, device=logits_S.device)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits_S, targets_S)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
            optimizer.step()
            total, count = total + float(loss.detach()) * len(labels_S), count + len(labels_S)
        losses.append(total / count)
    return losses
