"""Reads the text of a shell command: its simple commands, their places, and a copy that reports how each of them ended.

In the copy every simple command is run through a shell function, `_REPORT`, which knows the command's number and writes
it with the exit status to descriptor 9. Lines stay lines. Commands that work on the caller's own frame (`set`, `shift`,
`exit`, ...) are left as they are. Nothing is run here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import tree_sitter
import tree_sitter_bash

__all__ = ["Command", "Script", "parse"]

_REPORT = "__ran"
PRELUDE = f'{_REPORT}() {{ "${{@:2}}"; set -- "$1" "$?"; builtin printf "%d %d\\n" "$1" "$2" >&9; return "$2"; }}; '
"""Defines the reporting function, in front of the first line. It has no variables that a command could meet."""

MARK = _REPORT + " {} "
_OWN_FRAME = frozenset(
    "break builtin continue coproc declare exec exit local readonly return set shift time trap typeset".split()
)
_MOST_COMMANDS = 200
_INNER = frozenset(("command_substitution", "subshell", "compound_statement", "process_substitution", "do_group"))


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: characters `[start, end)`, its name at `[start, name_end)` after assignments, its words.

    `pipeline` is the number of the innermost pipeline that it is a part of, None outside of one. `tested` says that it
    is a condition, or negated: how it ends decides what runs, and is not how the text ends.
    """

    start: int
    end: int
    name_start: int
    name_end: int
    words: tuple[str, ...]
    pipeline: int | None
    tested: bool


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed text. `traced` is the reporting copy, "" where the text could not be read as a whole."""

    text: str
    commands: tuple[Command, ...]
    functions: frozenset[str]
    traced: str
    redirects: tuple[tuple[int, int], ...]
    """Places of the redirections to and from files."""
    tests: bool
    """Whether there is a condition or a negation, which may end with 1 and has no command that does."""
    broken_at: int | None
    """Where the first thing stands that could not be read, None if all could."""


class _Place(NamedTuple):
    """A node, the byte at which its innermost pipeline starts, and whether it stands in a condition or a negation."""

    node: tree_sitter.Node
    pipeline: int | None
    tested: bool


@cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_bash.language())


def parse(text: str) -> Script:
    """Parse a shell text; what cannot be parsed is no error here, the shell itself judges it."""
    raw = text.encode("utf-8", "replace")
    root = tree_sitter.Parser(_language()).parse(raw).root_node
    starts = _Characters(raw)
    places = list(_walk(root))
    if root.has_error:
        wrong = next((place.node for place in places if place.node.is_error or place.node.is_missing), root)
        return Script(text, (), frozenset(), "", (), False, starts[wrong.start_byte])
    commands: list[Command] = []
    marks: list[tuple[int, str]] = []
    for node, pipeline, tested in places:
        name = node.child_by_field_name("name") if node.type == "command" else None
        if name is None or _text(name) in _OWN_FRAME or len(commands) == _MOST_COMMANDS:
            continue
        words = tuple(_text(child) for child in node.children if child.start_byte >= name.start_byte)
        marks.append((name.start_byte, MARK.format(len(commands))))
        start, end = starts[node.start_byte], starts[node.end_byte]
        commands.append(Command(start, end, starts[name.start_byte], starts[name.end_byte], words, pipeline, tested))
    kinds: dict[str, list[tree_sitter.Node]] = {}
    for place in places:
        kinds.setdefault(place.node.type, []).append(place.node)
    return Script(
        text,
        tuple(commands),
        frozenset(_text(node.child_by_field_name("name")) for node in kinds.get("function_definition", ())),
        PRELUDE + _marked(raw, marks),
        tuple((starts[node.start_byte], starts[node.end_byte]) for node in kinds.get("file_redirect", ())),
        bool(kinds.keys() & {"test_command", "negated_command"}),
        None,
    )


def _walk(root: tree_sitter.Node) -> Iterator[_Place]:
    """Yield every node in the order of the text."""
    waiting = [_Place(root, None, False)]
    while waiting:
        place = waiting.pop()
        yield place
        node, pipeline, tested = place
        if node.type == "pipeline":
            pipeline = node.start_byte
        elif node.type in _INNER:
            pipeline = None
        elif node.type == "negated_command":
            tested = True
        conditions = {child.id for child in node.children_by_field_name("condition")}
        waiting += [_Place(child, pipeline, tested or child.id in conditions) for child in reversed(node.children)]


def _marked(raw: bytes, marks: list[tuple[int, str]]) -> str:
    parts: list[bytes] = []
    done = 0
    for at, mark in sorted(marks):
        parts += [raw[done:at], mark.encode()]
        done = at
    return b"".join([*parts, raw[done:]]).decode("utf-8", "replace")


def _text(node: tree_sitter.Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode("utf-8", "replace")


class _Characters:
    """Turns places in bytes into places in characters."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._ascii = raw, raw.isascii()

    def __getitem__(self, byte: int) -> int:
        return byte if self._ascii else len(self._raw[:byte].decode("utf-8", "ignore"))
