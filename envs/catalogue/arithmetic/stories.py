"""Word problems: a story of events around a count of things, and the expression that answers its question.

Each event keeps the count a whole number from 0 to a limit. The story is text for the policy; the expression is what
the checker and the expert work with.
"""

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES

from .expressions import LARGEST, Tokens

__all__ = ["draw_story"]

_START = "{name} has {a} {item}."
_BUY = "{name} buys {a} boxes of {b}."
_GIVE = "{name} gives {a} friends {b} each."
_FIND = "{name} finds {a} more."
_LOSE = "{name} loses {a}."
_DOUBLE = "Then the number is {a} times as big."
_SHARE = "All are put into {a} equal boxes. How many are in one box?"
_ASK = "How many are left?"


def draw_story(rng: np.random.Generator, events: int) -> tuple[str, Tokens]:
    """Draw a story of `events` events after the first sentence, and its expression."""
    name, item = str(rng.choice(NAMES)), str(rng.choice(ITEMS))
    count = int(rng.integers(2, 10))
    sentences = [_START.format(name=name, a=count, item=item)]
    tokens: Tokens = [str(count)]
    for _ in range(events):
        sentence, added, count = _event(rng, count)
        sentences.append(sentence.format(name=name, a=added[0], b=added[-1]))
        signs = _SIGNS[sentence]
        tokens = _bracketed(tokens) if sentence == _DOUBLE else tokens
        tokens = [*tokens, *(part for pair in zip(signs, map(str, added), strict=True) for part in pair)]
    divisors = [a for a in range(2, 10) if count % a == 0 and count]
    if divisors and rng.random() < 0.5:
        a = int(rng.choice(divisors))
        sentences.append(_SHARE.format(a=a))
        return " ".join(sentences), [*_bracketed(tokens), "/", str(a)]
    return " ".join([*sentences, _ASK]), tokens


_SIGNS = {_BUY: "+*", _GIVE: "-*", _FIND: "+", _LOSE: "-", _DOUBLE: "*"}


def _bracketed(tokens: Tokens) -> Tokens:
    """Put brackets around a sum, so that it can be a factor."""
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth == 0 and token in ("+", "-"):
            return ["(", *tokens, ")"]
    return tokens


def _event(rng: np.random.Generator, count: int) -> tuple[str, tuple[int, ...], int]:
    """Draw an event that keeps the count in range: sentence, numbers, new count."""
    while True:
        sentence = (_BUY, _GIVE, _FIND, _LOSE, _DOUBLE)[int(rng.integers(5))]
        a, b = int(rng.integers(2, 10)), int(rng.integers(2, 10))
        if sentence == _BUY:
            new, numbers = count + a * b, (a, b)
        elif sentence == _GIVE:
            new, numbers = count - a * b, (a, b)
        elif sentence == _FIND:
            new, numbers = count + a, (a,)
        elif sentence == _LOSE:
            new, numbers = count - a, (a,)
        else:
            new, numbers = count * a, (a,)
        if 0 < new <= LARGEST:
            return sentence, numbers, new
