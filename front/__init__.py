"""Accredit: reinforcement learning of tool-using language-model agents, with credit that is right by construction.

The names below, and the rooms themselves (`accredit.envs`, `accredit.credit`, ...), are imported when first asked for,
so that `import accredit` costs nothing and a trainer that needs only `accredit.credit` gets numpy only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from accredit import agents, credit, envs, replay, sandboxes, trainer
    from accredit.credit import AccreditError, Call, CallStatus, Credit, Group, Recorder, Trajectory
    from accredit.envs import (
        Decision,
        EnvError,
        Message,
        ParseError,
        RecordCredit,
        Task,
        ToolEnv,
        ToolError,
        make,
        register,
        tool,
    )

__all__ = [
    "AccreditError",
    "Call",
    "CallStatus",
    "Credit",
    "Decision",
    "EnvError",
    "Group",
    "Message",
    "ParseError",
    "RecordCredit",
    "Recorder",
    "Task",
    "ToolEnv",
    "ToolError",
    "Trajectory",
    "__version__",
    "agents",
    "credit",
    "envs",
    "make",
    "register",
    "replay",
    "sandboxes",
    "tool",
    "trainer",
]

_ROOMS = frozenset({"agents", "credit", "envs", "replay", "sandboxes", "trainer"})
_FROM_CREDIT = frozenset({"AccreditError", "Call", "CallStatus", "Credit", "Group", "Recorder", "Trajectory"})


def __getattr__(name: str) -> Any:
    """Import a public name, or a room, when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'accredit' has no attribute {name!r}")
    if name in _ROOMS:
        return import_module(f"accredit.{name}")
    value = getattr(import_module("accredit.credit" if name in _FROM_CREDIT else "accredit.envs"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
