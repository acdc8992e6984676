"""Trace files: every episode of a run, on disk, readable without this package.

A run's `traces/` folder holds `episodes.jsonl` (one object an episode), `index.jsonl` (one short line an episode) and
`tokens-<step>.parquet` (the token columns of a step). Append-only. Needs pyarrow, which `accredit.credit` itself does
not import. It does not decode or encode text: the bytes of each token are stored as they were given.
"""

from .reader import StoredEpisode, TraceReader, open_run
from .schema import SCHEMA_VERSION, IndexRow
from .writer import TraceWriter

__all__ = ["SCHEMA_VERSION", "IndexRow", "StoredEpisode", "TraceReader", "TraceWriter", "open_run"]
