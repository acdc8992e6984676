"""An episode that is put together from another project's file, span by span, and what was lost on the way."""

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit import Call, CallStatus, Credit, Ledger, Segment, Span, SpanKind, StopReason, Trajectory
from accredit.credit.traces import StoredEpisode
from accredit.credit.traces.schema import from_record, to_record

__all__ = ["IMPORTED", "NO_STATUS", "Conversion", "Draft", "Texts", "attached", "recovered"]

IMPORTED = "imported"
"""The one ledger term of an advantage that came from elsewhere: its parts are not known."""
NO_STATUS = "calls have no status in the file: 'ok' is assumed"
"""A note: neither format says how a call ended."""
Texts = Callable[[Sequence[int]], Sequence[bytes]]
"""Gives the bytes of each id."""


@dataclass(slots=True)
class Conversion:
    """Episodes that were read, and what was lost or assumed: line -> how often."""

    episodes: list[StoredEpisode] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Draft:
    """The columns of an episode so far. `texts` gives exact bytes; without it a text lies on its first token."""

    texts: Texts | None = None
    ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    advantages: list[float] = field(default_factory=list)
    token_bytes: list[bytes] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=lambda: [Segment(0, "start")])
    calls: list[Call] = field(default_factory=list)
    turns: int = 0
    credited: bool = False

    def add(
        self,
        kind: SpanKind,
        ids: Sequence[int],
        text: str = "",
        logprobs: Sequence[float] | None = None,
        advantages: Sequence[float] | None = None,
    ) -> Span | None:
        """Append one span of the turn last begun; nothing for no ids."""
        if not len(ids):
            return None
        span = Span(len(self.ids), len(self.ids) + len(ids), kind, self.turns - 1)
        self.spans.append(span)
        self.ids += map(int, ids)
        self.logprobs += [float("nan")] * len(ids) if logprobs is None else list(map(float, logprobs))
        self.advantages += [0.0] * len(ids) if advantages is None else list(map(float, advantages))
        self.credited |= advantages is not None
        if self.texts is None:
            self.token_bytes += [text.encode("utf-8", "replace"), *[b""] * (len(ids) - 1)]
        else:
            self.token_bytes += self.texts(list(ids))
        return span

    def add_call(self, start: int, end: int, call_id: str, name: str, arguments: str, result: str = "") -> None:
        """Append a call of the turn last begun; `arguments` is the JSON text that the policy wrote."""
        try:
            parsed = json.loads(arguments)
        except ValueError:
            parsed = None
        known = parsed if isinstance(parsed, dict) else None
        status = CallStatus.INVALID_JSON if known is None else CallStatus.OK
        self.calls.append(Call(self.turns - 1, start, end, call_id, name, known, status, result))

    def segment(self, reason: str) -> None:
        """Begin a fresh context."""
        if self.segments[-1].start != len(self.ids):
            self.segments.append(Segment(len(self.ids), reason))

    @property
    def mask_T(self) -> NDArray[np.bool_]:
        """The policy mask so far."""
        mask_T = np.zeros(len(self.ids), dtype=np.bool_)
        for span in self.spans:
            mask_T[span.start : span.end] |= span.kind is SpanKind.DECISION
        return mask_T

    def credit(self) -> Credit | None:
        """Return the advantages as a ledger of one term, None where the file has none. Credit stays without terms."""
        if not self.credited:
            return None
        length = len(self.ids)
        return Credit(Ledger(length, {}), Ledger(length, {IMPORTED: np.array(self.advantages, dtype=np.float64)}))

    def trajectory(self, outcome: float | None, stop: StopReason, policy_version: int, **names: Any) -> Trajectory:
        """Return the trajectory."""
        return Trajectory(
            token_ids=np.array(self.ids, dtype=np.int32),
            spans=tuple(self.spans),
            logprobs=np.array(self.logprobs, dtype=np.float32),
            turn_rewards=np.zeros(self.turns),
            outcome=outcome,
            stop=stop,
            state_keys=(None,) * (self.turns + 1),
            policy_versions=(policy_version,) * self.turns,
            calls=tuple(self.calls),
            segments=tuple(self.segments),
            **names,
        )


def attached(episode: StoredEpisode) -> dict[str, Any]:
    """Return what another format has no place for, as plain JSON to put beside it: `recovered` reads it back."""
    joined = b"".join(episode.token_bytes)
    decided = episode.trajectory.decisions
    return {
        "tail_ids": episode.trajectory.token_ids[decided[-1].end if decided else 0 :].tolist(),
        "record": to_record(episode.trajectory, None, episode.step, episode.split, "", 0),
        "byte_lengths": [len(token) for token in episode.token_bytes],
        "bytes": _packed(joined),
        "signals": {name: _packed(values_T.astype("<f4").tobytes()) for name, values_T in episode.signals.items()},
    }


def recovered(found: Any, draft: Draft) -> StoredEpisode | None:
    """Return the episode of an attachment with the draft's log-probabilities and advantages.

    Tokens after the last decision come from it where the file lacks them. None if there is no attachment, or it speaks
    of other ids or another mask than the file does: the file counts.
    """
    if not isinstance(found, Mapping) or "record" not in found:
        return None
    record, lengths, tail = found["record"], found["byte_lengths"], found["tail_ids"]
    if tail and record["tokens"]["rows"] == len(draft.ids) + len(tail):  # a format that ends with the last decision
        draft.add(SpanKind.SCAFFOLD, tail, "")
    ids_T, logprobs_T = np.array(draft.ids, dtype=np.int32), np.array(draft.logprobs, dtype=np.float32)
    if record["tokens"]["rows"] != len(ids_T) or len(lengths) != len(ids_T):
        return None
    decided_T = np.zeros(len(ids_T), dtype=np.bool_)
    for start, end, kind, _ in record["spans"]:
        decided_T[start:end] = kind == SpanKind.DECISION
    if not np.array_equal(decided_T, draft.mask_T):
        return None
    joined = _unpacked(found["bytes"])
    ends = np.cumsum([0, *lengths]).tolist()
    tokens = [joined[ends[i] : ends[i + 1]] for i in range(len(lengths))]
    trajectory = from_record(record, ids_T, logprobs_T)
    signals = {
        name: np.frombuffer(_unpacked(text), dtype="<f4").astype(np.float32)
        for name, text in found.get("signals", {}).items()
    }
    return StoredEpisode(trajectory, draft.credit(), tokens, record["step"], record["split"], signals)


def _packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw)).decode("ascii")


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
