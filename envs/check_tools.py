"""Checks of tools and messages: schemas, reach, errors as data, output limits, spaces."""

import inspect
import json
import re
import warnings
from collections.abc import Callable
from typing import Any

from gymnasium.utils.env_checker import check_env as check_with_gymnasium

from accredit.credit import CallStatus

from .core import ToolEnv
from .subject import ANSWER, Broken, Subject, example_of, play, write_call
from .tools import ArgumentFault

__all__ = ["TOOL_CHECKS"]

NOT_REACHED = (
    CallStatus.INVALID_JSON,
    CallStatus.UNKNOWN_TOOL,
    CallStatus.INVALID_ARGUMENTS,
    CallStatus.TIMEOUT,
    CallStatus.INFRASTRUCTURE,
)
WRONG = {"string": 7, "integer": "x", "number": "x", "boolean": "x", "array": "x", "object": "x"}
HUGE_CHARACTERS = 200_000
LEAKS = re.compile(r'Traceback \(most recent|File "[^"]+", line \d+|https?://')
MALFORMED = (
    "<tool_call>",
    "<tool_call></tool_call>",
    "<tool_call>{</tool_call>",
    '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "no_such_tool", "arguments": {}}</tool_call>',
    '<tool_call>["name"]</tool_call>',
    "<tool_call>" * 50,
    "</tool_call>",
    "\x00\ud800\uffff",
    "[" * 5000,
)


def schemas_match_signatures(subject: Subject) -> str:
    """Check that what the model is told of a tool is what the tool takes: no more, no less, of the same types."""
    seen = 0
    for env in _at_levels(subject):
        for name, tool in env.tools.items():
            told = tool.schema.parameters
            properties, required = told.get("properties", {}), set(told.get("required", ()))
            if tool.name != name or not tool.schema.description:
                raise Broken(f"tool {name}: it needs a docstring, and the name it is called by (told: {tool.name!r})")
            taken = list(inspect.signature(tool.run).parameters.values())[1:]
            if taken and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
                names = [parameter.name for parameter in taken]
                needed = {parameter.name for parameter in taken if parameter.default is parameter.empty}
                if list(properties) != names or required != needed:
                    raise Broken(f"tool {name}: told {list(properties)} (needed {sorted(required)}), takes {names}")
            _check_bind(name, tool.bind, told, properties, required)
            seen += 1
    return f"{seen} schemas match what their tools take, refuse what they do not"


def every_tool_is_reached(subject: Subject) -> str:
    """Check that a well-written call of every tool arrives and comes back in time."""
    ends: dict[str, set[CallStatus]] = {}
    for seed, options in subject.openings():
        env = subject.make()
        env.reset(seed=seed, options=options)
        for name in env.tools:
            ends.setdefault(name, set())
        calls = subject.calls_of(env)
        scripts = [[call, ANSWER] for call in calls]
        for script in [subject.script(seed, options), *scripts]:
            for name, status in play(subject.make(), script, seed, options).statuses:
                ends.setdefault(name, set()).add(status)
    lost = {name: sorted(found) for name, found in ends.items() if not found - set(NOT_REACHED)}
    if lost:
        told = [f"{name} ({', '.join(found) or 'no call'})" for name, found in lost.items()]
        raise Broken(f"never reached: {'; '.join(told)}")
    never_ok = [name for name, found in ends.items() if not found & {CallStatus.OK, CallStatus.REPAIRED}]
    rest = f"; only seen to refuse made-up arguments: {', '.join(never_ok)}" if never_ok else ""
    return f"{len(ends)} tools are reached{rest}"


def errors_are_data(subject: Subject) -> str:
    """Check that no message raises, errors are told without traces, and a bad call's neighbours run."""
    seed, options = next(subject.openings())
    tried = 0
    env = subject.make()
    env.reset(seed=seed, options=options)
    wrong = [
        write_call(name, arguments, env.call_format)
        for name, tool in env.tools.items()
        for arguments in (
            {key: None for key in tool.schema.parameters.get("properties", {})},
            {"no_such_argument": 1, **_example(tool.schema.parameters)},
            {key: {"deep": [[[]]]} for key in tool.schema.parameters.get("properties", {})},
            _example(tool.schema.parameters, "../../etc/passwd'; DROP TABLE x; --\x00\n" * 3),
        )
    ]
    for message in [*MALFORMED, *wrong, "x" * HUGE_CHARACTERS, *subject.calls_of(env)]:
        env = subject.make()
        env.reset(seed=seed, options=options)
        try:
            messages, *_ = env.step(message)
        except Exception as error:
            raise Broken(f"the message {message[:80]!r} raised {type(error).__name__}: {str(error)[:120]}") from error
        for told in messages:
            leak = LEAKS.search(told.content)
            if leak and told.role == "tool":
                raise Broken(f"the answer to {message[:80]!r} shows the model a trace or a link: {leak.group()!r}")
        tried += 1
    good = subject.calls_of(env)[:1]
    if good:
        env = subject.make()
        env.reset(seed=seed, options=options)
        env.step(good[0] + "<tool_call>{broken</tool_call>" + good[0])
        ends = [result.status for result in env.last_turn.results] if env.last_turn else []
        if len(ends) != 3 or ends[1] is not CallStatus.INVALID_JSON or CallStatus.INVALID_JSON in (ends[0], ends[2]):
            raise Broken(f"[good, broken, good] gave {[str(end) for end in ends]}: a bad call hid its neighbours")
    return f"{tried} malformed, unknown, ill-typed and huge messages came back as data"


