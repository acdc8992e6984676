"""What the unsafe choices cost, computed exactly: no figure here is sampled.

The gradient that a credit function gives in expectation is a sum over every group that the process can produce, each
weighed with its probability. `benchmarks/process_choices.py` prints the table.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import combinations_with_replacement
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accredit.credit.ledger import CreditFunction
from accredit.credit.recorder import Recorder
from accredit.credit.trajectory import Group, StopReason, Trajectory

from .choices import UnsafeChoiceWarning
from .function import ProcessReward
from .rules import Verifier
from .stopping import StoppingProcess

__all__ = ["Price", "expected_gradient", "measured_prices"]

Floats = NDArray[np.float64]


class Enumerable(Protocol):
    """A process whose trajectories and scores can be listed."""

    def enumerate(self) -> Iterator[tuple[float, Trajectory]]:
        """Yield every trajectory with its probability."""
        ...

    def score(self, trajectory: Trajectory) -> Floats:
        """float64 [T, P], grad log pi of every token."""
        ...


class Price(NamedTuple):
    """One figure: what was chosen, what it gives, what the safe setting gives, and what is exact (None: no such)."""

    choice: str
    unsafe: float
    safe: float
    exact: float | None


def expected_gradient(process: Enumerable, function: CreditFunction, size: int) -> Floats:
    """Return float64 [P], E over all groups of `size` of the mean over members of sum_t advantage_t grad log pi."""
    lives = list(process.enumerate())
    scores = [process.score(trajectory) for _, trajectory in lives]
    total_P: Floats = np.zeros(scores[0].shape[1])
    for chosen in combinations_with_replacement(range(len(lives)), size):
        orders = math.factorial(size) // math.prod(math.factorial(n) for n in Counter(chosen).values())
        probability = orders * math.prod(lives[index][0] for index in chosen)
        credits = function(Group(tuple(lives[index][1] for index in chosen)))
        for index, credit in zip(chosen, credits, strict=True):
            total_P += probability / size * (credit.advantage.total @ scores[index])
    return total_P


def measured_prices(size: int = 2) -> list[Price]:
    """Return the price of every unsafe choice, with groups of `size`; gradients are scaled by size / (size - 1)."""
    process = StoppingProcess()
    exact = float(process.policy_gradient()[0])

    def gradient(**options: Any) -> float:
        reward = _quiet(**{"w_outcome": 0.0, "w_process": 1.0, "scorers": (Verifier(process.paid),), **options})
        return float(expected_gradient(process, reward, size)[0]) * size / (size - 1)

    shaped: dict[str, Any] = {"w_outcome": 1.0, "clip": None, "form": "potential", "scorers": (Verifier(_early),)}
    return [
        Price("normalise='position', stopping", gradient(normalise="position"), gradient(), exact),
        Price("normalise='group', stopping", gradient(normalise="group"), gradient(), exact),
        Price(
            "normalise='position', form='potential'",
            gradient(**shaped, normalise="position"),
            gradient(**shaped),
            exact,
        ),
        Price("gamma=0, stopping", gradient(gamma=0.0), gradient(), exact),
        Price("window=5, kept by the key token", *_blur(0), None),
        Price("window=5, gone to the two next to it", *_blur(1), None),
        Price("clip_at='advantage', 1 success of 64", *_clipped(), None),
    ]


def _early(trajectory: Trajectory, turn: int) -> float:
    """Return a potential that dislikes the first turn and nothing else."""
    return -float(turn == 0)


def _quiet(**options: Any) -> ProcessReward:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsafeChoiceWarning)
        return ProcessReward(**{"rules": (), "wrong_decay": 1.0, **options})


def _blur(distance: int) -> tuple[float, float]:
    """Return the share of a key token's process credit that is found `distance` tokens from it, smoothed and not."""
    found = []
    for window in (5, 1):
        trajectories = [_sentence(good) for good in (True, False)]
        reward = _quiet(
            steps="line", scorers=(_key_token,), w_process=1.0, w_outcome=0.0, window=window, token_bytes=_one_a_line
        )
        process_T = reward(Group(tuple(trajectories)))[0].credit.terms["process"]
        key = trajectories[0].decisions[0].start + 5
        found.append(float(process_T[key + distance] + (process_T[key - distance] if distance else 0.0)))
    return found[0], found[1]


def _sentence(good: bool) -> Trajectory:
    recorder = Recorder()
    recorder.prompt([0])
    recorder.decision([1] * 5 + [2 if good else 3] + [1] * 5, [-1.0] * 11)
    return recorder.finish(1.0, StopReason.DONE)


def _one_a_line(ids: Any) -> list[bytes]:
    return [b"x\n"] * len(ids)


def _key_token(trajectory: Trajectory, steps: NDArray[np.int64]) -> Floats:
    ids = trajectory.token_ids[steps >= 0]
    return np.select([ids == 2, ids == 3], [1.0, -1.0], 0.0)


def _clipped() -> tuple[float, float]:
    """Return the share of the unclipped advantage that the one success of 64 keeps, clipped after and before."""
    members = []
    for index in range(64):
        recorder = Recorder()
        recorder.prompt([0])
        recorder.decision([1], [-1.0])
        members.append(recorder.finish(float(index == 0), StopReason.DONE))
    group = Group(tuple(members))
    whole = _quiet(normalise="group", clip=None)
    kept = []
    for clipped in (_quiet(normalise="group", clip_at="advantage"), _quiet(normalise="group", clip_at="reward")):
        token = members[0].decisions[0].start
        kept.append(float(clipped(group)[0].advantage.total[token] / whole(group)[0].advantage.total[token]))
    return kept[0], kept[1]
