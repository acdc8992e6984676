"""Reads a tool's docstring: what it does, and what each parameter means (Google style `Args:` sections)."""

import inspect
import re
from typing import NamedTuple

__all__ = ["Docstring", "read_docstring"]

_SECTION = re.compile(r"^(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?|Attributes):\s*$")
_PARAMETER = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


class Docstring(NamedTuple):
    """A docstring's parts: text before its first section, and a description by parameter name."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Split `text`; sections other than the parameters are left out."""
    summary: list[str] = []
    parameters: dict[str, str] = {}
    section, indent, current = "", None, None
    for line in inspect.cleandoc(text or "").splitlines():
        if found := _SECTION.match(line):
            section, indent, current = found[1], None, None
        elif not section:
            summary.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            depth = len(line) - len(line.lstrip())
            if not depth:
                section = "text"
                continue
            indent = depth if indent is None else indent
            named = _PARAMETER.match(line.strip()) if depth <= indent else None
            if named:
                current = named[1]
                parameters[current] = named[2]
            elif current is not None:
                parameters[current] = f"{parameters[current]} {line.strip()}".strip()
    return Docstring(" ".join(" ".join(summary).split()), parameters)
