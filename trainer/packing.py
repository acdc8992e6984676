"""Rows of tokens packed into one, each common prefix once.

Rows that begin alike (members of a group behind one prompt, pairs forked late) form a prefix tree. Its *segments* are
runs of tokens between two branchings, laid end to end without padding; a row is the *path* of segments from a root. A
token may attend to its path and nothing else, and keeps the position that it has in its row, so a packed forward and
backward pass computes what the rows one by one would.

Nothing here knows of models: `trainer.tree_attention` attends along the paths.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Packing", "Tree", "common_length", "pack", "prefix_key"]


@dataclass(frozen=True, slots=True)
class Tree:
    """Segments in the order in which they lie, a parent before its children; `None` is the parent of a root."""

    lengths: tuple[int, ...]
    parents: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Packed rows. `paths` has an int64 array a row: where each of its tokens lies among the T packed ones."""

    token_ids_T: NDArray[np.int64]
    positions_T: NDArray[np.int64]
    tree: Tree
    paths: list[NDArray[np.int64]]


def pack(rows: Sequence[NDArray[np.int32]]) -> Packing:
    """Pack at least one row, none of them empty; `paths` is in the order of `rows`."""
    order = sorted(range(len(rows)), key=lambda row: prefix_key(rows[row]))
    shared = [common_length(rows[a], rows[b]) for a, b in pairwise(order)]
    ids: list[NDArray] = []
    positions: list[NDArray] = []
    parents: list[int | None] = []
    segment_paths: list[NDArray[np.int64]] = []
    paths: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)] * len(rows)
    start = 0
    # Rows order[low:high] agree at least up to `depth`, where the path of `parent` ends.
    waiting: list[tuple[int, int, int, int | None]] = [(0, len(rows), 0, None)]
    while waiting:
        low, high, depth, parent = waiting.pop()
        first = rows[order[low]]
        common = min(shared[low : high - 1], default=len(first))
        cuts = [low, *(at + 1 for at in range(low, high - 1) if shared[at] == common), high]
        if common > depth:
            before = segment_paths[parent] if parent is not None else np.zeros(0, dtype=np.int64)
            segment_paths.append(np.concatenate([before, np.arange(start, start + common - depth)]))
            ids.append(first[depth:common])
            positions.append(np.arange(depth, common))
            parents.append(parent)
            start, depth, parent = start + common - depth, common, len(parents) - 1
        if high - low == 1:
            assert parent is not None
            paths[order[low]] = segment_paths[parent]
        else:
            waiting += [(a, b, depth, parent) for a, b in reversed(list(pairwise(cuts)))]
    tree = Tree(tuple(len(run) for run in ids), tuple(parents))
    return Packing(np.concatenate(ids).astype(np.int64), np.concatenate(positions), tree, paths)


def prefix_key(token_ids_T: NDArray[np.int32]) -> bytes:
    """Return what sorts rows so that those with the longest common prefix are neighbours."""
    return token_ids_T.astype(">u4").tobytes()


def common_length(a_T: NDArray[np.int32], b_T: NDArray[np.int32]) -> int:
    """Return how many tokens two rows have in common from the start."""
    size = min(len(a_T), len(b_T))
    differs = np.flatnonzero(a_T[:size] != b_T[:size])
    return int(differs[0]) if differs.size else size
