"""Names of environments: register, make, list. The table is Gymnasium's own.

A name has the form `Prices-v0` and stands in Gymnasium's registry as `accredit/Prices-v0`. Environments in files and
modules are found by `accredit.envs.loading`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec

from .errors import EnvError

if TYPE_CHECKING:
    from .core import ToolEnv

__all__ = ["NAMESPACE", "Registered", "make", "register", "registered", "spec"]

NAMESPACE = "accredit"
_NAME = re.compile(r"[A-Za-z][\w-]*-v\d+")
_DESCRIPTIONS: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Registered:
    """One registered environment."""

    id: str
    description: str
    entry_point: str


def register(name: str, entry_point: "Callable[..., ToolEnv] | str", description: str = "", **kwargs: Any) -> None:
    """Register an environment under `accredit/NAME`.

    Args:
        name: "Prices-v0"; the version says when results stop being comparable.
        entry_point: a `ToolEnv` class or another callable that makes one, or "package.module:Class" to import later.
        description: one line; the default is the first line of the class's docstring.
        kwargs: settings that `make` passes on, unless told otherwise.

    Raises:
        EnvError: the name is malformed or taken, or the class cannot work.

    """
    full = _full(name)
    if not _NAME.fullmatch(full.removeprefix(f"{NAMESPACE}/")):
        raise EnvError(f"environment name '{name}': expected the form Name-v0 (letters, digits, - and _)")
    if isinstance(entry_point, type):
        _check_class(entry_point)
        description = description or (entry_point.__doc__ or "").strip().split("\n")[0]
    known = gymnasium.registry.get(full)
    if known is not None and _origin(known.entry_point) != _origin(entry_point):
        raise EnvError(
            f"'{full}' is already registered for {_origin(known.entry_point)}: take another name or a higher version"
        )
    gymnasium.registry[full] = EnvSpec(
        id=full, entry_point=entry_point, order_enforce=False, disable_env_checker=True, kwargs=dict(kwargs)
    )
    _DESCRIPTIONS[full] = description


def spec(name: str) -> EnvSpec:
    """Return Gymnasium's record of a registered environment; the namespace may be left out.

    Raises:
        EnvError: the name is unknown; suggests the nearest.

    """
    full = _full(name)
    found = gymnasium.registry.get(full)
    if found is None:
        known = [entry.id.removeprefix(f"{NAMESPACE}/") for entry in registered()]
        short = full.removeprefix(f"{NAMESPACE}/")
        near = get_close_matches(short.lower(), [name.lower() for name in known], 1, 0.5)
        names = [name for name in known if name.lower() in near]
        hint = f"did you mean {' or '.join(names)}?" if names else f"registered: {', '.join(known) or 'none'}"
        raise EnvError(f"unknown environment '{name}', {hint} (a file is named as path/to/file.py:Class)")
    return found


def make(name: str, **kwargs: Any) -> "ToolEnv":
    """Make a registered environment. `kwargs` go to its constructor, over the registered ones.

    Raises:
        EnvError: the name or a setting is unknown, or what is made is no `ToolEnv`.

    """
    from .core import ToolEnv

    found = spec(name)
    try:
        env = gymnasium.make(found, **kwargs)
    except TypeError as error:
        raise EnvError(f"{found.id} cannot be made with {kwargs or found.kwargs}: {error}") from error
    if not isinstance(env, ToolEnv):
        raise EnvError(f"{found.id} makes a {type(env).__name__}, expected a ToolEnv")
    return env


def registered() -> tuple[Registered, ...]:
    """Return all environments under `accredit/`, by name."""
    found = (entry for entry in gymnasium.registry.values() if entry.namespace == NAMESPACE)
    return tuple(
        Registered(entry.id, _DESCRIPTIONS.get(entry.id, ""), _origin(entry.entry_point))
        for entry in sorted(found, key=lambda entry: entry.id)
    )


def _full(name: str) -> str:
    return name if "/" in name else f"{NAMESPACE}/{name}"


def _origin(entry_point: object) -> str:
    if isinstance(entry_point, str):
        return entry_point
    module = getattr(entry_point, "__module__", "?")
    return f"{module}:{getattr(entry_point, '__qualname__', type(entry_point).__qualname__)}"


def _check_class(cls: type) -> None:
    from .core import ToolEnv

    if not issubclass(cls, ToolEnv):
        raise EnvError(f"register: {cls.__name__} is no ToolEnv: write `class {cls.__name__}(ToolEnv)`")
    cast(Any, cls).check_class()
