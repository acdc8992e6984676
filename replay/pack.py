"""Blocks: the form in which data reaches the page, a JSON header and typed columns, deflated (zlib).

Layout before deflating: uint32 length of the header (little-endian), the header in UTF-8, then each column at a
multiple of 8 bytes from the start of the columns. The header's `columns` names them: [name, dtype, byte offset, count].
A column of 4-byte numbers lies in planes: the lowest byte of all its numbers first, then the next (it deflates better).
A page that is one file holds blocks in base64; a server sends the same bytes. `page/blocks.js` reads them.
"""

import base64
import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import Credit
from accredit.credit.traces import StoredEpisode
from accredit.credit.traces.schema import to_record

__all__ = ["Columns", "Shown", "block", "credits_of", "episode_block", "in_base64", "read_block"]

Columns = dict[str, np.ndarray]
_ALIGN = 8
_LEVEL = 9


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """One episode as a page shows it: what was stored, and what was worked out for the view.

    Attributes:
        episode: as stored.
        scales: overlay name -> what the strongest colour stands for, over the whole group (`overlays.group_scales`).
        others: the credit of further credit functions by their label; the stored credit has the label "".
        signals: further columns by name, float64 [T], NaN where there is none: `trainer_logprob` and `entropy` in nats.
        reencoded: decision spans checked and those whose text encodes to other ids; None = not checked.

    """

    episode: StoredEpisode
    scales: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, Credit] = field(default_factory=dict)
    signals: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    reencoded: Mapping[str, Any] | None = None


def credits_of(shown: Shown) -> Iterator[tuple[str, Credit]]:
    """Yield (prefix of its overlays' names, credit) of each credit function: "" for the stored, "rloo/" and so on."""
    if shown.episode.credit is not None:
        yield "", shown.episode.credit
    for label, credit in shown.others.items():
        yield f"{label}/", credit


def episode_block(shown: Shown, level: int = _LEVEL) -> bytes:
    """Return an episode as a block.

    The header is its record of `episodes.jsonl` with `scales`, `functions` (a list of `label`, `credit_terms`,
    `advantage_terms`, and `sums`, the exact sums of both), `signals` and `reencoded`. Columns: `entry` u4, for each
    token its place in the table of `vocab_id` i4, `vocab_length` u4 and `vocab_bytes` u1 (joined); `logprob` f4, a
    ledger term each (`credit:outcome`, `rloo/credit:outcome`) f4, and the signals f4.
    """
    t = shown.episode.trajectory
    columns: Columns = {
        **_vocabulary(t.token_ids.tolist(), shown.episode.token_bytes),
        "logprob": t.logprobs.astype("<f4"),
    }
    functions: list[dict[str, Any]] = []
    for prefix, credit in credits_of(shown):
        about: dict[str, Any] = {"label": prefix[:-1], "sums": {}}
        for quantity, ledger in (("credit", credit.credit), ("advantage", credit.advantage)):
            about[f"{quantity}_terms"] = list(ledger.terms)
            about["sums"][quantity] = float(ledger.total.sum())
            for name, term_T in ledger.terms.items():
                columns[f"{prefix}{quantity}:{name}"] = term_T.astype("<f4")
        functions.append(about)
    for name, signal_T in shown.signals.items():
        columns[name] = np.asarray(signal_T).astype("<f4")
    record = to_record(t, shown.episode.credit, shown.episode.step, shown.episode.split, "", 0)
    extra = {
        "scales": dict(shown.scales),
        "functions": functions,
        "signals": list(shown.signals),
        "reencoded": None if shown.reencoded is None else dict(shown.reencoded),
    }
    return block({**record, **extra}, columns, level)


def _vocabulary(ids: Sequence[int], token_bytes: Sequence[bytes]) -> Columns:
    """Return the table of (id, bytes) in the order of their first use, and each token's place in it."""
    table: dict[tuple[int, bytes], int] = {}
    entries = [table.setdefault(pair, len(table)) for pair in zip(ids, token_bytes, strict=True)]
    return {
        "entry": np.array(entries, dtype="<u4"),
        "vocab_id": np.array([number for number, _ in table], dtype="<i4"),
        "vocab_length": np.array([len(raw) for _, raw in table], dtype="<u4"),
        "vocab_bytes": np.frombuffer(b"".join(raw for _, raw in table), dtype="u1"),
    }


def block(header: Mapping[str, Any], columns: Mapping[str, np.ndarray], level: int = _LEVEL) -> bytes:
    """Return a header and its columns as one block, deflated at zlib's `level`."""
    listed: list[tuple[str, str, int, int]] = []
    body = bytearray()
    for name, column in columns.items():
        listed.append((name, column.dtype.str.lstrip("<|"), len(body), column.size))
        planes = column.view("u1").reshape(-1, 4).T if column.dtype.itemsize == 4 else column
        body += planes.tobytes()
        body += bytes(-len(body) % _ALIGN)
    head = json.dumps({**header, "columns": listed}, separators=(",", ":")).encode()
    return zlib.compress(struct.pack("<I", len(head)) + head + body, level)


def read_block(raw: bytes) -> tuple[dict[str, Any], Columns]:
    """Return the header and the columns of a block: the inverse of `block`, for tests and other readers.

    Of an episode it gives `token_id`, `byte_length` and `bytes` (joined) as well.
    """
    raw = zlib.decompress(raw)
    (size,) = struct.unpack_from("<I", raw)
    header = json.loads(raw[4 : 4 + size])
    body = raw[4 + size :]
    columns: Columns = {}
    for name, dtype, offset, count in header["columns"]:
        size = np.dtype(dtype).itemsize
        flat = np.frombuffer(body, dtype="u1", count=count * size, offset=offset)
        columns[name] = (
            (np.ascontiguousarray(flat.reshape(4, -1).T) if size == 4 else flat).view(f"<{dtype}").reshape(-1)
        )
    if "entry" in columns:
        entry_T = columns["entry"]
        ends = np.cumsum(columns["vocab_length"], dtype=np.int64)
        table = np.split(columns["vocab_bytes"], ends[:-1]) if ends.size else []
        columns["token_id"] = columns["vocab_id"][entry_T]
        columns["byte_length"] = columns["vocab_length"][entry_T]
        columns["bytes"] = np.concatenate([np.zeros(0, "u1"), *(table[at] for at in entry_T)])
    return header, columns


def in_base64(raw: bytes) -> str:
    """Return a block as text for an HTML file."""
    return base64.b64encode(raw).decode("ascii")
