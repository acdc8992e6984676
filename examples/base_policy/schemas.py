"""Random tool schemas and short conversations over them: what teaches the base policy to copy.

Every conversation has its own tools, names, keys and values. Nothing in it can be learnt by heart except the forms:
read the signatures, write a valid call, carry values from the request and from results into the next call, answer.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from accredit.envs.catalogue.words import ITEMS, NAMES, WORDS
from accredit.envs.messages import Message, ToolSchema

__all__ = ["Conversation", "conversation"]

VERBS = "get read list show check send make open book mark save load".split()
NOUNS = (
    "price stock name day city room seat order page score size color code key owner date rate level team note".split()
)
VALUES = (*WORDS, *ITEMS, *NAMES)


class Conversation(NamedTuple):
    """A prompt, and turns of (what the assistant writes, what the tools answer)."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]
    turns: tuple[tuple[str, tuple[Message, ...]], ...]


def conversation(seed: int) -> Conversation:
    """Return the conversation of a seed."""
    rng = random.Random(seed)
    kind: Callable[[random.Random], Conversation] = rng.choice(
        [_relay, _relay, _relay, _wish, _wish, _question, _question, _bill, _chain]
    )
    return kind(rng)


def _call(tool: str, **arguments: Any) -> str:
    return "<tool_call>" + json.dumps({"name": tool, "arguments": arguments}) + "</tool_call>"


def _answer(tool: str, value: Any) -> tuple[Message, ...]:
    return (Message("tool", value if isinstance(value, str) else json.dumps(value), name=tool, call_id="call_0"),)


def _tool(rng: random.Random, name: str, arguments: dict[str, str]) -> ToolSchema:
    words = " ".join(rng.choice(NOUNS) for _ in range(rng.randint(1, 3)))
    description = f"{rng.choice(VERBS).capitalize()} {words}." if rng.random() < 0.8 else ""
    properties = {argument: {"type": kind} for argument, kind in arguments.items()}
    return ToolSchema(name, description, {"type": "object", "properties": properties, "required": list(arguments)})


def _name(rng: random.Random) -> str:
    if rng.random() < 0.08:
        return _letters(rng)
    return rng.choice([rng.choice(VERBS), rng.choice(NOUNS), f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"])


def _letters(rng: random.Random) -> str:
    return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 6)))


def _value(rng: random.Random) -> Any:
    draw = rng.random()
    if draw < 0.6:
        return rng.choice(VALUES)
    if draw < 0.8:
        return rng.randint(0, 99)
    if draw < 0.88:
        return rng.random() < 0.5
    if draw < 0.94:
        return round(rng.randint(1, 99) / 2, 1)
    return _letters(rng)


