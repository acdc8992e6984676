"""Mistakes that a sloppy programmer makes in a right program: some fail at once, some only give wrong values.

Sources are this package's own, so the host may run what becomes of them; a mistake that fails is tried here first.
"""

import re
from collections.abc import Callable

import numpy as np

from .problem import Problem, run_source

__all__ = ["broken_program", "wrong_program"]

_RETURN = re.compile(r"return (.+)\Z")
_NAME = re.compile(r"(?<![\w.'\"])([a-z]+)(?![\w('\"])")
_NUMBER = re.compile(r"(?<![\w'\"])(\d+)(?![\w'\"])")
_UNKNOWN = ("calc", "result", "solve", "value")
_WORDS = ("for", "if", "in", "not", "or", "and", "key", "lambda", "else")


def broken_program(problem: Problem, rng: np.random.Generator) -> str:
    """Return the problem's program with a mistake in its last line that fails on the first example.

    A name that is not there, a bracket that is never closed, a call of an undefined function, a value of a wrong type.
    """
    before, value = _split(problem.source)
    kinds = [_KINDS[int(at)] for at in rng.permutation(len(_KINDS))]
    for kind in kinds:
        program = before + kind(value, rng)
        if _fails(program, problem):
            return program
    return f"{before}({value}"


def wrong_program(problem: Problem, rng: np.random.Generator) -> str:
    """Return a program that runs and gives a wrong value for some input: a wrong idea of what was asked.

    It is the right program where no such mistake is known.
    """
    slips = [problem.slips[int(at)] for at in rng.permutation(len(problem.slips))]
    for old, new in slips:
        program = problem.source.replace(old, new, 1)
        try:
            values = run_source(program, (*problem.examples, *problem.hidden))
        except Exception:  # this slip fails at once, which is the other kind of mistake
            continue
        if values != problem.values((*problem.examples, *problem.hidden)):
            return program
    return problem.source


def _split(source: str) -> tuple[str, str]:
    found = _RETURN.search(source)
    assert found is not None, f"a source ends with a return, found {source!r}"
    return source[: found.start(1)], found.group(1)


def _fails(program: str, problem: Problem) -> bool:
    try:
        run_source(program, problem.examples[:1])
    except Exception:
        return True
    return False


def _unknown_name(value: str, rng: np.random.Generator) -> str:
    names = [found for found in _NAME.finditer(value) if found.group(1) not in _WORDS]
    if not names:
        return value
    found = names[int(rng.integers(len(names)))]
    other = {"x": "n", "y": "z"}.get(found.group(1), f"{found.group(1)}s")
    return value[: found.start()] + other + value[found.end() :]


def _unclosed_bracket(value: str, rng: np.random.Generator) -> str:
    closed = value.count(")")
    if closed:
        at = value.rindex(")")
        return value[:at] + value[at + 1 :]
    return f"({value}"


def _undefined_function(value: str, rng: np.random.Generator) -> str:
    return f"{_UNKNOWN[int(rng.integers(len(_UNKNOWN)))]}({value})"


def _wrong_type(value: str, rng: np.random.Generator) -> str:
    numbers = list(_NUMBER.finditer(value))
    if not numbers:
        return f"{value} + 1"
    found = numbers[int(rng.integers(len(numbers)))]
    return f"{value[: found.start()]}'{found.group()}'{value[found.end() :]}"


_KINDS: tuple[Callable[[str, np.random.Generator], str], ...] = (
    _unknown_name,
    _unclosed_bracket,
    _undefined_function,
    _wrong_type,
)
