"""The counterfactual probe: change one decision of a stored trajectory, live the rest with the same noise, price again.

Flipping a decision that matters must move its credit in the direction of the exact values; the other members of the
group stay. Deleting a null turn of one member must move no other credit of it.
"""

from typing import NamedTuple

import numpy as np

from accredit.credit.axioms.panel import price_checked
from accredit.credit.exact.process import enumerate_or_raise
from accredit.credit.exact.recalled import Recalled
from accredit.credit.exact.tree import TreeProcess
from accredit.credit.trajectory import Group, Trajectory

from .functions import Make

__all__ = ["LEAST_RIGHT", "Probe", "probe"]

LEAST_RIGHT = 0.95
ROUNDING = 1e-11


class Probe(NamedTuple):
    """What came of it.

    Attributes:
        flips: how many decisions were flipped.
        right: the share of them whose credit moved in the direction of the exact value.
        moved_by_deletion: the largest change of a credit on the decisions that matter when a null turn was deleted,
            relative to the largest of those credits.

    """

    flips: int
    right: float
    moved_by_deletion: float


def probe(process: TreeProcess, make: Make, groups: int = 40, size: int = 4, seed: int = 0) -> Probe:
    """Flip every decision that matters, and delete a null turn, in one member of each of `groups` seeded groups."""
    rng = np.random.default_rng(seed)
    flips, right = _flip(process, make, groups, size, rng)
    return Probe(flips, right / flips if flips else 1.0, _delete(process, make, groups, size, rng))


def _flip(process: TreeProcess, make: Make, groups: int, size: int, rng: np.random.Generator) -> tuple[int, int]:
    function, flips, right = make(process), 0, 0
    for _ in range(groups):
        group = process.sample_group(rng, size)
        member = int(rng.integers(size))
        trajectory = group.trajectories[member]
        before_T, before_T1 = price_checked(function, group)[member].credit.total, process.values(trajectory)
        for token in np.flatnonzero(np.abs(process.score(trajectory)).sum(axis=1) > 0).tolist():
            for option in range(process.options(trajectory, token)):
                flipped = process.flipped(trajectory, token, option)
                effect = process.values(flipped)[token + 1] - before_T1[token + 1]
                if abs(effect) < ROUNDING:
                    continue
                credit = price_checked(function, _with(group, member, flipped))[member].credit.total[token]
                flips += 1
                moved = credit - before_T[token]
                right += abs(moved) > ROUNDING and np.sign(moved) == np.sign(effect)
    return flips, int(right)


def _delete(process: TreeProcess, make: Make, groups: int, size: int, rng: np.random.Generator) -> float:
    """Take groups of the process with a null turn before every later turn; replace one member by itself without."""
    longer = process.stretched(2, fillers=False)
    (chance_N, plain), (_, long) = enumerate_or_raise(process), enumerate_or_raise(longer)
    recalled = Recalled(longer)
    for trajectory in plain:
        recalled.remember(trajectory, process.values(trajectory))
    function, moved, largest = make(recalled), 0.0, 0.0
    for _ in range(groups):
        members = rng.choice(len(long), size, p=chance_N / chance_N.sum())
        group = Group(tuple(long[index] for index in members))
        whole = price_checked(function, group)[0].credit.total
        index = int(members[0])
        without = price_checked(function, _with(group, 0, plain[index]))[0].credit.total
        there = np.abs(longer.score(long[index])).sum(axis=1) > 0
        here = np.abs(process.score(plain[index])).sum(axis=1) > 0
        moved = max(moved, float(np.abs(whole[there] - without[here]).max(initial=0.0)))
        largest = max(largest, float(np.abs(whole[there]).max(initial=0.0)))
    return moved / largest if largest else 0.0


def _with(group: Group, member: int, trajectory: Trajectory) -> Group:
    members = list(group.trajectories)
    members[member] = trajectory
    return Group(tuple(members))
