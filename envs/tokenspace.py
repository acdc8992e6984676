"""The Gymnasium space of token sequences: what `RecordCredit` observes and takes."""

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

__all__ = ["TokenSpace"]


class TokenSpace(gymnasium.Space[NDArray[np.int32]]):
    """Every one-dimensional integer array with ids in [0, vocab_size), the empty one among them.

    A `Decision` is judged by its ids. Samples are int32 and hold at most `sample_length` ids.
    """

    def __init__(self, vocab_size: int, sample_length: int = 16, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(dtype=np.int32, seed=seed)
        self.vocab_size = vocab_size
        self.sample_length = sample_length

    @property
    def is_np_flattenable(self) -> bool:
        """Sequences of any length have no array form of one shape."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> NDArray[np.int32]:
        """Return a short random sequence. There is nothing to mask: `mask` and `probability` must be None."""
        if mask is not None or probability is not None:
            raise ValueError("TokenSpace.sample takes neither mask nor probability: sequences have no fixed length")
        count = int(self.np_random.integers(0, self.sample_length + 1))
        return self.np_random.integers(0, self.vocab_size, count).astype(np.int32)

    def contains(self, x: Any) -> bool:
        """Whether `x`, or its ids, is a sequence of ids of this vocabulary."""
        ids = getattr(x, "ids", x)
        if not isinstance(ids, (np.ndarray, list, tuple)):
            return False
        ids_N = np.asarray(ids)
        if ids_N.ndim != 1 or (ids_N.size and not np.issubdtype(ids_N.dtype, np.integer)):
            return False
        return not ids_N.size or (int(ids_N.min()) >= 0 and int(ids_N.max()) < self.vocab_size)

    def to_jsonable(self, sample_n: Iterable[NDArray[np.int32]]) -> list[Any]:
        """Return each sample as a list of integers."""
        return [sample.tolist() for sample in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[NDArray[np.int32]]:
        """Return the samples that `to_jsonable` was given."""
        return [np.asarray(sample, dtype=np.int32) for sample in sample_n]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSpace) and self.vocab_size == other.vocab_size

    def __hash__(self) -> int:
        return hash((TokenSpace, self.vocab_size))

    def __repr__(self) -> str:
        return f"TokenSpace({self.vocab_size})"
