"""The small project that a job is about: modules with functions, settings, notes and logs, all drawn.

Words and numbers are drawn so that searching is needed: a name stands where it is defined and where it is only used, a
setting has neighbours with longer names. Nothing here knows of jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from accredit.envs.catalogue.words import ITEMS, NAMES, WORDS

__all__ = ["Project", "draw_project", "draw_words"]


@dataclass(frozen=True)
class Project:
    """A drawn project. Files are texts by path, and no folder is empty.

    Attributes:
        files: all of them.
        defined: the module that defines each function, by its name.
        modules, confs, notes, logs: paths by kind, sorted.
        free: words that stand nowhere in it.

    """

    files: dict[str, str]
    defined: dict[str, str]
    modules: tuple[str, ...]
    confs: tuple[str, ...]
    notes: tuple[str, ...]
    logs: tuple[str, ...]
    free: tuple[str, ...]


def draw_words(rng: np.random.Generator, words: Sequence[str], count: int, without: Sequence[str] = ()) -> list[str]:
    """Return `count` different words, none of them in `without`."""
    left = [word for word in words if word not in without]
    return [left[int(index)] for index in rng.permutation(len(left))[:count]]


def draw_project(
    rng: np.random.Generator,
    *,
    functions: Sequence[str] = (),
    settings: Sequence[str] = (),
    noted: Sequence[str] = (),
) -> Project:
    """Draw a project.

    Args:
        rng: the source of all choices.
        functions: names of functions that must be defined in it, once each.
        settings: names of settings; each stands in some files of settings, never in all.
        noted: words that must stand in some notes, never in all.

    """
    words = draw_words(rng, WORDS, len(WORDS), [*settings, *noted])
    take = iter(words)
    names = [*functions, *draw_words(rng, ITEMS, 9 - len(functions), functions)]
    names = [names[int(index)] for index in rng.permutation(len(names))]
    files: dict[str, str] = {}
    defined: dict[str, str] = {}
    modules = [f"src/{next(take)}.py" for _ in range(3)]
    for number, path in enumerate(modules):
        own, others = names[3 * number : 3 * number + 3], names[: 3 * number] + names[3 * number + 3 :]
        files[path] = "\n\n".join(_function(rng, name, others) for name in own)
        defined |= dict.fromkeys(own, path)
    confs = [f"conf/{next(take)}.ini" for _ in range(4)]
    usual = [next(take) for _ in range(3)]
    for path, marked in zip(confs, _some(rng, len(confs)), strict=True):
        keys = [
            *usual[: int(rng.integers(1, 4))],
            *(name for name in settings if marked),
            f"{(settings or usual)[0]}_max",
        ]
        files[path] = "".join(f"{key} = {int(rng.integers(1, 100))}\n" for key in keys)
    notes = [f"docs/{next(take)}.txt" for _ in range(5)]
    filling = [next(take) for _ in range(6)]
    for path, marked in zip(notes, _some(rng, len(notes)), strict=True):
        files[path] = _note(rng, filling, noted if marked else ())
    logs = [f"logs/{next(take)}.log" for _ in range(4)]
    for path, marked in zip(logs, _some(rng, len(logs)), strict=True):
        files[path] = _log(rng, marked)
    return Project(files, defined, *(tuple(sorted(paths)) for paths in (modules, confs, notes, logs)), free=tuple(take))


def _some(rng: np.random.Generator, count: int) -> list[bool]:
    """Return marks for `count` things: at least one is marked and at least one is not."""
    marks = [True, False, *(bool(rng.random() < 0.5) for _ in range(count - 2))]
    return [marks[int(index)] for index in rng.permutation(count)]


def _function(rng: np.random.Generator, name: str, others: Sequence[str]) -> str:
    factor, used = int(rng.integers(2, 10)), others[int(rng.integers(len(others)))]
    return f"def {name}(n):\n    # see {used}\n    return n * {factor}\n"


def _note(rng: np.random.Generator, words: Sequence[str], noted: Sequence[str]) -> str:
    lines = [
        f"{NAMES[int(rng.integers(len(NAMES)))]} and the {words[int(rng.integers(len(words)))]}"
        for _ in range(int(rng.integers(3, 8)))
    ]
    for word in noted:
        for _ in range(int(rng.integers(1, 4))):
            lines.insert(int(rng.integers(len(lines) + 1)), f"{NAMES[int(rng.integers(len(NAMES)))]} and the {word}")
    return "".join(f"{line}\n" for line in lines)


def _log(rng: np.random.Generator, failed: bool) -> str:
    lines = [f"{minute:02d} ok" for minute in range(int(rng.integers(3, 9)))]
    if failed:
        for at in rng.choice(len(lines), size=int(rng.integers(1, 3)), replace=False).tolist():
            lines[at] = f"{at:02d} error"
    return "".join(f"{line}\n" for line in lines)
