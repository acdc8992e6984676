"""How the rows of an optimizer step are dealt to the processes of a run.

All hold all rows, weighed over the whole step, and cut them alike; so the loss is a sum over micro-batches that does
not depend on who computes which, and there is no mean of means. Weights come together in every pass, so all make the
same number of passes, of about the same size; one that has no rows left makes a pass of no weight.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .batch import Row, micro_batches
from .packing import common_length, prefix_key

__all__ = ["deal", "packed_tokens", "weightless"]


def deal(rows: Sequence[Row], most_tokens: int, rank: int, world: int) -> list[list[Row] | None]:
    """Return the micro-batches of process `rank`, None where it has none while others have.

    They hold at most `most_tokens` packed tokens, and fewer where that gives every process work.
    """
    if world == 1:
        return list(micro_batches(rows, most_tokens))
    sizes = packed_tokens(rows)
    rounds = -(-sum(sizes) // (most_tokens * world))
    most = min(most_tokens, -(-sum(sizes) // (rounds * world)))
    parts = list(micro_batches(rows, most))
    while len(parts) > rounds * world and most < most_tokens:  # rows do not come out even
        most = min(most_tokens, most + most // 8 + 1)
        parts = list(micro_batches(rows, most))
    parts.sort(key=lambda part: -sum(packed_tokens(part)))  # stable: the same order everywhere
    return [parts[at + rank] if at + rank < len(parts) else None for at in range(0, len(parts), world)]


def weightless(rows: Sequence[Row]) -> list[Row]:
    """Return the shortest row there is, cut after its first decision, without weight: what an idle process computes."""
    row = min(rows, key=lambda row: int(row.targets_N[0]))
    none_N = np.zeros(1, dtype=np.float32)
    first = int(row.targets_N[0])
    return [
        replace(
            row,
            token_ids_T=row.token_ids_T[: first + 1],
            targets_N=row.targets_N[:1],
            logprobs_N=row.logprobs_N[:1],
            advantages_N=none_N,
            weight_N=none_N,
            kl_weight_N=none_N,
            importance_N=row.importance_N[:1],
        )
    ]


def packed_tokens(rows: Sequence[Row]) -> list[int]:
    """Return how many tokens each row adds, packed behind the one before it, in `micro_batches`' order."""
    sizes: list[int] = []
    before: Row | None = None
    for row in sorted(rows, key=lambda row: prefix_key(row.token_ids_T)):
        shared = common_length(before.token_ids_T, row.token_ids_T) if before is not None else 0
        sizes.append(len(row.token_ids_T) - shared)
        before = row
    return sizes
