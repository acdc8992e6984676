"""What a person types into `accredit play`, turned into the assistant's message.

`price item=apple` calls the tool `price`, if there is one; a line that holds `<tool_call>` is sent as it is; anything
else is an answer in words. Nothing is checked here: a wrong argument is the environment's to refuse and to charge.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from accredit.envs.messages import ToolSchema

__all__ = ["message_from", "usage"]


def message_from(line: str, tools: Mapping[str, ToolSchema]) -> str:
    """Return the message for a typed line.

    A line is a call when its first word names a tool and every other word is `name=value`. Values are read as JSON
    (`qty=3`, `on=true`, `ids=[1,2]`) unless the tool's parameter is a string; quotes keep spaces together.
    """
    try:
        name, *words = shlex.split(line)
    except ValueError:  # no words, or a quote without its partner
        return line
    pairs = [word.partition("=") for word in words]
    if name not in tools or not all(key.isidentifier() and sign for key, sign, _ in pairs):
        return line
    properties = tools[name].parameters.get("properties", {})
    arguments = {key: _value(text, properties.get(key, {})) for key, _, text in pairs}
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"


def usage(schema: ToolSchema) -> str:
    """Return one line: `price item=STRING  Unit price of an item.`; optional parameters stand in brackets."""
    required = schema.parameters.get("required", [])
    words = [schema.name]
    for name, property_ in schema.parameters.get("properties", {}).items():
        word = f"{name}={str(property_.get('type', 'json')).upper()}"
        words.append(word if name in required else f"[{word}]")
    return f"{' '.join(words)}  {schema.description.splitlines()[0] if schema.description else ''}".rstrip()


def _value(text: str, property_: Mapping[str, Any]) -> Any:
    if property_.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
