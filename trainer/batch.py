"""From trajectories with advantages to packed batches of decision tokens.

A row is one segment of a trajectory. Only decision tokens become targets, so nothing the environment wrote can be
trained. Weights are fixed over the whole step before it is split, so the split into micro-batches changes no result.

Dimensions: T tokens of a row, or of a batch once packed; N decision tokens of a batch; U those of them that differ,
since rows that share a prefix may share decisions in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from accredit.credit import Trajectory
from accredit.sandboxes.errors import AccreditError

from .packing import Tree, common_length, pack, prefix_key

__all__ = ["Batch", "Row", "collate", "micro_batches", "rows_of", "weigh"]


class BatchError(AccreditError, ValueError):
    """Trajectories cannot be made into a batch."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One segment, ready to be scored. `targets_N` are positions in the row, each at least 1.

    `owner` numbers the trajectory within the step, and `start` is the token of it at which the row begins. `weight_N`
    and `kl_weight_N` are filled by `weigh`, which multiplies the first by `importance_N` (`trainer.importance`; 1 on
    policy).
    """

    token_ids_T: NDArray[np.int32]
    targets_N: NDArray[np.int64]
    logprobs_N: NDArray[np.float32]
    advantages_N: NDArray[np.float32]
    owner: int
    start: int
    weight_N: NDArray[np.float32]
    kl_weight_N: NDArray[np.float32]
    importance_N: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Packed rows and their decision tokens, in the order of the rows.

    `source_U` says after which packed token a decision was taken, `labels_U` which token it was, `unique_N` which of
    them a decision token of a row is. `paths` is as in `Packing`.
    """

    token_ids_T: Tensor
    positions_T: Tensor
    tree: Tree
    paths: list[NDArray[np.int64]]
    source_U: Tensor
    labels_U: Tensor
    unique_N: Tensor
    logprobs_N: Tensor
    advantages_N: Tensor
    weight_N: Tensor
    kl_weight_N: Tensor

    @property
    def labels_N(self) -> Tensor:
        """The ids of the decision tokens."""
        return self.labels_U[self.unique_N]


def rows_of(trajectories: Sequence[Trajectory], advantages: Sequence[NDArray[np.float64]]) -> list[Row]:
    """Cut trajectories into rows, one a segment that holds decision tokens.

    Args:
        trajectories: what was lived.
        advantages: float [T] a trajectory; what lies off the decision tokens must be 0.

    Raises:
        BatchError: an advantage column has another length, is not finite, or is not 0 on a token that the policy did
            not decide.

    """
    rows: list[Row] = []
    for owner, (trajectory, advantage_T) in enumerate(zip(trajectories, advantages, strict=True)):
        where = f"episode {trajectory.episode_id or owner}"
        mask_T = trajectory.credit_mask
        if advantage_T.shape != mask_T.shape:
            raise BatchError(f"{where}: advantage has shape {advantage_T.shape}, expected {mask_T.shape}")
        if not bool(np.isfinite(advantage_T).all()):
            raise BatchError(f"{where}: advantage of token {int(np.argmin(np.isfinite(advantage_T)))} is not finite")
        if bool(np.any(advantage_T[~mask_T] != 0)):
            at = int(np.argmax((advantage_T != 0) & ~mask_T))
            raise BatchError(f"{where}: token {at} was not decided by the policy but has advantage {advantage_T[at]:g}")
        ends = [segment.start for segment in trajectory.segments[1:]] + [len(trajectory)]
        for segment, end in zip(trajectory.segments, ends, strict=True):
            targets_N = np.flatnonzero(mask_T[segment.start : end])
            if not targets_N.size:
                continue
            if targets_N[0] == 0:
                raise BatchError(f"{where}: token {segment.start} was decided with nothing before it: add a prompt")
            at_N = targets_N + segment.start
            none_N = np.zeros(targets_N.size, dtype=np.float32)
            rows.append(
                Row(
                    trajectory.token_ids[segment.start : int(at_N[-1]) + 1],
                    targets_N,
                    trajectory.logprobs[at_N],
                    advantage_T[at_N].astype(np.float32),
                    owner,
                    segment.start,
                    none_N,
                    none_N,
                    np.ones(targets_N.size, dtype=np.float32),
                )
            )
    return rows


