"""Reads verifiers' traces (`traces.jsonl`, schema 1, verifiers 0.4): one episode or one trace a line.

A trace is a graph of messages, each with the tokens that it adds. Its branches become segments of one trajectory: what
a later branch shares with an earlier one is repeated as prompt, so that every sampled token is trained once. Sampled
tokens become decisions, template tokens scaffold, messages prompt before a segment's first decision and feedback
after it.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from accredit.credit import SpanKind, StopReason, TraceError
from accredit.credit.traces import StoredEpisode

from .draft import NO_STATUS, Conversion, Draft, Texts, recovered

__all__ = ["STOPS", "read_episode"]

_VERSION = 1
STOPS = {
    StopReason.DONE: "agent_completed",
    StopReason.TURN_LIMIT: "max_turns",
    StopReason.TOKEN_LIMIT: "max_total_tokens",
    StopReason.TIME_LIMIT: "agent_timeout",
}
_LOST = "metrics, timings of calls, model and harness settings, tools and images are not kept"


def read_episode(line: Mapping[str, Any], where: str, into: Conversion, texts: Texts | None = None) -> None:
    """Add the traces of one line to `into`.

    Raises:
        TraceError: it is no such line, or a newer version wrote it.

    """
    traces = line.get("traces", [line] if "nodes" in line else None)
    if not isinstance(traces, list):
        raise TraceError(f"{where} is no episode of verifiers: expected 'traces' or 'nodes', found {sorted(line)[:6]}")
    for trace in traces:
        if trace.get("version", _VERSION) != _VERSION:
            raise TraceError(f"{where} has trace version {trace['version']}, but version {_VERSION} is read here")
        try:
            found = _read_trace(line, trace, into, texts)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            raise TraceError(f"{where} is no trace of verifiers ({type(error).__name__}: {error})") from error
        if found is not None:
            into.episodes.append(found)


def _read_trace(
    episode: Mapping[str, Any], trace: Mapping[str, Any], into: Conversion, texts: Texts | None
) -> StoredEpisode | None:
    nodes = trace["nodes"]
    if not any(node.get("token_ids") for node in nodes):
        into.notes["traces without token ids (of an evaluation) are left out"] += 1
        return None
    for place, node in enumerate(nodes):
        _check_node(node, place)
    draft, written = Draft(texts), set[int]()
    results = {n["message"].get("tool_call_id"): n["message"] for n in nodes if n["message"]["role"] == "tool"}
    for path in _branches(nodes):
        shared = [place for place in path if place in written]
        if written:
            into.notes["later branches of a trace are segments, what they repeat is masked"] += 1
            draft.segment("another branch of the trace")
            draft.add(SpanKind.PROMPT, [token for place in shared for token in nodes[place]["token_ids"]])
        first_turn = draft.turns
        for place in path[len(shared) :]:
            _add_node(draft, nodes[place], results, draft.turns > first_turn, into)
            written.add(place)
    silent = sum(any(node["mask"]) and node.get("advantages") is None for node in nodes)
    if draft.credited and silent:
        into.notes["turns without advantages read as 0 where others of the trace have some"] += silent
    kept = recovered((trace.get("info") or {}).get("accredit"), draft)
    if kept is not None:
        return kept
    into.notes[_LOST] += 1
    return _episode(episode, trace, draft)


def _check_node(node: Mapping[str, Any], place: int) -> None:
    ids, mask = node["token_ids"], node["mask"]
    sampled = sum(map(bool, mask))
    if len(ids) != len(mask) or len(node["logprobs"]) != sampled:
        raise ValueError(
            f"node {place} has {len(ids)} ids, a mask of {len(mask)}, {sampled} sampled and {len(node['logprobs'])} "
            "log-probabilities"
        )
    advantages = node.get("advantages")
    if advantages is not None and len(advantages) != sampled:
        raise ValueError(f"node {place} has {len(advantages)} advantages for {sampled} sampled tokens")


def _branches(nodes: list[Any]) -> Iterator[list[int]]:
    parents = {node.get("parent") for node in nodes}
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.append(at)
            if len(path) > len(nodes):
                raise ValueError("the graph of messages has a circle")
            at = nodes[at].get("parent")
        yield path[::-1]


def _add_node(draft: Draft, node: Mapping[str, Any], results: Mapping[Any, Any], after: bool, into: Conversion) -> None:
    """Append a message's tokens; `after`: a decision of this segment came before it."""
    ids, mask, message = node["token_ids"], node["mask"], node["message"]
    content = node.get("is_content") or [True] * len(ids)
    body = SpanKind.FEEDBACK if after and message["role"] != "system" else SpanKind.PROMPT
    text, sampled = text_of(message), 0
    logprobs, advantages = node["logprobs"], node.get("advantages")
    began, turns = len(draft.ids), draft.turns

    def kind_of(place: int) -> SpanKind:
        if mask[place]:
            return SpanKind.DECISION
        return SpanKind.SCAFFOLD if node["sampled"] or any(mask) or not content[place] else body

    for kind, run in groupby(range(len(ids)), kind_of):
        places = list(run)
        piece = [ids[place] for place in places]
        if kind is SpanKind.DECISION:
            draft.turns = turns + 1
            part = slice(sampled, sampled + len(piece))
            draft.add(kind, piece, text, logprobs[part], None if advantages is None else advantages[part])
            sampled += len(piece)
            text = ""
        else:
            draft.add(kind, piece, text if kind is body else "")
            text = "" if kind is body else text
    draft.turns = turns + bool(node["sampled"] or any(mask))
    if any(mask):
        _add_calls(draft, message, results, began, into)


