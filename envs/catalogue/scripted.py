"""What scripted experts of the catalogue share: how they write a call."""

import json
from typing import Any

__all__ = ["format_call"]


def format_call(tool: str, /, **arguments: Any) -> str:
    """Write one call as text, in Hermes form."""
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"
