"""Runs what an author wrote (`setup`, `reply`, `reward`) within its time, and names the hook when it fails."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from accredit.sandboxes.errors import SandboxError

from .errors import EnvError, InfrastructureError
from .execution import run_inline, start_in_thread
from .results import error_text

if TYPE_CHECKING:
    from .core import ToolEnv

__all__ = ["run_hook", "score"]


def run_hook(env: "ToolEnv", hook: str, work: Callable[[], Any]) -> Any:
    """Return what `work` returns; it may take `env.hook_timeout_s` seconds.

    Raises:
        EnvError: it failed or took too long; names class and hook.
        InfrastructureError: it says that a machine failed.

    """
    limit = env.hook_timeout_s
    name = f"{type(env).__name__}.{hook}()"
    outcome = run_inline(work) if limit is None else start_in_thread(work, limit, hook)()
    if outcome.expired:
        if outcome.left_behind is not None:
            env.leave_behind(hook, outcome.left_behind)
        raise EnvError(f"{name} did not end within {limit:g} s: make it faster, or raise hook_timeout_s")
    error = outcome.error
    if isinstance(error, (EnvError, InfrastructureError, SandboxError)):
        raise error
    if isinstance(error, NotImplementedError):
        type(env).check_class()
    if error is not None:
        raise EnvError(f"{name} failed: {error_text(error)}") from error
    return outcome.value


def score(env: "ToolEnv") -> float:
    """Return `env.reward()`.

    Raises:
        EnvError: it failed, or gave anything but a finite number.

    """
    given = run_hook(env, "reward", env.reward)
    name = type(env).__name__
    if not isinstance(given, (bool, int, float, np.number, np.bool_)):
        raise EnvError(f"{name}.reward() gave {given!r:.60} ({type(given).__name__}), expected a number")
    value = float(given)
    if not math.isfinite(value):
        raise EnvError(f"{name}.reward() gave {value}, expected a finite number")
    return value
