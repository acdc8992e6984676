"""The JSON form of an episode: everything of a `Trajectory` but its token columns.

`to_record` and `from_record` are inverse to each other. Unknown fields are ignored on reading, so that a newer minor
version can add some; a newer major version is refused.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accredit.credit.calls import Call, CallStatus, Charge
from accredit.credit.errors import TraceError
from accredit.credit.ledger import Credit
from accredit.credit.spans import Span, SpanKind
from accredit.credit.trajectory import Segment, StopReason, Trajectory

from .summary import Summary, summary_of

__all__ = ["SCHEMA_VERSION", "IndexRow", "check_version", "from_record", "to_record"]

SCHEMA_VERSION = "1.3"  # 1.1 added options, 1.2 the summary, 1.3 the signals
_PLAIN = (str, int, type(None))
_FLOAT = "$float"  # tags a number that JSON cannot hold: a model may well write {"qty": NaN}, or the tag itself


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One line of `index.jsonl`: enough to list an episode, and where the rest of it lies.

    `offset` and `length` are bytes in `episodes.jsonl`; rows [first_row, first_row + tokens) of `file` are its tokens.
    """

    episode_id: str
    step: int
    split: str
    group: str
    env_id: str
    task_id: str
    reward: float | None
    stop: str
    turns: int
    tokens: int
    charges: int
    file: str
    first_row: int
    offset: int
    length: int
    summary: Summary | None = None
    """None where an older version wrote the line."""

    @property
    def group_key(self) -> tuple[int, str, str]:
        """Step, split and group: the same for the rollouts of a group alone. Without a group, the id stands for one."""
        return self.step, self.split, self.group or f"/{self.episode_id}"

    @classmethod
    def of_record(cls, record: Mapping[str, Any], offset: int, length: int) -> "IndexRow":
        """Build the row of an episode's record that lies at `offset`; raises `KeyError` where a field is missing."""
        rewards = [record["outcome"], *record["turn_rewards"]]
        return cls(
            **{name: record[name] for name in ("episode_id", "step", "split", "group", "env_id", "task_id", "stop")},
            reward=None if record["outcome"] is None else float(rewards[0] + np.array(rewards[1:]).sum()),
            turns=len(record["turn_rewards"]),
            tokens=record["tokens"]["rows"],
            charges=len(record["charges"]),
            file=record["tokens"]["file"],
            first_row=record["tokens"]["first_row"],
            offset=offset,
            length=length,
            summary=_summary(record),
        )

    def to_line(self) -> dict[str, Any]:
        """Return the JSON object of the line: the inverse of `of_line`."""
        line = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            "schema_version": SCHEMA_VERSION,
            **line,
            "summary": None if self.summary is None else self.summary.to_json(),
        }

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> "IndexRow":
        """Build the row from a parsed line; unknown fields are ignored."""
        known = {field.name: line[field.name] for field in fields(cls) if field.name != "summary"}
        return cls(**known, summary=_summary(line))


def _summary(line: Mapping[str, Any]) -> Summary | None:
    found = line.get("summary")
    return None if found is None else Summary.of_json(found)


def check_version(record: Mapping[str, Any], where: str) -> None:
    """Raise `TraceError` if `record` was written by a newer major version."""
    found = str(record.get("schema_version", "1.0"))
    if not found.split(".")[0].isdecimal():
        raise TraceError(f"{where} has schema_version {found}, expected a version such as {SCHEMA_VERSION}")
    if int(found.split(".")[0]) > int(SCHEMA_VERSION.split(".")[0]):
        raise TraceError(
            f"{where} has schema_version {found}, but this Accredit reads up to {SCHEMA_VERSION.split('.')[0]}.x: "
            "upgrade Accredit to read it"
        )


