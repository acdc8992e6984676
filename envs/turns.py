"""Runs the calls of one turn and says how each ended.

One bad call never hides its neighbours, results keep the order of the calls, and every failure finds its charge on the
characters that caused it. Infrastructure faults are never charged. This module keeps no state of its own.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

from accredit.credit import CallStatus
from accredit.sandboxes.errors import SandboxError

from .calls import ParsedCall, ParsedMessage
from .errors import EnvError, InfrastructureError, ToolError
from .execution import Outcome, Running, run_inline, start_in_thread, start_on_loop
from .jsonspans import narrow
from .results import CallResult, CharCharge, cut_middle, error_text, result_text
from .tools import ArgumentFault, Tool

if TYPE_CHECKING:
    from .core import ToolEnv

__all__ = ["RunningCall", "current_call", "run_calls", "value_range"]


@dataclass(slots=True)
class RunningCall:
    """The call that the current thread or coroutine is running, and what its tool has declared so far.

    `kept` are JSON values for `Call.detail`, however the call ends.
    """

    env: "ToolEnv"
    text: str
    call: ParsedCall
    declared: list[CharCharge] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call that passed all checks and may run."""

    index: int
    tool: Tool
    arguments: Mapping[str, Any]
    running: RunningCall


_CURRENT: ContextVar[RunningCall | None] = ContextVar("accredit_running_call", default=None)


def current_call() -> RunningCall | None:
    """Return the call being run in this context, None outside of a tool."""
    return _CURRENT.get()


def value_range(call: ParsedCall, path: str) -> tuple[int, int]:
    """Return the characters of the value at a JSON path: of its nearest known owner, at last of the whole call."""
    while path not in call.argument_ranges:
        cut = max(path.rfind("."), path.rfind("["))
        if cut < 1:
            return call.start, call.end
        path = path[:cut]
    return call.argument_ranges[path]


def run_calls(env: "ToolEnv", parsed: ParsedMessage, calls_left: int | None) -> tuple[CallResult, ...]:
    """Run the calls of a message, in order; neighbours that are all `parallel` run at once.

    Args:
        env: the environment whose tools are called.
        parsed: the assistant's message.
        calls_left: how many calls the episode may still make, None for any number; the others are refused, uncharged.

    Raises:
        EnvError: a tool is wrongly written.

    """
    results: dict[int, CallResult] = {}
    batch: list[_Ready] = []
    for index, call in enumerate(parsed.calls):
        if calls_left is not None and index >= calls_left:
            said = f"Error: the limit of {env.max_calls} calls is reached"
            results[index] = CallResult(index, CallStatus.REFUSED, said)
            continue
        ready = _check(env, parsed.text, index, call)
        if isinstance(ready, CallResult):
            results[index] = ready
            continue
        if batch and not (ready.tool.options.parallel and batch[-1].tool.options.parallel):
            results.update(_run(env, batch))
            batch = []
        batch.append(ready)
    results.update(_run(env, batch))
    return tuple(results[index] for index in range(len(parsed.calls)))


def _check(env: "ToolEnv", text: str, index: int, call: ParsedCall) -> _Ready | CallResult:
    running = RunningCall(env, text, call)
    fault = call.fault
    if fault is not None:
        return _failed(running, index, None, fault.status, fault.message, (fault.start, fault.end))
    tool = env.tools.get(call.name)
    if tool is None:
        near = get_close_matches(call.name, env.tools, 1)
        hint = f"did you mean {near[0]}?" if near else f"tools: {', '.join(env.tools) or 'none'}"
        message = f"unknown tool {call.name[:60]!r}, {hint}"
        return _failed(running, index, None, CallStatus.UNKNOWN_TOOL, message, call.name_range)
    try:
        arguments = tool.bind(call.arguments or {})
    except ArgumentFault as wrong:
        where = value_range(call, wrong.path)
        return _failed(running, index, tool, CallStatus.INVALID_ARGUMENTS, f"{tool.name}: {wrong.message}", where)
    return _Ready(index, tool, arguments, running)


