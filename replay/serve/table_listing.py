"""The listing of a run as one block, straight from the columns of its index.

`accredit.replay.listing` has the layout, and makes the same block of episodes at hand.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from accredit.credit.traces.table import IndexTable
from accredit.replay.listing import CODES, FIGURES
from accredit.replay.pack import Columns, block

__all__ = ["listing_of_table"]

_LEVEL = 1  # of zlib: the reader sits on this machine


def listing_of_table(index: IndexTable, cursor: int = 0, further: Mapping[str, Any] | None = None) -> bytes:
    """Return the rows of `index` after `cursor` as a listing block, without an object a row.

    `further` fields are added to its header.
    """
    lengths_N, joined = index.ids(cursor)
    columns: Columns = {"id_length": lengths_N.astype("<u4"), "id": np.frombuffer(joined, dtype="u1")}
    tables: dict[str, list[Any]] = {}
    for name in ("step", "turns", "tokens", "charges", "trained"):
        found = index.numbers(name, cursor)
        if found is not None:
            columns[name] = found.astype("<i4")
    for name in ("reward", *FIGURES):
        found = index.numbers(name, cursor)
        if found is not None:
            columns[name] = found.astype("<f4")
    for name, stored in {**CODES, "tools": "tools", "errors": "errors"}.items():
        coded = index.codes(stored, cursor)
        if coded is not None:
            columns[name], tables[name] = coded.codes_N.astype("<i4"), coded.values
    return block({"rows": len(lengths_N), "next": index.cursor, "tables": tables, **(further or {})}, columns, _LEVEL)
