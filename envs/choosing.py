"""Chooses an episode's task: from the split's list, or by drawing until a task of the split comes.

A list is made once per split and level, from a fixed seed: a generated list is the same list in every instance.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import EnvError
from .task import Split, Task, is_heldout, split_of_list

if TYPE_CHECKING:
    from .core import ToolEnv

__all__ = ["Chosen", "choose_task"]

MAX_DRAWS = 2000
LIST_SEED = 0


class Chosen(NamedTuple):
    """A task, and whether its list was too short to be split."""

    task: Task
    shared: bool


def choose_task(env: "ToolEnv") -> Chosen:
    """Return the task that `env.options` and `env.np_random` choose.

    Raises:
        EnvError: the author's hook gave no task.

    """
    given = env.options.get("task")
    if given is not None:
        return Chosen(_checked(env, given, "option task"), False)
    if env.is_procedural:
        return Chosen(_draw(env), False)
    split = _list(env)
    index = env.options.get("index")
    if index is None:
        index = int(env.np_random.integers(len(split.tasks)))
    elif not 0 <= index < len(split.tasks):
        held = f"the {env.split} split has {len(split.tasks)} tasks"
        raise EnvError(f"{type(env).__name__}.reset: option index is {index}, {held}")
    return Chosen(split.tasks[index], split.shared)


def _draw(env: "ToolEnv") -> Task:
    for _ in range(MAX_DRAWS):
        task = _checked(env, env.draw_task(env.np_random), "draw_task()")
        if env.own_splits or is_heldout(task) == (env.split == "heldout"):
            return task
    raise EnvError(
        f"{type(env).__name__}.draw_task() gave no task of the {env.split} split in {MAX_DRAWS} draws: one task in "
        "five is held out by a hash of its id or content; draw from more tasks, or set own_splits and read self.split"
    )


def _list(env: "ToolEnv") -> Split:
    key = f"{env.split}/{env.level}"
    if key not in env.task_lists:
        listed = env.tasks(np.random.default_rng(LIST_SEED))
        tasks = tuple(_checked(env, task, "tasks()") for task in listed)
        found = Split(tasks, False) if env.own_splits else split_of_list(tasks, env.split)
        if not found.tasks:
            raise EnvError(f"{type(env).__name__}.tasks() is empty (split {env.split}): return at least one Task")
        env.task_lists[key] = found
    return env.task_lists[key]


def _checked(env: "ToolEnv", task: Any, source: str) -> Task:
    if isinstance(task, Task) and isinstance(task.prompt, str):
        return task
    raise EnvError(f"{type(env).__name__}: {source} gave {task!r:.60}, expected a Task with a text prompt")
