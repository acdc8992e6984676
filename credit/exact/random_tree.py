"""Random trees: processes nobody thought of, made from a seed.

Every path is its own state. On the way stand choices of two or three options with uneven chances, luck of the
environment, and fillers; trajectories differ in length; rewards are drawn from a normal distribution, some leaves and
some decisions being equal by design. Use them to test what has to hold everywhere.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from accredit.credit.errors import CreditError
from accredit.credit.spans import SpanKind

from .tree import Step, TreeProcess

__all__ = ["RandomTree", "random_tree"]

Path = tuple[int, ...]
FILLER_TOKEN = 1
FIRST_OPTION_TOKEN = {SpanKind.DECISION: 10, SpanKind.FEEDBACK: 20}
NULL_CHOICE, FILLER, LUCK = 0.15, 0.2, 0.3  # shares of the steps; the rest are choices
EARLY_END = 0.15


@dataclass(frozen=True, slots=True)
class RandomTree:
    """`Rules` of the tree of `seed`, at most `depth` steps deep; the first step is a choice."""

    seed: int
    depth: int = 5
    _steps: dict[Path, Step] = field(default_factory=dict, repr=False, compare=False)
    _outcomes: dict[Path, float] = field(default_factory=dict, repr=False, compare=False)
    _slots: list[int] = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= 8:
            raise CreditError(f"depth={self.depth}: expected 1 to 8 steps")
        self._grow((), np.random.default_rng(self.seed))

    @property
    def name(self) -> str:
        """The name with the seed."""
        return f"RandomTree({self.seed})"

    @property
    def slots(self) -> tuple[int, ...]:
        """One row a choice of the tree."""
        return tuple(self._slots)

    @property
    def start(self) -> Hashable:
        """The root."""
        return ()

    def step(self, state: Hashable) -> Step | None:
        """Return what can happen at the node, None at a leaf."""
        return self._steps.get(self._path(state))

    def outcome(self, state: Hashable) -> float:
        """Return the reward of a leaf."""
        return self._outcomes[self._path(state)]

    def turn_rewards(self, state: Hashable) -> Sequence[float]:
        """All is paid at the end."""
        return ()

    def state_key(self, state: Hashable) -> str | None:
        """Return the path: no two prefixes are one state."""
        return " ".join(map(str, self._path(state)))

    def _grow(self, path: Path, rng: np.random.Generator, reward: float | None = None) -> None:
        depth = len(path)
        if depth == self.depth or (depth > 1 and rng.random() < EARLY_END):
            self._outcomes[path] = float(rng.normal()) if reward is None else reward
            return
        drawn = 1.0 if not depth else float(rng.random())
        if drawn < FILLER and (depth + 1 < self.depth):
            kind = SpanKind.DECISION if rng.random() < 0.7 else SpanKind.FEEDBACK
            self._steps[path] = Step(kind, (FILLER_TOKEN,), (1.0,), ((*path, 0),))
            self._grow((*path, 0), rng, reward)
            return
        kind = SpanKind.FEEDBACK if FILLER <= drawn < FILLER + LUCK else SpanKind.DECISION
        count = int(rng.integers(2, 4))
        null = kind is SpanKind.DECISION and depth > 0 and drawn > 1 - NULL_CHOICE
        chances_A = rng.dirichlet(np.full(count, 3.0))
        slot = None
        if kind is SpanKind.DECISION:
            slot = len(self._slots)
            self._slots.append(count)
        first = FIRST_OPTION_TOKEN[kind]
        after = tuple((*path, option) for option in range(count))
        tokens = tuple(first + option for option in range(count))
        self._steps[path] = Step(kind, tokens, tuple(chances_A.tolist()), after, slot)
        if null and reward is None:
            reward = float(rng.normal())  # nothing below this choice matters any more
        for child in after:
            self._grow(child, rng, reward)

    @staticmethod
    def _path(state: Hashable) -> Path:
        assert isinstance(state, tuple)
        return state


def random_tree(seed: int, depth: int = 5) -> TreeProcess:
    """Make the random tree of `seed`."""
    return TreeProcess(RandomTree(seed, depth))
