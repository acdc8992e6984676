"""Which rows of a run's index fit a filter, kept up to date while the run is written."""

import numpy as np
from numpy.typing import NDArray

from .reader import TraceReader
from .schema import IndexRow
from .table import IndexTable
from .where import Condition, parse_where

__all__ = ["ChosenRows"]


class ChosenRows:
    """The rows of `index` that fit `where`. Call `refresh` after that of the index; every row is judged once.

    Raises:
        TraceError: the filter cannot be read.

    """

    def __init__(self, index: IndexTable, where: str) -> None:
        self.where = where
        self.fitting_N: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        """Whether each row of the index fits. Of rows of one step and id only the last can."""
        self.taken_back = 0
        """How often a row that fit was written again and does not fit any more."""
        self._conditions = parse_where(where)
        self._index = index
        self._generation = index.generation
        self._last: dict[tuple[float, str], int] = {}
        self.refresh()

    def refresh(self) -> None:
        """Judge the rows that are new."""
        index = self._index
        if index.generation != self._generation:
            self._generation, self._last = index.generation, {}
            self.fitting_N = self.fitting_N[:0]
        before = len(self.fitting_N)
        if before == len(index):
            return
        cursor = index.cursor - (len(index) - before)
        self.fitting_N = np.concatenate([self.fitting_N, self._judged(cursor, before)])
        steps, ids = index.numbers("step", cursor), index.codes("episode_id", cursor)
        assert steps is not None and ids is not None  # every row has both
        names = [ids.values[code] for code in ids.codes_N.tolist()]
        for place, key in enumerate(zip(steps.tolist(), names, strict=True), before):
            earlier = self._last.get(key)
            if earlier is not None:
                self.taken_back += bool(self.fitting_N[earlier] and not self.fitting_N[place])
                self.fitting_N[earlier] = False
            self._last[key] = place

    def fits(self, row: IndexRow) -> bool:
        """Whether one row fits, by itself."""
        return TraceReader(self._index.folder).fits(row, self._conditions)

    def _judged(self, cursor: int, before: int) -> NDArray[np.bool_]:
        found_N = np.ones(len(self._index) - before, dtype=np.bool_)
        unknown: list[Condition] = []
        for condition in self._conditions:
            holds_N = self._of_column(condition, cursor)
            if holds_N is None:
                unknown.append(condition)
            else:
                found_N &= holds_N
        if unknown and found_N.any():
            reader = TraceReader(self._index.folder)
            for place in np.flatnonzero(found_N).tolist():
                found_N[place] = reader.fits(self._index.row(before + place), unknown)
        return found_N

    def _of_column(self, condition: Condition, cursor: int) -> NDArray[np.bool_] | None:
        """Whether a condition holds for each row after `cursor`; None where the index does not say."""
        name = condition.column
        if name is None:
            return None
        if condition.is_number:
            values_N = self._index.numbers(name, cursor)
            if values_N is None:
                return None
            # NaN, which alone is unlike itself, stands for what is not there.
            return np.array([condition.of_value(value if value == value else None) for value in values_N.tolist()])
        coded = self._index.codes(name, cursor)
        if coded is None:
            return None
        return np.array([condition.of_value(value) for value in coded.values], dtype=np.bool_)[coded.codes_N]