def _run(env: "ToolEnv", batch: Sequence[_Ready]) -> dict[int, CallResult]:
    if len(batch) == 1 and batch[0].tool.options.timeout_s is None and not batch[0].tool.is_async:
        ready = batch[0]
        return {ready.index: _settle(env, ready, run_inline(partial(_enter, env, ready)))}
    started = [(ready, _start(env, ready)) for ready in batch]
    return {ready.index: _settle(env, ready, finish()) for ready, finish in started}


def _start(env: "ToolEnv", ready: _Ready) -> Running:
    limit = ready.tool.options.timeout_s
    if ready.tool.is_async:
        return start_on_loop(env.private_loop(), partial(_enter_async, env, ready), limit)
    return start_in_thread(partial(_enter, env, ready), limit, ready.tool.name)


def _enter(env: "ToolEnv", ready: _Ready) -> Any:
    token = _CURRENT.set(ready.running)
    try:
        return ready.tool.run(env, **ready.arguments)
    finally:
        _CURRENT.reset(token)


async def _enter_async(env: "ToolEnv", ready: _Ready) -> Any:
    _CURRENT.set(ready.running)
    return await ready.tool.run(env, **ready.arguments)


def _settle(env: "ToolEnv", ready: _Ready, outcome: Outcome) -> CallResult:
    tool, call, index, running = ready.tool, ready.running.call, ready.index, ready.running
    fail = partial(_failed, running, index, tool, outcome=outcome)
    error = outcome.error
    if outcome.expired:
        if outcome.left_behind is not None:
            env.leave_behind(tool.name, outcome.left_behind)
        return fail(CallStatus.TIMEOUT, f"{tool.name} did not answer within {tool.options.timeout_s:g} s")
    if isinstance(error, ToolError):
        where = None
        if error.argument is not None:
            where = value_range(call, f"$.{error.argument}")
            if error.source_range is not None and f"$.{error.argument}" in call.argument_ranges:
                where = narrow(running.text, where, error.source_range)
        return fail(error.status, error.message, where, detail=error.detail)
    if isinstance(error, (InfrastructureError, SandboxError)):
        return fail(CallStatus.INFRASTRUCTURE, f"{tool.name} is out of order: {error_text(error)}")
    if isinstance(error, EnvError):
        raise error
    if error is not None:
        return fail(CallStatus.TOOL_ERROR, error_text(error))
    try:
        said = result_text(outcome.value, tool.returns_nothing)
    except EnvError as wrong:
        raise EnvError(f"tool {type(env).__name__}.{tool.name} returned {wrong}") from wrong
    text, cut = cut_middle(said, tool.options.output_limit)
    status = CallStatus.REPAIRED if call.repairs else CallStatus.OK
    charges = list(running.declared)
    amount = env.amount_of(status, tool)
    if call.repairs and amount > 0:
        charges.insert(0, CharCharge(call.start, call.end, amount, str(status)))
    at = _episode_s(env, outcome)
    return CallResult(index, status, text, cut, at, outcome.duration_s, dict(running.kept), tuple(charges))


def _failed(
    running: RunningCall,
    index: int,
    tool: Tool | None,
    status: CallStatus,
    message: str,
    where: tuple[int, int] | None = None,
    *,
    outcome: Outcome | None = None,
    detail: Mapping[str, Any] | None = None,
) -> CallResult:
    env, call = running.env, running.call
    start, end = where if where is not None and where[0] < where[1] else (call.start, call.end)
    charges: tuple[CharCharge, ...] = ()
    if status is not CallStatus.INFRASTRUCTURE:
        amount = env.amount_of(status, tool)
        own = (CharCharge(start, end, amount, str(status)),) if amount > 0 else ()
        charges = (*own, *running.declared)
    limit = tool.options.output_limit if tool else 4000
    text, cut = cut_middle(f"Error: {message}", limit)
    at = None if outcome is None else _episode_s(env, outcome)
    took = None if outcome is None else outcome.duration_s
    return CallResult(index, status, text, cut, at, took, {**running.kept, **(detail or {})}, charges)


def _episode_s(env: "ToolEnv", outcome: Outcome) -> float:
    return outcome.started_at - env.started_at
