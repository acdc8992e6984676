"""Settings of an environment and options of `reset`: what is allowed, and what is said about the rest."""

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.credit import CallStatus

from .errors import EnvError
from .task import SPLITS

if TYPE_CHECKING:
    from .core import ToolEnv

__all__ = ["check_settings", "nearest", "read_options"]

OPTIONS = ("split", "level", "luck", "task", "index")


def check_settings(env: "ToolEnv") -> None:
    """Raise `EnvError` unless an instance's settings make sense."""
    name = type(env).__name__
    amounts = {"charge": env.charge, "repair_charge": env.repair_charge, **dict(env.charges)}
    for reason, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            raise EnvError(f"{name}: the amount of '{reason}' is {amount}, expected 0 (no charge) or more")
    unknown = [reason for reason in env.charges if reason not in list(CallStatus)]
    if unknown:
        raise EnvError(f"{name}: charges has '{unknown[0]}', {nearest(unknown[0], list(CallStatus))}")
    if env.max_turns < 1:
        raise EnvError(f"{name}: max_turns is {env.max_turns}, expected at least 1")
    if env.max_calls is not None and env.max_calls < 0:
        raise EnvError(f"{name}: max_calls is {env.max_calls}, expected at least 0, or None for any number")
    read_options(env, {"split": env.split, **({"level": env.level} if env.level else {})})


def read_options(env: "ToolEnv", options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `reset`, checked.

    Raises:
        EnvError: a name or a value is unknown; suggests the nearest.

    """
    where = f"{type(env).__name__}.reset"
    known = [*OPTIONS, *env.option_names]
    for option in options:
        if option not in known:
            raise EnvError(f"{where}: unknown option '{option}', {nearest(option, known)}")
    for option, values in (("split", SPLITS), ("level", env.levels)):
        if option in options and options[option] not in values:
            raise EnvError(f"{where}: unknown {option} '{options[option]}', {nearest(options[option], values)}")
    luck = options.get("luck", 0)
    if isinstance(luck, bool) or not isinstance(luck, (int, np.integer)) or luck < 0:
        raise EnvError(f"{where}: option luck is {luck!r}, expected an integer of at least 0")
    return options


def nearest(name: Any, known: Sequence[str]) -> str:
    """Say which known name was probably meant, or list them."""
    near = get_close_matches(str(name), known, 1)
    return f"did you mean '{near[0]}'?" if near else f"expected one of: {', '.join(known) or 'none'}"
