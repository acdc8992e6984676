"""The listing of a run as one block, straight from the columns of its index.

`accredit.replay.listing` has the layout, and makes the same block of episodes at hand.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit.traces.table import IndexTable
from accredit.replay.listing import CODES, FIGURES
from accredit.replay.pack import Columns, block

__all__ = ["listing_of_table"]

_LEVEL = 1  # of zlib: the reader sits on this machine


def listing_of_table(
    index: IndexTable,
    cursor: int = 0,
    further: Mapping[str, Any] | None = None,
    fitting_N: NDArray[np.bool_] | None = None,
) -> bytes:
    """Return the rows of `index` after `cursor` as a listing block, without an object a row.

    `further` fields are added to its header. `fitting_N`: for each row of the whole index whether to list it; default
    all.
    """
    lengths_N, joined = index.ids(cursor)
    total = len(lengths_N)
    kept_N = slice(None) if fitting_N is None else fitting_N[len(fitting_N) - total :]
    letters = np.frombuffer(joined, dtype="u1")
    if not isinstance(kept_N, slice):
        letters = letters[np.repeat(kept_N, lengths_N)]
    columns: Columns = {"id_length": lengths_N.astype("<u4")[kept_N], "id": letters}
    tables: dict[str, list[Any]] = {}
    for name in ("step", "turns", "tokens", "charges", "trained"):
        found = index.numbers(name, cursor)
        if found is not None:
            columns[name] = found.astype("<i4")[kept_N]
    for name in ("reward", *FIGURES):
        found = index.numbers(name, cursor)
        if found is not None:
            columns[name] = found.astype("<f4")[kept_N]
    for name, stored in {**CODES, "tools": "tools", "errors": "errors"}.items():
        coded = index.codes(stored, cursor)
        if coded is not None:
            codes_N, tables[name] = coded.codes_N[kept_N], coded.values
            if not isinstance(kept_N, slice):
                used, codes_N = np.unique(codes_N, return_inverse=True)
                tables[name] = [coded.values[place] for place in used.tolist()]
            columns[name] = codes_N.astype("<i4")
    header = {"rows": len(columns["id_length"]), "next": index.cursor, "tables": tables, **(further or {})}
    return block(header, columns, _LEVEL)
