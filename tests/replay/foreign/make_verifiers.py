"""Writes verifiers.jsonl with the package itself: pip install verifiers==0.4.0, then python make_verifiers.py.

Two episodes of a group: one linear, with a tool call and per-token advantages; one whose harness rewrote the history
(two branches that share a prefix), unscored, ended by an error. Written by verifiers' own `write_episode`, which rounds
log-probabilities and advantages to 4 decimals.
"""
# pyright: reportMissingImports=false

import sys
from pathlib import Path

from verifiers.v1.configs.agent import WireAgentConfig
from verifiers.v1.episode import EnvInfo, Episode, GroupInfo, PolicySpan, TrainRunInfo, TrainWorkInfo
from verifiers.v1.graph import prepare_turn
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, ModelCall, TimeSpan, TraceTask, WireTrace
from verifiers.v1.types import (
    AssistantMessage,
    Response,
    SystemMessage,
    ToolCall,
    ToolMessage,
    TurnTokens,
    UserMessage,
)
from verifiers.v1.utils.trace_store import write_episode

TASK = TraceTask(type="BoardsTask", data=WireTaskData(idx=7, prompt="Buy oak."), key="boards-7")


def new_trace(name: str) -> WireTrace:
    return WireTrace(id=name, task=TASK, agent=AgentInfo(config=WireAgentConfig(model="small")))


def say(trace, prompt, message, ids, spans, sampled, logprobs):
    """Commit a model call: `ids` is the whole prompt, `spans` the tokens of each message in it."""
    content = [False] * len(ids)
    for start, end in spans:
        content[start + 1 : end - 1] = [True] * (end - start - 2)
    tokens = TurnTokens(
        prompt_ids=ids, completion_ids=sampled, completion_logprobs=logprobs, message_spans=spans, is_content=content
    )
    response = Response(id="r", created=0, model="small", message=message, finish_reason="stop", tokens=tokens)
    node = prepare_turn(trace, prompt).commit(response)
    trace.calls.append(ModelCall(node=node, model="small", time=TimeSpan(start=100.0 + node, end=100.5 + node)))


def linear():
    trace = new_trace("linear")
    system, user = SystemMessage(content="You buy boards."), UserMessage(content="Buy oak.")
    call = ToolCall(id="c1", name="price", arguments='{"item": "oak"}')
    asked = AssistantMessage(content="I ask.", tool_calls=[call])
    answer = ToolMessage(tool_call_id="c1", content="5 coins", name="price")
    ids = [1, 11, 12, 2, 1, 13, 14, 2, 1, 3]  # 1 and 2 open and close a message, 3 is the assistant's role
    say(trace, [system, user], asked, ids, [(0, 4), (4, 8)], [20, 21, 22, 2], [-0.5, -0.25, -1.0, -0.125])
    ids = [*ids, 20, 21, 22, 2, 1, 30, 31, 32, 2, 1, 3]
    say(
        trace,
        [system, user, asked, answer],
        AssistantMessage(content="Bought."),
        ids,
        [(0, 4), (4, 8), (8, 14), (14, 19)],
        [40, 2],
        [-0.75, -2.5],
    )
    for node, worth in zip((n for n in trace.nodes if n.sampled), (0.5, -0.25), strict=True):
        node.advantages = [worth] * sum(node.mask)
    trace.record_reward("bought", 1.0)
    trace.record_reward("short", 0.5, weight=0.5)
    trace.record_metric("turns", 2)
    trace.stop("agent_completed")
    trace.ok = True
    return trace


def branched():
    trace = new_trace("branched")
    user = UserMessage(content="Buy pine.")
    first = AssistantMessage(content="Thinking at length.")
    say(trace, [user], first, [1, 13, 15, 2, 1, 3], [(0, 4)], [50, 51, 2], [-0.5, -0.5, -0.5])
    summary = UserMessage(content="(history was summarised)")
    say(
        trace,
        [user, summary],
        AssistantMessage(content="Bought."),
        [1, 13, 15, 2, 1, 60, 61, 2, 1, 3],
        [(0, 4), (4, 8)],
        [40, 2],
        [-0.25, -0.75],
    )
    trace.record_error(RuntimeError("the shop closed"))
    return trace


if __name__ == "__main__":
    folder = Path(__file__).parent
    (folder / "traces.jsonl").unlink(missing_ok=True)
    work = TrainWorkInfo(step=3, policy=PolicySpan(start=2, end=2))
    for trace in (linear(), branched()):
        write_episode(
            folder,
            Episode(
                id=f"episode-{trace.id}",
                env=EnvInfo(id="boards"),
                task=TASK,
                group=GroupInfo(id="group-7"),
                run=TrainRunInfo(id="run-1", work=work),
                ok=trace.ok,
                traces=[trace],
            ),
        )
    (folder / "traces.jsonl").rename(folder / "verifiers.jsonl")
    print((folder / "verifiers.jsonl").stat().st_size, "bytes", file=sys.stderr)