def to_record(
    trajectory: Trajectory,
    credit: Credit | None,
    step: int,
    split: str,
    file: str,
    first_row: int,
    signals: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the JSON object of one episode.

    `file` and `first_row` say where its token columns lie, `signals` which of them an update has filled.
    """
    t = trajectory
    return {
        "schema_version": SCHEMA_VERSION,
        "episode_id": t.episode_id,
        "step": step,
        "split": split,
        "group": t.group,
        "env_id": t.env_id,
        "task_id": t.task_id,
        "outcome": t.outcome,
        "turn_rewards": t.turn_rewards.tolist(),
        "stop": str(t.stop),
        "error": t.error,
        "seeds": dict(t.seeds),
        "options": _tag_floats(t.options),
        "state_keys": list(t.state_keys),
        "policy_versions": list(t.policy_versions),
        "spans": [[s.start, s.end, str(s.kind), s.turn] for s in t.spans],
        "segments": [[s.start, s.reason] for s in t.segments],
        "straddles": list(t.straddles),
        "calls": [_call_record(call) for call in t.calls],
        "charges": [
            {"start": c.start, "end": c.end, "amount": c.amount, "reason": c.reason, "call": c.call} for c in t.charges
        ],
        "turn_seconds": None if t.turn_seconds is None else t.turn_seconds.tolist(),
        "seconds": t.seconds,
        "summary": summary_of(t, credit).to_json(),
        "credit_terms": None if credit is None else list(credit.credit.terms),
        "advantage_terms": None if credit is None else list(credit.advantage.terms),
        "signals": list(signals),
        "tokens": {"file": file, "first_row": first_row, "rows": len(t)},
    }


def from_record(
    record: Mapping[str, Any], token_ids_T: NDArray[np.int32], logprobs_T: NDArray[np.float32]
) -> Trajectory:
    """Build the trajectory of a record and its token columns."""
    seconds = record["turn_seconds"]
    return Trajectory(
        token_ids=token_ids_T,
        spans=tuple(Span(start, end, SpanKind(kind), turn) for start, end, kind, turn in record["spans"]),
        logprobs=logprobs_T,
        turn_rewards=np.array(record["turn_rewards"], dtype=np.float64),
        outcome=record["outcome"],
        stop=StopReason(record["stop"]),
        state_keys=tuple(record["state_keys"]),
        policy_versions=tuple(record["policy_versions"]),
        calls=tuple(_call(call) for call in record["calls"]),
        charges=tuple(Charge(c["start"], c["end"], c["amount"], c["reason"], c.get("call")) for c in record["charges"]),
        segments=tuple(Segment(start, reason) for start, reason in record["segments"]),
        straddles=tuple(record["straddles"]),
        seeds=record["seeds"],
        options=_untag_floats(record.get("options")),
        turn_seconds=None if seconds is None else np.array(seconds, dtype=np.float64).reshape(-1, 2),
        seconds=record["seconds"],
        env_id=record["env_id"],
        task_id=record["task_id"],
        episode_id=record["episode_id"],
        group=record["group"],
        error=record["error"],
    )


def _call_record(call: Call) -> dict[str, Any]:
    return {
        "turn": call.turn,
        "start": call.start,
        "end": call.end,
        "id": call.id,
        "name": call.name,
        "arguments": _tag_floats(call.arguments),
        "status": str(call.status),
        "result": call.result,
        "truncated": call.truncated,
        "name_range": None if call.name_range is None else list(call.name_range),
        "argument_ranges": {path: list(found) for path, found in call.argument_ranges.items()},
        "started_s": call.started_s,
        "duration_s": call.duration_s,
        "detail": _tag_floats(call.detail),
    }


def _call(record: Mapping[str, Any]) -> Call:
    name_range = record["name_range"]
    return Call(
        turn=record["turn"],
        start=record["start"],
        end=record["end"],
        id=record["id"],
        name=record["name"],
        arguments=_untag_floats(record["arguments"]),
        status=CallStatus(record["status"]),
        result=record["result"],
        truncated=record["truncated"],
        name_range=None if name_range is None else (name_range[0], name_range[1]),
        argument_ranges={path: (found[0], found[1]) for path, found in record["argument_ranges"].items()},
        started_s=record["started_s"],
        duration_s=record["duration_s"],
        detail=_untag_floats(record["detail"]),
    )


def _tag_floats(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(value)}
    if isinstance(value, Mapping):
        if value.keys() == {_FLOAT}:
            return {_FLOAT: [_tag_floats(value[_FLOAT])]}
        return {key: _tag_floats(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_tag_floats(inner) for inner in value]
    return value


def _untag_floats(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_FLOAT} and value[_FLOAT] in ("nan", "inf", "-inf"):
            return float(value[_FLOAT])
        if value.keys() == {_FLOAT} and isinstance(value[_FLOAT], list) and len(value[_FLOAT]) == 1:
            return {_FLOAT: _untag_floats(value[_FLOAT][0])}
        return {key: _untag_floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_untag_floats(inner) for inner in value]
    return value
