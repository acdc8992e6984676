"""Key-value caches kept per episode between turns, and the batch buffer they are decoded in.

A row's tokens lie contiguously from position 0, whatever the other rows hold, so one comparison of positions is the
whole attention mask and no padding is ever attended to.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

__all__ = ["BatchCache", "causal_mask"]


class _Layer(CacheLayerMixin):
    """One layer's view of the batch buffer; `positions_BN` says where the new tokens of each row go."""

    def __init__(self, cache: "BatchCache", index: int) -> None:
        super().__init__()
        self._cache = cache
        self._index = index

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate the whole buffer once the shapes are known."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write the new keys and values [B, H, N, D] and return those of every position in use."""
        return self._cache.write(self._index, key_states, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset for mask building; unused, because the engine passes its own mask."""
        return self._cache.extent, 0

    def get_seq_length(self) -> int:
        """Return 0: positions are passed explicitly."""
        return 0

    def get_max_length(self) -> int:
        """Return -1: the buffer grows with the batch it is made for."""
        return -1


class BatchCache(Cache):
    """Keys and values of a batch of rows with lengths of their own.

    The buffer is one tensor [L, 2, B, H, P, D]: layers, key or value, rows, heads, positions, head size.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers=[_Layer(self, index) for index in range(layers)])
        self.buffer: Tensor | None = None
        self.extent = 0
        self._positions_BN: Tensor | None = None
        self._capacity = capacity

    @classmethod
    def of(cls, rows: Sequence[Tensor | None], layers: int, capacity: int) -> "BatchCache":
        """Build the buffer from stored rows [L, 2, H, T, D] (None: an empty row) with room for `capacity` positions."""
        cache = cls(layers, capacity)
        stored = next((row for row in rows if row is not None), None)
        if stored is not None:
            shape = (layers, 2, len(rows), stored.shape[2], capacity, stored.shape[4])
            cache.buffer = torch.zeros(shape, dtype=stored.dtype, device=stored.device)
            for index, row in enumerate(rows):
                if row is not None:
                    cache.buffer[:, :, index, :, : row.shape[3]] = row
        return cache

    def place(self, positions_BN: Tensor, extent: int) -> None:
        """Say where the next tokens of each row go; attention reads positions [0, extent)."""
        self._positions_BN, self.extent = positions_BN, extent

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new keys and values and return all in use, [B, H, extent, D] each."""
        assert self._positions_BN is not None
        if self.buffer is None:
            batch, heads, _, size = keys.shape
            shape = (len(self.layers), 2, batch, heads, self._capacity, size)
            self.buffer = torch.zeros(shape, dtype=keys.dtype, device=keys.device)
        rows_B1 = torch.arange(keys.shape[0], device=keys.device)[:, None]
        self.buffer[layer, 0, rows_B1, :, self._positions_BN] = keys.transpose(1, 2)
        self.buffer[layer, 1, rows_B1, :, self._positions_BN] = values.transpose(1, 2)
        return self.buffer[layer, 0, :, :, : self.extent], self.buffer[layer, 1, :, :, : self.extent]

    def row(self, index: int, length: int) -> Tensor:
        """Return a copy of one row's first `length` positions, [L, 2, H, length, D]."""
        assert self.buffer is not None
        return self.buffer[:, :, index, :, :length].clone()

    def keep(self, rows: Tensor) -> None:
        """Keep only these rows, in this order."""
        assert self.buffer is not None
        self.buffer = self.buffer.index_select(2, rows)


def causal_mask(positions_BN: Tensor, extent: int) -> Tensor:
    """Return a bool mask [B, 1, N, extent]: a token at position p attends to positions 0..p of its own row."""
    return (torch.arange(extent, device=positions_BN.device) <= positions_BN[:, :, None])[:, None]
