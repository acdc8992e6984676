"""Copies an episode: everything an instance holds, apart from what it names as shared."""

import copy
from collections.abc import Iterable
from typing import Any, TypeVar

from .errors import EnvError

__all__ = ["fork_of"]

Env = TypeVar("Env")


def fork_of(env: Env, shared: Iterable[str]) -> Env:
    """Return a copy of `env` whose attributes are deep copies; those in `shared` are the same objects.

    References from the state back to `env` lead to the copy.

    Raises:
        EnvError: an attribute cannot be copied; names it.

    """
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
    return clone