def outputs_keep_their_limits(subject: Subject) -> str:
    """Check that no answer is longer than its tool's `output_limit`, whatever is asked."""
    longest = 0
    for seed, options in subject.openings():
        first = subject.make()
        first.reset(seed=seed, options=options)
        huge = [
            write_call(name, _example(tool.schema.parameters, "y" * HUGE_CHARACTERS), first.call_format)
            for name, tool in first.tools.items()
        ]
        for script in (subject.script(seed, options), *([message] for message in huge)):
            env = subject.make()
            env.reset(seed=seed, options=options)
            for message in script:
                if env.stop is not None:
                    break
                for told in env.step(message)[0]:
                    limit = env.tools[told.name].options.output_limit if told.name in env.tools else 4000
                    if told.role == "tool" and len(told.content) > limit:
                        raise Broken(f"{told.name} answered {len(told.content)} characters, its limit is {limit}")
                    longest = max(longest, len(told.content) if told.role == "tool" else 0)
    return f"the longest answer has {longest} characters"


def messages_fit_their_spaces(subject: Subject) -> str:
    """Check that everything said lies in the spaces, survives JSON, and any sample may be said."""
    env = subject.make()
    count = 0
    for seed, options in subject.openings():
        script = subject.script(seed, options)
        said: list[Any] = [env.reset(seed=seed, options=options)[0]]
        for message in script:
            if message not in env.action_space:
                raise Broken(f"the message {message[:80]!r} is not in {env.action_space}")
            if env.stop is None:
                said.append(env.step(message)[0])
        outside = [observed for observed in said if observed not in env.observation_space]
        if outside:
            raise Broken(f"{str(outside[0])[:120]} is not in {env.observation_space}")
        there = json.loads(json.dumps(env.observation_space.to_jsonable(said)))
        if env.observation_space.from_jsonable(there) != said:
            raise Broken("messages do not survive JSON")
        count += len(said)
    env.action_space.seed(0)
    for _ in range(20):
        env.reset(seed=0)
        env.step(env.action_space.sample())
    return f"{count} observations lie in their space and survive JSON; 20 sampled messages were taken"


def gymnasium_is_content(subject: Subject) -> str:
    """Check that gymnasium's own checker passes without a warning."""
    env = subject.make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            check_with_gymnasium(env)
        except Warning as warning:
            raise Broken(f"gymnasium.utils.env_checker.check_env warns: {warning}") from warning
        except Exception as error:
            raise Broken(f"gymnasium.utils.env_checker.check_env: {error}") from error
    return "gymnasium.utils.env_checker.check_env passes without a warning"


def _check_bind(name: str, bind: Callable[..., Any], told: Any, properties: Any, required: set[str]) -> None:
    fits = _example(told)
    try:
        bind(fits)
    except ArgumentFault as fault:
        if not fault.message.startswith("argument"):
            raise Broken(f"tool {name}: {fits} fits what the model is told, but is refused: {fault.message}") from fault
    for what, arguments in {
        "an unknown argument": {**fits, "no_such_argument": 1},
        **{f"no '{key}'": {k: v for k, v in fits.items() if k != key} for key in required},
        **{
            f"{WRONG[part['type']]!r} for '{key}'": {**fits, key: WRONG[part["type"]]}
            for key, part in properties.items()
            if part.get("type") in WRONG
        },
    }.items():
        try:
            bind(arguments)
        except ArgumentFault:
            continue
        raise Broken(f"tool {name} takes {what}, which its schema does not allow")


def _example(parameters: Any, text: str = "") -> dict[str, Any]:
    found = example_of(parameters, parameters, text or "apple", bool(text))
    return found if isinstance(found, dict) else {}


def _at_levels(subject: Subject) -> list[ToolEnv]:
    envs = []
    for seed, options in subject.openings():
        env = subject.make()
        env.reset(seed=seed, options=options)
        envs.append(env)
    return envs


TOOL_CHECKS: dict[str, Callable[[Subject], str]] = {
    "schemas": schemas_match_signatures,
    "tools": every_tool_is_reached,
    "errors": errors_are_data,
    "output limits": outputs_keep_their_limits,
    "spaces": messages_fit_their_spaces,
    "gymnasium": gymnasium_is_content,
}
