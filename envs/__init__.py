"""Environments: tools, tasks, parsing of calls, rendering, the recorder wrapper and the catalogue.

Names are imported when they are first used, so that `import accredit.envs` costs little more than Gymnasium.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import catalogue  # registers its environments

if TYPE_CHECKING:
    from .calls import ParsedCall, ParsedMessage, parse_calls
    from .check import CheckResult
    from .check import check as check_env
    from .core import ToolEnv
    from .errors import EnvError, InfrastructureError, ParseError, RenderError, ToolError
    from .loading import load_env
    from .messages import Message, ToolSchema
    from .recorder import Decision, RecordCredit
    from .registry import Registered, make, register, registered, spec
    from .rendering import Renderer, make_renderer
    from .results import CallResult, CharCharge, TurnReport
    from .spaces import MessageSpace, MessagesSpace
    from .task import Task
    from .tools import Tool, tool

_HOMES = {
    "calls": ("ParsedCall", "ParsedMessage", "parse_calls"),
    "check": ("CheckResult", "check_env"),
    "core": ("ToolEnv",),
    "errors": ("EnvError", "InfrastructureError", "ParseError", "RenderError", "ToolError"),
    "loading": ("load_env",),
    "messages": ("Message", "ToolSchema"),
    "recorder": ("Decision", "RecordCredit"),
    "registry": ("Registered", "make", "register", "registered", "spec"),
    "rendering": ("Renderer", "make_renderer"),
    "results": ("CallResult", "CharCharge", "TurnReport"),
    "spaces": ("MessageSpace", "MessagesSpace"),
    "task": ("Task",),
    "tools": ("Tool", "tool"),
}
_NAMED_OTHERWISE = {"check_env": "check"}
"""`accredit.envs.check` is the module; its function `check` is `check_env` here."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CallResult",
    "CharCharge",
    "CheckResult",
    "Decision",
    "EnvError",
    "InfrastructureError",
    "Message",
    "MessageSpace",
    "MessagesSpace",
    "ParseError",
    "ParsedCall",
    "ParsedMessage",
    "RecordCredit",
    "Registered",
    "RenderError",
    "Renderer",
    "Task",
    "Tool",
    "ToolEnv",
    "ToolError",
    "ToolSchema",
    "TurnReport",
    "catalogue",
    "check_env",
    "load_env",
    "make",
    "make_renderer",
    "parse_calls",
    "register",
    "registered",
    "spec",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'accredit.envs' has no attribute '{name}'")
    value = getattr(import_module(f".{home}", __name__), _NAMED_OTHERWISE.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
