"""Tasks and their splits: what an episode is asked to do, and which tasks are kept for evaluation.

A split is decided by the task's own content, never by the seed, so that train and held-out tasks cannot meet. This
module runs nothing and scores nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .state import canonical_json, fingerprint

__all__ = ["SPLITS", "Split", "Task", "is_heldout", "split_of_list"]

SPLITS = ("train", "heldout")
HELDOUT_EVERY = 5

TaskList = Sequence["Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `answer` and `data` are the environment's; the model sees `prompt` alone."""

    prompt: str
    answer: Any = None
    id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The task's identity: its `id`, else a fingerprint of its content that is the same in every process."""
        return self.id or fingerprint(canonical_json([self.prompt, self.answer, self.data], "Task"))


@dataclass(frozen=True, slots=True)
class Split:
    """The tasks of one split. `shared` says that the list was too short to be divided."""

    tasks: tuple[Task, ...]
    shared: bool


def split_of_list(tasks: TaskList, split: str) -> Split:
    """Return the part of `tasks` that belongs to `split`, in the list's order.

    Distinct tasks are ranked by a stable hash of their key and every fifth is held out; equal tasks stay together.
    With fewer than five distinct tasks both splits are the whole list, and `shared` is true.
    """
    keys = [task.key for task in tasks]
    ranked = sorted(set(keys), key=fingerprint)
    if len(ranked) < HELDOUT_EVERY:
        return Split(tuple(tasks), True)
    heldout = set(ranked[HELDOUT_EVERY - 1 :: HELDOUT_EVERY])
    kept = [task for task, key in zip(tasks, keys, strict=True) if (key in heldout) == (split == "heldout")]
    return Split(tuple(kept), False)


def is_heldout(task: Task) -> bool:
    """Whether a procedural task is held out: a stable hash of its key says so for one task in five."""
    return int(fingerprint(task.key), 16) % HELDOUT_EVERY == HELDOUT_EVERY - 1