def _add_calls(
    draft: Draft, message: Mapping[str, Any], results: Mapping[Any, Any], began: int, into: Conversion
) -> None:
    decided = [span for span in draft.spans if span.kind is SpanKind.DECISION and span.start >= began]
    for call in message.get("tool_calls") or ():
        answer = results.get(call["id"])
        result = "" if answer is None else text_of(answer)
        draft.add_call(decided[0].start, decided[-1].end, call["id"], call["name"], call["arguments"], result)
        into.notes[NO_STATUS] += 1


def text_of(message: Mapping[str, Any]) -> str:
    """Return a message's text: reasoning, content, calls."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(part.get("text", "") for part in content)
    calls = message.get("tool_calls") or ()
    named = (call.get("function", call) for call in calls)
    said = [f'{{"name": {json.dumps(call["name"])}, "arguments": {call["arguments"]}}}' for call in named]
    return "\n".join(part for part in (message.get("reasoning_content"), content, *said) if part)


def _episode(episode: Mapping[str, Any], trace: Mapping[str, Any], draft: Draft) -> StoredEpisode:
    work = (episode.get("run") or {}).get("work") or {}
    rewards = [r["score"] * r.get("weight", 1.0) for r in (trace.get("rewards") or {}).values() if r is not None]
    errors = trace.get("errors") or []
    agent = (trace.get("timing") or {}).get("agent") or {}
    task = trace["task"]
    step = int(work.get("step", 0))
    trajectory = draft.trajectory(
        float(sum(rewards)) if rewards else None,
        _stop(trace),
        int((work.get("policy") or {}).get("start", step)),
        env_id=(episode.get("env") or {}).get("id", ""),
        task_id=str(task.get("key") or task["data"].get("id") or task["data"].get("idx", "")),
        episode_id=trace["id"],
        group=(episode.get("group") or {}).get("id", ""),
        seconds=agent["end"] - agent["start"] if agent.get("end") else None,
        error=f"{errors[-1]['type']}: {errors[-1]['message']}" if errors else None,
    )
    split = "heldout" if work.get("type") == "eval" else "train"
    return StoredEpisode(trajectory, draft.credit(), draft.token_bytes, step, split)


def _stop(trace: Mapping[str, Any]) -> StopReason:
    condition = trace.get("stop_condition") or ""
    known = {name: reason for reason, name in STOPS.items()} | {reason.value: reason for reason in StopReason}
    if condition in known:
        return known[condition]
    if condition.endswith("_timeout"):
        return StopReason.TIME_LIMIT
    if condition.startswith("max_"):
        return StopReason.TOKEN_LIMIT
    if condition in ("sandbox_error", "provider_error", "tunnel_error", "program_error"):
        return StopReason.INFRASTRUCTURE
    return StopReason.ENVIRONMENT_ERROR if condition.endswith("error") else StopReason.DONE
