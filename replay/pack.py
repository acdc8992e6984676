"""The packed form of an episode inside a page: a JSON header, then typed columns, deflated, in base64.

Layout before deflating: uint32 length of the header (little-endian), the header in UTF-8, then each column at a
multiple of 8 bytes from the start of the columns. The header's `columns` names them: [name, dtype, byte offset, count].
The header is the episode's record of `episodes.jsonl`. `page/data.js` reads it.
"""

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np

from accredit.credit.traces import StoredEpisode
from accredit.credit.traces.schema import to_record

__all__ = ["pack", "unpack"]

_ALIGN = 8


def pack(episode: StoredEpisode) -> str:
    """Return the episode as base64 text."""
    t = episode.trajectory
    lengths_T = np.array([len(token) for token in episode.token_bytes], dtype="<u4")
    columns: dict[str, np.ndarray] = {
        "token_id": t.token_ids.astype("<i4"),
        "byte_length": lengths_T,
        "bytes": np.frombuffer(b"".join(episode.token_bytes), dtype="u1"),
        "logprob": t.logprobs.astype("<f4"),
    }
    if episode.credit is not None:
        for quantity, ledger in (("credit", episode.credit.credit), ("advantage", episode.credit.advantage)):
            for name, term_T in ledger.terms.items():
                columns[f"{quantity}:{name}"] = term_T.astype("<f4")
    listed: list[tuple[str, str, int, int]] = []
    body = bytearray()
    for name, column in columns.items():
        listed.append((name, column.dtype.str.lstrip("<|"), len(body), column.size))
        body += column.tobytes()
        body += bytes(-len(body) % _ALIGN)
    record = to_record(t, episode.credit, episode.step, episode.split, "", 0)
    header = json.dumps({**record, "columns": listed}, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(struct.pack("<I", len(header)) + header + body, 9)).decode("ascii")


def unpack(text: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the columns of a packed episode: the inverse of `pack`, for tests and other readers."""
    raw = zlib.decompress(base64.b64decode(text))
    (size,) = struct.unpack_from("<I", raw)
    header = json.loads(raw[4 : 4 + size])
    body = raw[4 + size :]
    columns = {
        name: np.frombuffer(body, dtype=f"<{dtype}", count=count, offset=offset)
        for name, dtype, offset, count in header["columns"]
    }
    return header, columns
