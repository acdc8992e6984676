"""Docstrings and tables as Markdown, for build_reference.py."""

import re

__all__ = ["NOTE", "cell", "fenced", "prose"]

NOTE = "<!-- Written by docs/build_reference.py: edit the docstring, then run it again. -->"
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Settings[^:]*|What an episode has):\s*$")


def fenced(text: str) -> list[str]:
    """Return a block of text."""
    return ["```text", *text.splitlines(), "```"]


def prose(docstring: str) -> list[str]:
    """Return a docstring as Markdown: its sections as lists, the rest as it is."""
    lines: list[str] = []
    section = False
    for line in docstring.splitlines():
        if head := _SECTION.match(line):
            section = True
            lines += [f"**{head[1]}**", ""]
        elif section and line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = line.strip().partition(":")
            known = colon and " " not in name
            lines.append(f"- `{name}`:{rest}" if known else f"- {line.strip()}" if not continues(lines) else line[2:])
        elif section and line.startswith("     "):
            lines.append("  " + line.strip())
        else:
            section = section and not line.strip()
            lines.append(line)
    return lines


def continues(lines: list[str]) -> bool:
    """Whether the line before belongs to the same entry of a list."""
    return bool(lines) and lines[-1].startswith(("- ", "  "))


def cell(text: str) -> str:
    """Return text that may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")