def _kind(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return kinds[type(value)]


def _keys(rng: random.Random, count: int) -> list[str]:
    return rng.sample([*NOUNS, "sku", "id", "item", "qty", "ref"], count)


def _with_others(rng: random.Random, *tools: ToolSchema) -> tuple[ToolSchema, ...]:
    others = {_name(rng): _keys(rng, rng.randint(0, 2)) for _ in range(rng.randint(0, 4))}
    taken = {tool.name for tool in tools}
    schemas = list(tools) + [
        _tool(rng, name, {key: rng.choice(["string", "integer"]) for key in keys})
        for name, keys in others.items()
        if name not in taken
    ]
    return tuple(rng.sample(schemas, len(schemas)))


def _opening(rng: random.Random, text: str) -> tuple[Message, ...]:
    system = rng.choice(["", "", "Use the tools.", "Be brief.", "One call a turn."])
    return (*([Message("system", system)] if system else []), Message("user", text))


def _relay(rng: random.Random) -> Conversation:
    """Read some values with one tool and hand them to another, keys shuffled."""
    source, target = _distinct(rng)
    keys = _keys(rng, rng.randint(1, 6))
    values = {key: _value(rng) for key in keys}
    subject = rng.choice(VALUES)
    handed = rng.sample(keys, rng.randint(1, len(keys)))
    tools = _with_others(
        rng,
        _tool(rng, source, {"of": "string"}),
        _tool(rng, target, {key: _kind(values[key]) for key in handed}),
    )
    return Conversation(
        _opening(rng, f"{source} {subject}, then {target}."),
        tools,
        (
            (_call(source, of=subject), _answer(source, values)),
            (_call(target, **{key: values[key] for key in handed}), _answer(target, "ok")),
            ("done", ()),
        ),
    )


def _wish(rng: random.Random) -> Conversation:
    """Call with what the request says by key, shuffled, often after a look-up; some keys allow few values only."""
    source, target = _distinct(rng)
    keys = _keys(rng, rng.randint(1, 3))
    wishes = {key: rng.choice(VALUES) for key in keys}
    subject = rng.choice(VALUES)
    allowed = {
        key: {"type": "string", "enum": rng.sample(others, len(others))}
        for key, value in wishes.items()
        if rng.random() < 0.5 and (others := list(dict.fromkeys([value, *rng.sample(VALUES, rng.randint(1, 2))])))
    }
    plain = _tool(rng, target, {"of": "string", **dict.fromkeys(wishes, "string")})
    properties = {**plain.parameters["properties"], **allowed}
    tools = _with_others(
        rng,
        _tool(rng, source, {"of": "string"}),
        replace(plain, parameters={**plain.parameters, "properties": properties}),
    )
    found = {key: _value(rng) for key in _keys(rng, rng.randint(1, 4)) if key not in wishes}
    first = rng.random() < 0.7
    looked_up = ((_call(source, of=subject), _answer(source, found)),) if first else ()
    wording = ", ".join(f"{key} {value}" for key, value in wishes.items())
    handed = dict(rng.sample(list(wishes.items()), len(wishes)))
    return Conversation(
        _opening(rng, f"{source + ', then ' if first else ''}{target} {subject}, {wording}."),
        tools,
        (*looked_up, (_call(target, of=subject, **handed), _answer(target, "ok")), ("done", ())),
    )


def _question(rng: random.Random) -> Conversation:
    """Answer a question with what a tool says."""
    key, subject, argument = rng.choice(NOUNS), rng.choice(VALUES), rng.choice(["of", "item", "name", "key", "id"])
    tool = rng.choice([key, f"get_{key}", f"{key}_of", _name(rng)])
    value = _value(rng)
    text = rng.choice([f"What is the {key} of {subject}?", f"{key} of {subject}", f"Tell me the {key} of {subject}."])
    said = value if rng.random() < 0.5 else {key: value}
    plain = value if isinstance(value, str) else json.dumps(value)
    return Conversation(
        _opening(rng, text),
        _with_others(rng, _tool(rng, tool, {argument: "string"})),
        ((_call(tool, **{argument: subject}), _answer(tool, said)), (plain, ())),
    )


def _bill(rng: random.Random) -> Conversation:
    """Multiply a price by a quantity."""
    item, count = rng.choice(VALUES), rng.randint(2, 9)
    tool = rng.choice(["price", "get_price", "cost", "unit_price", "price_of"])
    argument = rng.choice(["item", "name", "of"])
    price: float = rng.randint(1, 9) if rng.random() < 0.5 else float(rng.randint(1, 9))
    plural = f"{item}s" if rng.random() < 0.7 else item
    text = rng.choice(
        [f"What do {count} {plural} cost?", f"Price of {count} {plural}?", f"How much are {count} {plural}?"]
    )
    return Conversation(
        _opening(rng, text),
        _with_others(rng, _tool(rng, tool, {argument: "string"})),
        ((_call(tool, **{argument: item}), _answer(tool, price)), (json.dumps(price * count), ())),
    )


def _chain(rng: random.Random) -> Conversation:
    """Follow one reference to the next."""
    first, second = _distinct(rng)
    link, key = _keys(rng, 2)
    subject, middle, value = rng.choice(VALUES), rng.choice(VALUES), _value(rng)
    noise = {other: _value(rng) for other in _keys(rng, rng.randint(0, 2)) if other not in (link, key)}
    result = dict(rng.sample([(link, middle), *noise.items()], 1 + len(noise)))
    tools = _with_others(rng, _tool(rng, first, {"name": "string"}), _tool(rng, second, {link: "string"}))
    return Conversation(
        _opening(rng, f"The {key} of {subject}, by {first} and {second}."),
        tools,
        (
            (_call(first, name=subject), _answer(first, result)),
            (_call(second, **{link: middle}), _answer(second, {key: value})),
            (value if isinstance(value, str) else json.dumps(value), ()),
        ),
    )


def _distinct(rng: random.Random) -> tuple[str, str]:
    first = second = _name(rng)
    while second == first:
        second = _name(rng)
    return first, second
