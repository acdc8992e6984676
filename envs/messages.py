"""Messages and tool schemas: what a conversation is made of before anything becomes a token."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Message", "Role", "ToolSchema"]

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `name` and `call_id` say which tool and which call a message of role `tool` answers."""

    role: Role
    content: str
    name: str | None = None
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """What the model is told of a tool. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
