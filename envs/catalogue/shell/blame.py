"""Which command of a shell text failed, and whether an exit status is a failure at all.

The status is the sandbox's, under bash's rules with `pipefail`: a list fails as its last command does, so `false; true`
does not, and a pipeline fails with the last of its commands that fails. What the commands report only chooses the place
inside the text; a forged report can move a charge within the policy's own words, and no further.

Two kinds of status are no failure: an *answer* (1 from `grep`, `diff`, `test` and their like, which found nothing or
found a difference), and 141 from a command whose reader had read enough.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .parsing import Command, Script

__all__ = ["ANSWERS", "Ran", "Verdict", "judge", "syntax_place"]

ANSWERS: Mapping[str, frozenset[int]] = {
    name: frozenset({1})
    for name in ("[", "cmp", "command", "diff", "egrep", "expr", "fgrep", "grep", "read", "test", "which")
}
"""Statuses that are answers, by the command's first word or words."""

_CLOSED_PIPE = 141
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_NEAR = re.compile(r"line (?P<line>[0-9]{1,6}): syntax error near unexpected token `(?P<token>.+)'")
_UNCLOSED = re.compile(r"line (?P<line>[0-9]{1,6}): unexpected EOF while looking for matching `(?P<token>.)'")
_COMPLAINT = re.compile(r"^sh: (?:line \d+: )?(?P<path>[^\n]+?): [^:\n]+$", re.MULTILINE)
_ENDED = re.compile(r"line \d+: syntax error: unexpected end of file")


class Ran(NamedTuple):
    """One report: the number of a command, and the status it ended with."""

    command: int
    status: int


class Verdict(NamedTuple):
    """Whether the text failed, and the characters to charge, None for all of them."""

    failed: bool
    place: tuple[int, int] | None = None


def judge(
    script: Script, exit_code: int, ran: Sequence[Ran], stderr: str, answers: Mapping[str, frozenset[int]] = ANSWERS
) -> Verdict:
    """Say whether a text that ended with `exit_code` failed, and where.

    Args:
        script: the text.
        exit_code: its exit status, as the sandbox saw it.
        ran: what the commands reported, in order; numbers outside of the text are passed over.
        stderr: what was written to standard error.
        answers: statuses that are no failures, by first words.

    """
    if exit_code in (0, _CLOSED_PIPE):
        return Verdict(False)
    known = [one for one in ran if 0 <= one.command < len(script.commands)]
    ending = [one for one in known if one.status == exit_code and not script.commands[one.command].tested]
    inner = [one for one in ending if script.commands[one.command].words[0] not in script.functions]
    if not ending:
        place = _redirect(script, stderr)
        return Verdict(place is not None or not (exit_code == 1 and script.tests), place)
    last = (inner or ending)[-1]
    group = _pipeline(script, known, last)
    failing = [one for one in group if not _is_answer(script.commands[one.command], one.status, answers)]
    if not failing:
        return Verdict(False)
    chosen = max(failing, key=lambda one: (one.status == exit_code, one.command))
    command = script.commands[chosen.command]
    if chosen.status in (_NOT_FOUND, _NOT_EXECUTABLE):
        return Verdict(True, (command.name_start, command.name_end))
    return Verdict(True, (command.start, command.end))


def syntax_place(script: Script, stderr: str) -> tuple[int, int] | None:
    """Return the token at which the shell says that the text cannot be read, None if it says nothing of the kind."""
    text = script.text
    if _ENDED.search(stderr):
        end = len(text.rstrip())
        start = max(text.rfind(white, 0, end) for white in " \t\n;") + 1
        return (min(start, end - 1), end) if end else None
    found = _UNCLOSED.search(stderr) or _NEAR.search(stderr)
    if found is None:
        return None
    lines = text.split("\n")  # what the shell counts as lines, unlike splitlines
    number, token = int(found["line"]) - 1, found["token"]
    if not 0 <= number < len(lines):
        return None
    first = sum(len(line) + 1 for line in lines[:number])
    last = first + len(lines[number])
    if token == "newline":
        end = first + len(lines[number].rstrip())
        return (max(end - 1, 0), end) if end else None
    if found.re is _UNCLOSED:
        at = text.rfind(token, first, last)
    else:
        at = text.find(token, max(first, script.broken_at or 0), last)
        at = text.rfind(token, first, last) if at < 0 else at
    return None if at < 0 else (at, at + len(token))


def _pipeline(script: Script, ran: Sequence[Ran], last: Ran) -> list[Ran]:
    """Return the last reports of all commands in the pipeline of `last` that did not end with 0."""
    number = script.commands[last.command].pipeline
    if number is None:
        return [last]
    latest = {one.command: one for one in ran if script.commands[one.command].pipeline == number}
    return [one for one in latest.values() if one.status]


def _redirect(script: Script, stderr: str) -> tuple[int, int] | None:
    """Return the redirection that the shell could not open, None if it does not complain of one."""
    for said in _COMPLAINT.finditer(stderr):
        for start, end in script.redirects:
            if script.text[start:end].endswith(said["path"]):
                return start, end
    return None


def _is_answer(command: Command, status: int, answers: Mapping[str, frozenset[int]]) -> bool:
    if status == _CLOSED_PIPE:
        return True
    heads = (" ".join(command.words[:count]) for count in (1, 2))
    return any(status in answers.get(head, frozenset()) for head in heads)
