"""Failing calls for a scripted player: each is made once, answered by an error, and repeated as it should have been."""

import json
import random
from collections.abc import Iterator
from typing import Any

from accredit.envs.catalogue.words import ITEMS, NAMES, WORDS

__all__ = ["with_slips"]

_WRONG = {"item": (*WORDS, *NAMES), "name": (*ITEMS, *WORDS), "sku": (*ITEMS, *NAMES), "code": (*ITEMS, *NAMES)}
"""Values that a key never takes."""

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def with_slips(plan: Iterator[str], rng: random.Random, rate: float) -> Iterator[str]:
    """Play `plan`, and before each of its calls, with probability `rate`, a failing version of it."""
    for said in plan:
        while said.startswith(_OPEN) and rng.random() < rate:
            yield slip(said, rng)
        yield said


def slip(said: str, rng: random.Random) -> str:
    """Return a call that fails where the given one would not: a wrong value, name, key or bracket."""
    body = said.removeprefix(_OPEN).removesuffix(_CLOSE)
    call: dict[str, Any] = json.loads(body)
    arguments: dict[str, Any] = call["arguments"]
    kind = rng.choice(["value", "value", "value", "name", "missing", "extra", "cut"])
    if kind == "cut" or not arguments:
        return _OPEN + body[: rng.randint(2, len(body) - 1)] + rng.choice(["", _CLOSE])
    key = rng.choice(list(arguments))
    if kind == "value":
        arguments[key] = rng.choice([*_WRONG.get(key, ()), "", "slow?", 0])
    elif kind == "name":
        call["name"] = rng.choice([*WORDS, *ITEMS])
    elif kind == "missing":
        del arguments[key]
    else:
        arguments[rng.choice(["item", "name", "sku", "qty", "code"])] = rng.choice([*WORDS, *ITEMS])
    return _OPEN + json.dumps(call) + _CLOSE
