"""Copies an episode: everything an instance holds, apart from what it names as shared.

A copy goes on alike, because its generators are copied with everything else. `reseeded` gives it other luck: every
generator that the copy reaches, however deep in its state, then draws from a stream of the new seed.
"""

import copy
import random
from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np

from .errors import EnvError

__all__ = ["fork_of"]

Env = TypeVar("Env")
_FIRST = ("rng", "_np_random")  # these have the same stream of a seed in every instance, whatever else it holds


def fork_of(env: Env, shared: Iterable[str], seed: int | None = None) -> Env:
    """Return a copy of `env` whose attributes are deep copies; those in `shared` are the same objects.

    References from the state back to `env` lead to the copy. With a `seed`, all copied generators are re-seeded in
    place, so that a state which keeps a reference to one has other luck too.

    Raises:
        EnvError: an attribute cannot be copied, names it; or the seed is not an integer of at least 0.

    """
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0):
        raise EnvError(f"{type(env).__name__}.fork(): seed is {seed!r}, expected an integer of at least 0, or None")
    clone: Any = type(env).__new__(type(env))
    kept = set(shared)
    memo: dict[int, Any] = {id(env): clone}
    for name, value in vars(env).items():
        try:
            vars(clone)[name] = value if name in kept else copy.deepcopy(value, memo)
        except Exception as error:
            raise EnvError(
                f"{type(env).__name__}.fork() cannot copy self.{name} ({type(value).__qualname__}: {error}): keep "
                f"plain data in self.state, name '{name}' in `shared` if it is only read, or override fork()"
            ) from error
    if seed is not None:
        named = [vars(clone).get(name) for name in _FIRST if name not in kept]
        _reseed([*named, *memo.values()], int(seed))
    return clone


def _reseed(copied: Iterable[Any], seed: int) -> None:
    """Give each generator among `copied` its own stream of `seed`; everything else is passed over."""
    done: set[int] = set()
    for value in copied:
        bits: Any = value
        if isinstance(value, np.random.Generator):
            bits = value.bit_generator
        elif isinstance(value, np.random.RandomState):
            bits = value._bit_generator
        if id(bits) in done:
            continue
        if isinstance(bits, np.random.BitGenerator):
            bits.state = type(bits)(np.random.SeedSequence([seed, len(done)])).state  # type: ignore[call-arg]
        elif isinstance(bits, random.Random):
            bits.seed(f"{seed} {len(done)}")
        else:
            continue
        done.add(id(bits))
