"""What an exactly solvable process offers: every trajectory, every prefix value, and the policy's exact gradient.

A process is one task under one fixed policy. Nothing here samples, prices or measures; `tree.py` makes such a process
from rules, `chain.py` has one in closed form.

Words: a *choice* is a decision token with more than one option; its probabilities are a softmax over one row of the
policy's logits. P is the number of logits, all rows one after another.
"""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.trajectory import Group, Trajectory

__all__ = ["ExactProcess", "Stretchable", "enumerate_or_raise", "is_choice", "prefix_ids"]

Floats = NDArray[np.float64]


class ExactProcess(Protocol):
    """One task under one policy, solvable exactly."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    @property
    def enumerable(self) -> bool:
        """Whether `enumerate` ends soon: at most some thousand trajectories."""
        ...

    def enumerate(self) -> Iterator[tuple[float, Trajectory]]:
        """Yield every trajectory with its probability; the probabilities sum to 1."""
        ...

    def sample(self, rng: np.random.Generator, episode_id: str = "") -> Trajectory:
        """Live one episode."""
        ...

    def sample_group(self, rng: np.random.Generator, size: int) -> Group:
        """Live `size` episodes of the task."""
        ...

    def values(self, trajectory: Trajectory) -> Floats:
        """float64 [T+1], the exact prefix values: entry t is V before token t, entry T is R."""
        ...

    def policy_gradient(self) -> Floats:
        """float64, P numbers (`ravel()` gives them in the order of `score`): the gradient of E[R] in the logits."""
        ...

    def score(self, trajectory: Trajectory) -> Floats:
        """float64 [T, P], grad log pi of every token; rows of 0 on tokens that are no choice."""
        ...


@runtime_checkable
class Stretchable(ExactProcess, Protocol):
    """A process that can be told at more length."""

    def stretched(self, factor: int) -> ExactProcess:
        """Return the process with every null part `factor` times as long and `factor` - 1 null turns per turn.

        It enumerates the same choices and the same luck in the same order, and has the same logits.
        """
        ...


def enumerate_or_raise(process: ExactProcess) -> tuple[Floats, tuple[Trajectory, ...]]:
    """Return the probabilities float64 [N] and the N trajectories of an enumerable process.

    Raises:
        CreditError: the process has too many trajectories.

    """
    if not process.enumerable:
        raise CreditError(f"process '{process.name}' cannot be enumerated: sample it, or take a smaller one")
    pairs = list(process.enumerate())
    return np.array([chance for chance, _ in pairs]), tuple(trajectory for _, trajectory in pairs)


def is_choice(process: ExactProcess, trajectory: Trajectory) -> NDArray[np.bool_]:
    """Return bool [T], true on the decision tokens whose probability the policy can move."""
    choice_T: NDArray[np.bool_] = np.greater(np.abs(process.score(trajectory)).sum(axis=1), 0)
    return choice_T


def prefix_ids(trajectories: tuple[Trajectory, ...]) -> list[NDArray[np.int64]]:
    """Return what is known as numbers: for each trajectory int64 [T+1], equal where F_t is equal.

    Known after t tokens are those tokens and the state keys of the turn borders up to there, because a key may tell of
    luck that no token shows.
    """
    known: dict[tuple[int, int, str | None], int] = {}
    numbered = []
    for trajectory in trajectories:
        keys = _keys_by_position(trajectory)
        ids = [_number(known, (-1, -1, keys.get(0)))]
        for position, token in enumerate(trajectory.token_ids.tolist(), start=1):
            ids.append(_number(known, (ids[-1], token, keys.get(position))))
        numbered.append(np.array(ids, dtype=np.int64))
    return numbered


def _number(known: dict[tuple[int, int, str | None], int], what: tuple[int, int, str | None]) -> int:
    return known.setdefault(what, len(known))


def _keys_by_position(trajectory: Trajectory) -> dict[int, str | None]:
    ends = {span.turn: span.end for span in trajectory.spans}
    return {end: trajectory.state_keys[turn + 1] for turn, end in ends.items() if turn >= 0}
