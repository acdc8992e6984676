"""What the model is told of its tools, as text.

Two forms: `json`, one JSON object a line between tags, for models that were trained on it; `signature`, one compact
line a tool, for small models. Neither is encoded here.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .messages import ToolSchema

__all__ = ["ToolsFormat", "call_text", "signature", "tools_text"]

ToolsFormat = Literal["json", "signature"]

_CALL = '<tool_call>{"name": NAME, "arguments": {ARGUMENTS}}</tool_call>'
_JSON_HEAD = (
    "# Tools\n\nThese tools can be called. Each line within <tools></tools> is the JSON schema of one:\n<tools>\n"
)
_JSON_TAIL = "\n</tools>\n\nTo call a tool, write one JSON object with its name and its arguments within tags:\n"
_SIGNATURE_HEAD = "Tools:\n"
_SIGNATURE_TAIL = "\nCall: "


def tools_text(tools: Sequence[ToolSchema], form: ToolsFormat = "json") -> str:
    """Return the block that tells a model of `tools`; "" without tools."""
    if not tools:
        return ""
    if form == "signature":
        return _SIGNATURE_HEAD + "\n".join(map(signature, tools)) + _SIGNATURE_TAIL + _CALL
    return _JSON_HEAD + "\n".join(map(_schema_line, tools)) + _JSON_TAIL + _CALL


def signature(tool: ToolSchema) -> str:
    """Return a tool as one line: `name(arg: string, qty?: integer): what it does`."""
    required = set(tool.parameters.get("required", ()))
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    inside = ", ".join(
        f"{name}{'' if name in required else '?'}: {_type(schema, tool.parameters)}"
        for name, schema in properties.items()
    )
    says = " ".join(tool.description.split())
    return f"{tool.name}({inside}): {says}" if says else f"{tool.name}({inside})"


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as a model writes it in the Hermes format, on one line."""
    body = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
    return f"<tool_call>{body}</tool_call>"


def _schema_line(tool: ToolSchema) -> str:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def _type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> str:
    if "$ref" in schema and depth < 4:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        return _type(root.get("$defs", {}).get(name, {}), root, depth + 1)
    if "enum" in schema:
        return "|".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return "|".join(_type(option, root, depth + 1) for option in schema[choice])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return "|".join(kind)
    if kind == "array" and depth < 4:
        return f"array of {_type(schema.get('items', {}), root, depth + 1)}"
    return str(kind)
