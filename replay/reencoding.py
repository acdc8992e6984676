"""Whether the text of what the policy sampled encodes to the ids that it sampled.

A policy may sample ids that no tokenizer would give for their text; such a span is correct as stored, and would be
trained wrongly by whoever encodes the text again. The page flags it.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accredit.credit.traces import StoredEpisode

__all__ = ["Encode", "encoder_of_run", "reencoded"]

_log = logging.getLogger(__name__)

Encode = Callable[[Sequence[str]], Sequence[Sequence[int]]]


def reencoded(episode: StoredEpisode, encode: Encode) -> dict[str, Any]:
    """Return `checked`, the number of decision spans, and `differ`: [first token that differs, why] of those."""
    differ: list[tuple[int, str]] = []
    spans, texts = [], []
    for span in episode.trajectory.decisions:
        try:
            texts.append(b"".join(episode.token_bytes[span.start : span.end]).decode())
            spans.append(span)
        except UnicodeDecodeError:
            differ.append((span.start, "is no valid UTF-8"))
    for span, ids in zip(spans, encode(texts), strict=True):
        stored = episode.trajectory.token_ids[span.start : span.end]
        common = min(len(ids), len(stored))
        unlike = np.flatnonzero(np.asarray(ids[:common], dtype=np.int64) != stored[:common])
        if unlike.size or len(ids) != len(stored):
            at = int(unlike[0]) if unlike.size else common - 1
            differ.append((span.start + max(at, 0), f"encodes to {len(ids)} ids, {len(stored)} were sampled"))
    return {"checked": len(episode.trajectory.decisions), "differ": sorted(differ)}


def encoder_of_run(traces: Path) -> Encode | None:
    """Return the encoder of the newest checkpoint beside a traces folder; None where there is none."""
    found = sorted((traces.parent / "checkpoints").glob("*/tokenizer.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(found[-1]))

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    return encode
