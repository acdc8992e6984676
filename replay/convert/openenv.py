"""Reads and writes OpenEnv's `TrainingTrace` (schema 1, openenv 0.10): one trace an episode, one turn an engine call.

Each call holds its whole prompt, so a file grows with the square of the turns. A call whose prompt extends the tokens
of the one before it goes on in the same segment, any other begins a new one. The format has no reward, no advantage and
no text of a token: ours are put into the metadata of the first call (`accredit`) and of each (`advantages`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from accredit.credit import Call, SpanKind, StopReason, TraceError
from accredit.credit.traces import StoredEpisode

from .draft import NO_STATUS, Conversion, Draft, Texts, attached, recovered
from .verifiers_in import text_of

__all__ = ["read_trace", "trace_line"]

_UNSCORED = "episodes are unscored: the format has no reward"
_UNTRAINED = "log-probabilities of sampled tokens with loss mask 0 are not kept: such tokens become scaffold"
_LOST = "requests, sampling settings and finish reasons are not kept"


def read_trace(trace: Mapping[str, Any], name: str, into: Conversion, texts: Texts | None = None) -> None:
    """Add one trace to `into`; `name` becomes the episode's id where the trace has none of ours.

    Raises:
        TraceError: it is no such trace, or a newer version wrote it.

    """
    if trace.get("schema_version", 1) != 1:
        raise TraceError(f"{name} has schema_version {trace['schema_version']}, but version 1 is read here")
    draft = Draft(texts)
    before: list[int] = []
    try:
        for turn in trace["turns"]:
            before = _add_turn(draft, turn, before, into)
        first = (trace["turns"] or [{}])[0].get("metadata") or {}
        kept = recovered(first.get("accredit"), draft)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TraceError(f"{name} is no training trace of OpenEnv ({type(error).__name__}: {error})") from error
    if kept is None:
        into.notes[_UNSCORED] += 1
        into.notes[_LOST] += 1
        trajectory = draft.trajectory(None, StopReason.DONE, 0, episode_id=name, group=name)
        kept = StoredEpisode(trajectory, draft.credit(), draft.token_bytes, 0, "train")
    into.episodes.append(kept)


def _add_turn(draft: Draft, turn: Mapping[str, Any], before: list[int], into: Conversion) -> list[int]:
    """Append one call; return the tokens that the next has to extend."""
    prompt, sampled, logprobs = turn["prompt_token_ids"], turn["completion_token_ids"], turn["per_token_logps"]
    mask = turn["loss_mask"]
    if len(mask) != len(prompt) + len(sampled) or len(logprobs) != len(sampled) or any(mask[: len(prompt)]):
        raise ValueError(
            f"call {turn['node_id']} has {len(prompt)} + {len(sampled)} ids, {len(logprobs)} log-probabilities and a "
            f"mask of {len(mask)} with {sum(mask[: len(prompt)])} trained prompt tokens"
        )
    extends = bool(before) and prompt[: len(before)] == before
    messages = (turn.get("request") or {}).get("messages") or []
    news = messages[-1:] if extends else messages
    if before and not extends:
        draft.segment("the harness wrote the history anew")
    kind = SpanKind.FEEDBACK if extends else SpanKind.PROMPT
    draft.add(kind, prompt[len(before) if extends else 0 :], "\n".join(map(text_of, news)))
    for call in draft.calls[:]:
        _answer(draft, call, messages)
    draft.turns += 1
    choices = (turn.get("response") or {}).get("choices") or [{}]
    message = choices[0].get("message") or {}
    text, advantages = text_of(message), (turn.get("metadata") or {}).get("advantages")
    began = len(draft.ids)
    for trained, run in groupby(range(len(sampled)), lambda place: bool(mask[len(prompt) + place])):
        places = list(run)
        part = slice(places[0], places[-1] + 1)
        if trained:
            worth = None if advantages is None else advantages[part]
            draft.add(SpanKind.DECISION, sampled[part], text, logprobs[part], worth)
        else:
            draft.add(SpanKind.SCAFFOLD, sampled[part], text)
            into.notes[_UNTRAINED] += 1
        text = ""
    for call in message.get("tool_calls") or ():
        named = call.get("function", call)
        draft.add_call(began, len(draft.ids), call.get("id", ""), named["name"], named["arguments"])
        into.notes[NO_STATUS] += 1
    return [*prompt, *sampled]


def _answer(draft: Draft, call: Call, messages: Sequence[Mapping[str, Any]]) -> None:
    """Put the tool's message into its call."""
    for message in messages:
        if message.get("role") == "tool" and message.get("tool_call_id") == call.id and not call.result:
            draft.calls[draft.calls.index(call)] = replace(call, result=text_of(message))
            return


def trace_line(episode: StoredEpisode) -> dict[str, Any]:
    """Return the JSON object of one episode."""
    t = episode.trajectory
    ids = t.token_ids.tolist()
    starts = [segment.start for segment in t.segments]
    turns: list[dict[str, Any]] = []
    for place, span in enumerate(t.decisions):
        context = max(start for start in starts if start <= span.start)
        prompt, sampled = ids[context : span.start], ids[span.start : span.end]
        metadata: dict[str, Any] = {"turn": span.turn, "index": place}
        if episode.credit is not None:
            metadata["advantages"] = episode.credit.advantage.total[span.start : span.end].tolist()
        if not turns:
            metadata["accredit"] = attached(episode)
        turns.append(
            {
                "node_id": f"{t.episode_id}@{episode.step}/{place}",
                "prompt_token_ids": prompt,
                "completion_token_ids": sampled,
                "per_token_logps": [min(0.0, value) for value in t.logprobs[span.start : span.end].tolist()],
                "loss_mask": [0] * len(prompt) + [1] * len(sampled),
                "request": {},
                "response": {},
                "metadata": metadata,
            }
        )
    return {"schema_version": 1, "turns": turns}
