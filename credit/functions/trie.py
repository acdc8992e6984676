"""The token trie of runs that leave one state: where the sampled tokens of several rollouts part.

Compares ids only, whole stretches at a time: the cost is linear in the shared tokens, whatever the vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SharedPrefix", "shared_prefixes"]


class SharedPrefix(NamedTuple):
    """A stretch of the trie that at least two runs walk together.

    `members` are the indices of those runs. They become one set once `first` tokens are known (0 for all runs together)
    and part after `last` tokens: offset `last` is the first at which they differ or one of them ends.
    """

    members: tuple[int, ...]
    first: int
    last: int


def shared_prefixes(runs: Sequence[NDArray[np.int32]]) -> list[SharedPrefix]:
    """Return every shared stretch of the trie of `runs` (ragged list of int32 [N]), parents before children."""
    found: list[SharedPrefix] = []
    waiting = [(tuple(range(len(runs))), 0)] if len(runs) > 1 else []
    while waiting:
        members, first = waiting.pop()
        last = _common_length([runs[m] for m in members], first)
        found.append(SharedPrefix(members, first, last))
        branches: dict[int, list[int]] = {}
        for member in members:
            if len(runs[member]) > last:
                branches.setdefault(int(runs[member][last]), []).append(member)
        waiting.extend((tuple(branch), last + 1) for branch in branches.values() if len(branch) > 1)
    return found


def _common_length(runs: Sequence[NDArray[np.int32]], known: int) -> int:
    """Return the length of the longest common prefix of `runs`, of which `known` tokens are known to agree."""
    length = min(map(len, runs))
    for other in runs[1:]:
        if length == known:
            break
        differs = runs[0][known:length] != other[known:length]
        at = int(differs.argmax())
        if differs[at]:
            length = known + at
    return length
