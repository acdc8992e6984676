"""Writes episodes as verifiers' traces: one episode with one trace a line, schema 1 (verifiers 0.4).

A message's node holds the template tokens before it and its own; an assistant's node ends in its sampled tokens. What
verifiers has no field for (spans, charges, statuses, turn rewards, seeds, token bytes) lies in `info.accredit`.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from accredit.credit import Call, Span, SpanKind, StopReason
from accredit.credit.traces import StoredEpisode

from .draft import attached
from .verifiers_in import STOPS

__all__ = ["episode_line"]

_ROLES = ("system", "user", "assistant", "tool")


class _Part(NamedTuple):
    """The tokens [start, end) of one message; `own` is its span without the template before it."""

    start: int
    end: int
    own: Span | None


def episode_line(episode: StoredEpisode, run: str) -> dict[str, Any]:
    """Return the JSON object of one episode of the run named `run`."""
    t = episode.trajectory
    task = {"type": t.env_id or "Task", "data": {"id": t.task_id or None}, "key": t.task_id or None}
    errors = [] if t.error is None else [{"type": t.stop.value, "message": t.error}]
    ok = t.stop in (StopReason.DONE, StopReason.TURN_LIMIT, StopReason.TOKEN_LIMIT, StopReason.CALL_LIMIT)
    rewards = {}
    if t.outcome is not None:
        rewards = {"outcome": {"score": t.outcome, "weight": 1.0}}
        if t.turn_rewards.any():
            rewards["turns"] = {"score": float(t.turn_rewards.sum()), "weight": 1.0}
    trace = {
        "version": 1,
        "id": t.episode_id,
        "task": task,
        "agent": {"config": {}, "name": "agent", "trainable": episode.split == "train"},
        "nodes": _nodes(episode),
        "rewards": rewards,
        "metrics": {"charged": float(sum(charge.amount for charge in t.charges))},
        "info": {"accredit": attached(episode)},
        "is_completed": True,
        "ok": ok,
        "stop_condition": STOPS.get(t.stop, t.stop.value),
        "is_timeout": t.stop is StopReason.TIME_LIMIT,
        "errors": errors,
        "timing": {"start": 0.0, "agent": {"start": 0.0, "end": t.seconds or 0.0}},
    }
    versions = t.policy_versions or (max(0, episode.step - 1),)
    policy = {"start": min(versions), "end": max(versions)}
    kind = "train" if episode.split == "train" else "eval"
    return {
        "id": f"{t.episode_id}@{episode.step}",
        "env": {"id": t.env_id},
        "task": task,
        **({"group": {"id": t.group}} if t.group else {}),
        "run": {"type": "train", "id": run, "work": {"type": kind, "step": episode.step, "policy": policy}},
        "ok": ok,
        "errors": errors,
        "traces": [trace],
    }


def _nodes(episode: StoredEpisode) -> list[dict[str, Any]]:
    t = episode.trajectory
    starts = [segment.start for segment in t.segments]
    nodes: list[dict[str, Any]] = []
    parent: int | None = None
    for start, end in zip(starts, [*starts[1:], len(t)], strict=True):
        parent, at = (None, start) if start == starts[0] else _shared(nodes, t.token_ids[start:end].tolist(), start)
        for part in _parts(t.spans, at, end):
            nodes.append({"parent": parent, **_node(episode, part)})
            parent = len(nodes) - 1
    return nodes


def _shared(nodes: Sequence[dict[str, Any]], ids: list[int], start: int) -> tuple[int | None, int]:
    """Return the node down to which a segment repeats an earlier branch, and the first token that is new."""
    parent: int | None = None
    at = 0
    while True:
        again = [
            place
            for place, node in enumerate(nodes)
            if node["parent"] == parent and ids[at : at + len(node["token_ids"])] == node["token_ids"]
        ]
        if not again or at + len(nodes[again[0]]["token_ids"]) >= len(ids):
            return parent, start + at
        parent = again[0]
        at += len(nodes[parent]["token_ids"])


def _parts(spans: Sequence[Span], start: int, end: int) -> Iterator[_Part]:
    """Cut [start, end) into messages: template tokens go to the message after them, at the end to the one before."""
    inside = [Span(max(s.start, start), s.end, s.kind, s.turn) for s in spans if s.end > start and s.start < end]
    begun, waiting = start, None
    for span in inside:
        if span.kind is SpanKind.SCAFFOLD:
            continue
        if waiting is not None:
            yield waiting
        waiting = _Part(begun, span.end, span)
        begun = span.end
    if waiting is None:
        yield _Part(start, end, None)
    else:
        yield waiting._replace(end=end)


def _node(episode: StoredEpisode, part: _Part) -> dict[str, Any]:
    t = episode.trajectory
    mask_T = t.credit_mask[part.start : part.end]
    content_T = np.zeros(part.end - part.start, dtype=np.bool_)
    if part.own is not None:
        content_T[part.own.start - part.start : part.own.end - part.start] = True
    node = {
        "message": _message(episode, part),
        "sampled": bool(mask_T.any()),
        "timestamp": 0.0,
        "token_ids": t.token_ids[part.start : part.end].tolist(),
        "mask": mask_T.tolist(),
        "is_content": content_T.tolist(),
        "logprobs": t.logprobs[part.start : part.end][mask_T].tolist(),
    }
    if episode.credit is not None and mask_T.any():
        node["advantages"] = episode.credit.advantage.total[part.start : part.end][mask_T].tolist()
    return node


def _message(episode: StoredEpisode, part: _Part) -> dict[str, Any]:
    t, own = episode.trajectory, part.own
    text = _text(episode, part.start, part.end) if own is None else _text(episode, own.start, own.end)
    if own is not None and own.kind is SpanKind.DECISION:
        calls = [_tool_call(call) for call in t.calls if call.start >= own.start and call.end <= own.end]
        return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    answered = [call for call in t.calls if own is not None and call.turn == own.turn]
    if own is not None and own.kind is SpanKind.FEEDBACK and answered:
        earlier = sum(s.kind is SpanKind.FEEDBACK and s.turn == own.turn and s.start < own.start for s in t.spans)
        call = answered[min(earlier, len(answered) - 1)]
        return {"role": "tool", "tool_call_id": call.id, "content": text, "name": call.name}
    template = "" if own is None else _text(episode, part.start, own.start)
    role = max(_ROLES, key=template.rfind)
    return {"role": role if role in ("system", "assistant") and role in template else "user", "content": text}


def _tool_call(call: Call) -> dict[str, Any]:
    arguments = "" if call.arguments is None else json.dumps(dict(call.arguments), ensure_ascii=False)
    return {"id": call.id, "type": "function", "name": call.name, "arguments": arguments}


def _text(episode: StoredEpisode, start: int, end: int) -> str:
    return b"".join(episode.token_bytes[start:end]).decode("utf-8", "replace")
