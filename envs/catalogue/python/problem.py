"""A problem of the Python environment: what is asked, a right program, and the arguments that it is tried on.

Sources are this package's own text, never a policy's, so the host may run them: expected values are computed here and
stay here.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["EXAMPLES", "HIDDEN", "Draft", "Problem", "call_text", "draw_inputs", "run_source"]

EXAMPLES = 2
"""Inputs that the policy is shown with their values."""

HIDDEN = 8
"""Inputs that only the verification knows."""

_MOST_DRAWS = 400

Arguments = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A drawn problem before its inputs are: `slips` are wrong ideas as replacements (old, new) in the source."""

    text: str
    source: str
    draw: Callable[[np.random.Generator], Arguments]
    slips: tuple[tuple[str, str], ...] = ()
    edges: tuple[Arguments, ...] = ()
    """Arguments at the borders of what was asked; they are always among the hidden ones."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is asked in words, a right program, and two sets of arguments. All of it is plain data."""

    text: str
    source: str
    slips: tuple[tuple[str, str], ...]
    examples: tuple[Arguments, ...]
    hidden: tuple[Arguments, ...]

    def values(self, inputs: tuple[Arguments, ...]) -> list[Any]:
        """Return the right values of the function for these arguments."""
        return run_source(self.source, inputs)

    @property
    def prompt(self) -> str:
        """The text that the policy gets, with the examples."""
        shown = zip(self.examples, self.values(self.examples), strict=True)
        return f"{self.text} " + ", ".join(f"{call_text(inputs)} = {value!r}" for inputs, value in shown) + "."


def run_source(source: str, inputs: tuple[Arguments, ...]) -> list[Any]:
    """Run a source of this package on the host and return the values of its function `f`."""
    names: dict[str, Any] = {}
    exec(compile(source, "<right>", "exec"), names)
    return [names["f"](*copy.deepcopy(arguments)) for arguments in inputs]


def call_text(arguments: Arguments) -> str:
    """Write a call of the function as Python does: `f(2, 'a')`."""
    return f"f({', '.join(map(repr, arguments))})"


def draw_inputs(rng: np.random.Generator, draft: Draft) -> Problem:
    """Draw examples and hidden arguments, all different; the values of the examples differ, if they can.

    The first example is never an edge, so that it shows what is asked.
    """
    drawn: dict[str, Arguments] = {}
    taken = {repr(edge): edge for edge in draft.edges}
    values: set[str] = set()
    for attempt in range(_MOST_DRAWS):
        if len(drawn) == EXAMPLES:
            break
        found = draft.draw(rng)
        value = repr(run_source(draft.source, (found,)))
        if repr(found) in taken or repr(found) in drawn or (value in values and attempt < _MOST_DRAWS // 2):
            continue
        drawn[repr(found)] = found
        values.add(value)
    hidden = dict(taken)
    for _ in range(_MOST_DRAWS):
        if len(hidden) >= HIDDEN:
            break
        found = draft.draw(rng)
        if repr(found) not in drawn:
            hidden.setdefault(repr(found), found)
    order = rng.permutation(len(hidden)).tolist()
    rest = list(hidden.values())
    return Problem(draft.text, draft.source, draft.slips, tuple(drawn.values()), tuple(rest[at] for at in order))