def weigh(rows: Sequence[Row], aggregation: str, constant_tokens: int = 256, keep_silent: bool = False) -> list[Row]:
    """Give every decision token its weight in the step's loss, by a named aggregation.

    Only trajectories with a learning signal (an advantage other than 0) enter the policy term, numerator and
    denominator alike; the others are dropped, or kept for the KL term alone with `keep_silent`. Without it, decision
    tokens of advantage 0 are counted and then cut, and with them what follows a row's last token that teaches: they
    have no gradient, so only the work is saved.

    - `token_mean`: 1 / (decision tokens of the step).
    - `sequence_mean`: 1 / (trajectories x decision tokens of the trajectory).
    - `constant`: 1 / (trajectories x constant_tokens).

    The policy term's weight is multiplied by the row's `importance_N`; denominators and the KL term are not.
    """
    count: dict[int, int] = {}
    loud: set[int] = set()
    for row in rows:
        count[row.owner] = count.get(row.owner, 0) + len(row.targets_N)
        if bool(np.any(row.advantages_N != 0)):
            loud.add(row.owner)
    weighed = []
    for row in rows:
        if row.owner not in loud and not keep_silent:
            continue
        weight = _weight(row.owner, loud, count, aggregation, constant_tokens) if row.owner in loud else 0.0
        kl_weight = _weight(row.owner, set(count), count, aggregation, constant_tokens)
        if not keep_silent:
            row = _cut_silent(row)
        kl_weight_N = np.full(len(row.targets_N), kl_weight, dtype=np.float32)
        weighed.append(replace(row, weight_N=row.importance_N * np.float32(weight), kl_weight_N=kl_weight_N))
    return [row for row in weighed if len(row.targets_N)]


def _cut_silent(row: Row) -> Row:
    kept_N = row.advantages_N != 0
    last = int(row.targets_N[kept_N][-1]) if kept_N.any() else 0
    return Row(
        row.token_ids_T[: last + 1],
        row.targets_N[kept_N],
        row.logprobs_N[kept_N],
        row.advantages_N[kept_N],
        row.owner,
        row.start,
        row.weight_N[kept_N],
        row.kl_weight_N[kept_N],
        row.importance_N[kept_N],
    )


def _weight(owner: int, among: set[int], count: dict[int, int], aggregation: str, constant_tokens: int) -> float:
    if aggregation == "token_mean":
        return 1.0 / sum(count[o] for o in among)
    if aggregation == "sequence_mean":
        return 1.0 / (len(among) * count[owner])
    if aggregation == "constant":
        return 1.0 / (len(among) * constant_tokens)
    raise BatchError(f"unknown aggregation '{aggregation}': expected token_mean, sequence_mean or constant")


def micro_batches(rows: Sequence[Row], most_tokens: int) -> Iterator[list[Row]]:
    """Yield rows that begin alike together, at most `most_tokens` packed tokens (a longer row comes alone)."""
    part: list[Row] = []
    size = 0
    for row in sorted(rows, key=lambda row: prefix_key(row.token_ids_T)):
        new = len(row.token_ids_T) - (common_length(part[-1].token_ids_T, row.token_ids_T) if part else 0)
        if part and size + new > most_tokens:
            yield part
            part, size, new = [], 0, len(row.token_ids_T)
        part.append(row)
        size += new
    if part:
        yield part


def collate(rows: Sequence[Row], device: torch.device | str = "cpu") -> Batch:
    """Pack rows and gather their decision tokens."""
    packing = pack([row.token_ids_T for row in rows])
    paths = list(zip(rows, packing.paths, strict=True))
    decided_N = np.concatenate([path[row.targets_N] for row, path in paths])
    _, first_U, unique_N = np.unique(decided_N, return_index=True, return_inverse=True)
    source_N = np.concatenate([path[row.targets_N - 1] for row, path in paths])

    def moved(array: NDArray) -> Tensor:
        return torch.as_tensor(array, device=device)

    return Batch(
        token_ids_T=moved(packing.token_ids_T),
        positions_T=moved(packing.positions_T),
        tree=packing.tree,
        paths=packing.paths,
        source_U=moved(source_N[first_U]),
        labels_U=moved(packing.token_ids_T[decided_N[first_U]]),
        unique_N=moved(unique_N),
        logprobs_N=moved(np.concatenate([row.logprobs_N for row in rows])),
        advantages_N=moved(np.concatenate([row.advantages_N for row in rows])),
        weight_N=moved(np.concatenate([row.weight_N for row in rows])),
        kl_weight_N=moved(np.concatenate([row.kl_weight_N for row in rows])),
    )
