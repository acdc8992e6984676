"""Panels: the groups of a process on which credit functions are measured.

The credit of a trajectory depends on the other members of its group. So a panel holds groups with weights: all of them
up to order where that is few (each in a seeded order), else, for every trajectory, seeded draws of its companions. Own
trajectories are weighted by their exact probability either way. "c_t given F_t" of a group function is then its mean
over the companions: the function of one trajectory that it is on average.

Trajectories of different length are padded: [N, T] arrays hold 0 behind the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb, factorial, prod

import numpy as np
from numpy.typing import NDArray

from accredit.credit.errors import CreditError
from accredit.credit.exact.process import ExactProcess, Stretchable, enumerate_or_raise, prefix_ids
from accredit.credit.exact.recalled import Recalled
from accredit.credit.ledger import Credit, CreditFunction
from accredit.credit.trajectory import Group, Trajectory

__all__ = ["Panel", "Priced", "price_checked"]

Floats = NDArray[np.float64]
SIZES = (8, 6, 5, 4, 3, 2)
SAMPLED_SIZE = 4
GROUPS_TO_STRETCH = 60


@dataclass(frozen=True, eq=False)
class Panel:
    """Groups of an enumerable process.

    Attributes:
        process: whose trajectories they are.
        trajectories: all N of them.
        chance_N: float64 [N], their probabilities.
        groups: int64 [M, G], members as indices of trajectories.
        weight_MG: float64 [M, G], the weight of each member's credit; sums to 1, and to `chance_N` over the same index.
        exact: whether the groups are all there are.

    """

    process: ExactProcess
    trajectories: tuple[Trajectory, ...]
    chance_N: Floats
    groups: NDArray[np.int64]
    weight_MG: Floats
    exact: bool
    _stretched: "dict[int, Panel]" = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, process: ExactProcess, most_groups: int = 700, seed: int = 0) -> "Panel":
        """Make the panel of `process`: the largest groups of at most 8 of which there are at most `most_groups`.

        Raises:
            CreditError: the process cannot be enumerated.

        """
        chance_N, trajectories = enumerate_or_raise(process)
        rng = np.random.default_rng(seed)
        count = len(trajectories)
        fitting = [size for size in SIZES if comb(count + size - 1, size) <= most_groups]
        if fitting:
            groups, weight_MG = _all_groups(chance_N, fitting[0], rng)
        else:
            groups, weight_MG = _drawn_groups(chance_N, max(2, most_groups // count), rng)
        return cls(process, trajectories, chance_N, groups, weight_MG, bool(fitting))

    def stretched(self, factor: int) -> "Panel | None":
        """Return the same groups of the stretched process; None if the process cannot be stretched."""
        if not isinstance(self.process, Stretchable):
            return None
        if factor not in self._stretched:
            process = self.process.stretched(factor)
            _, trajectories = enumerate_or_raise(process)
            longer = Panel(process, trajectories, self.chance_N, self.groups, self.weight_MG, self.exact)
            self._stretched[factor] = longer
        return self._stretched[factor]

    @cached_property
    def to_stretch(self) -> "Panel":
        """A panel of the same process with fewer and smaller groups: stretched trajectories are long."""
        return Panel.of(self.process, GROUPS_TO_STRETCH)

    @property
    def size(self) -> int:
        """The number of members of a group."""
        return int(self.groups.shape[1])

    @cached_property
    def reward_N(self) -> Floats:
        """float64 [N], R."""
        return Group(self.trajectories).rewards

    @cached_property
    def value_NT1(self) -> Floats:
        """float64 [N, T+1], exact prefix values; R behind the end."""
        width = max(map(len, self.trajectories)) + 1
        rows = [self.process.values(trajectory) for trajectory in self.trajectories]
        return np.array([np.pad(row, (0, width - len(row)), mode="edge") for row in rows])

    @cached_property
    def move_NT(self) -> Floats:
        """float64 [N, T], V_t - V_{t-1}: the exact credit."""
        return np.diff(self.value_NT1, axis=1)

    @cached_property
    def decided_NT(self) -> NDArray[np.bool_]:
        """Bool [N, T], decision tokens."""
        return self._pad([trajectory.credit_mask for trajectory in self.trajectories]).astype(np.bool_)

    @cached_property
    def valued_NT(self) -> NDArray[np.bool_]:
        """Bool [N, T], decision and feedback tokens."""
        return self._pad([trajectory.value_mask for trajectory in self.trajectories]).astype(np.bool_)

    @cached_property
    def choice_NT(self) -> NDArray[np.bool_]:
        """Bool [N, T], decision tokens with alternatives."""
        return self._pad([np.abs(score_TP).sum(axis=1) for score_TP in self.scores]) > 0

    @cached_property
    def scores(self) -> tuple[Floats, ...]:
        """For each trajectory float64 [T, P], grad log pi."""
        return tuple(self.process.score(trajectory) for trajectory in self.trajectories)

    @cached_property
    def known_NT1(self) -> NDArray[np.int64]:
        """int64 [N, T+1], what is known after t tokens, as a number; -1 behind the end."""
        rows = prefix_ids(self.trajectories)
        width = max(map(len, rows))
        return np.array([np.pad(row, (0, width - len(row)), constant_values=-1) for row in rows])

    @cached_property
    def variance(self) -> float:
        """Var(R)."""
        return float(self.chance_N @ (self.reward_N - self.chance_N @ self.reward_N) ** 2)

    @cached_property
    def recalled(self) -> Recalled:
        """The process, remembering the values of these trajectories: make functions that need values from it."""
        return Recalled(self.process)

    def priced(self, function: CreditFunction, quantity: str = "credit") -> "Priced":
        """Price all groups by `function`; `quantity`, "credit" or "advantage", is what the axioms are asked of.

        Raises:
            CreditError: the function answers in a wrong shape, or puts advantage off the decision tokens.

        """
        shape = (*self.groups.shape, self.move_NT.shape[1])
        credit_MGT, advantage_MGT = np.zeros(shape), np.zeros(shape)
        for m, members in enumerate(self.groups.tolist()):
            credits = price_checked(function, Group(tuple(self.trajectories[i] for i in members)))
            for g, credit in enumerate(credits):
                if self.weight_MG[m, g]:
                    length = credit.credit.length
                    credit_MGT[m, g, :length] = credit.credit.total
                    advantage_MGT[m, g, :length] = credit.advantage.total
        return Priced(self, function, quantity, credit_MGT, advantage_MGT)

    def _pad(self, rows: list[NDArray[np.bool_]] | list[Floats]) -> Floats:
        width = max(map(len, self.trajectories))
        return np.array([np.pad(np.asarray(row, dtype=np.float64), (0, width - len(row))) for row in rows])


@dataclass(frozen=True, eq=False)
class Priced:
    """A panel, priced.

    Attributes:
        panel: the groups.
        function: who priced them.
        quantity: "credit" or "advantage": which of the two the axioms are asked of.
        credit_MGT: float64 [M, G, T], the credit of every member.
        advantage_MGT: float64 [M, G, T], its advantage.

    """

    panel: Panel
    function: CreditFunction
    quantity: str
    credit_MGT: Floats
    advantage_MGT: Floats

    def __post_init__(self) -> None:
        if self.quantity not in ("credit", "advantage"):
            raise CreditError(f"quantity={self.quantity!r}: expected 'credit' or 'advantage'")

    @property
    def amount_MGT(self) -> Floats:
        """float64 [M, G, T], the quantity asked of."""
        return self.credit_MGT if self.quantity == "credit" else self.advantage_MGT

    @cached_property
    def mean_NT(self) -> Floats:
        """float64 [N, T], that quantity, the mean over the companions of a trajectory."""
        return self._mean(self.amount_MGT)

    @cached_property
    def advantage_NT(self) -> Floats:
        """float64 [N, T], the advantage, the mean over the companions of a trajectory."""
        return self._mean(self.advantage_MGT)

    def _mean(self, amount_MGT: Floats) -> Floats:
        panel = self.panel
        mean_NT = np.zeros(panel.move_NT.shape)
        np.add.at(mean_NT, panel.groups, panel.weight_MG[:, :, None] * amount_MGT)
        mean_NT /= panel.chance_N[:, None]
        return mean_NT

    def rows(self, mask_NT: NDArray[np.bool_]) -> tuple[Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
        """Return amount, weight, trajectory and token of every priced token on which `mask_NT` is true."""
        at_MGT = mask_NT[self.panel.groups] & (self.panel.weight_MG > 0)[:, :, None]
        m, g, token = np.nonzero(at_MGT)
        return self.amount_MGT[m, g, token], self.panel.weight_MG[m, g], self.panel.groups[m, g], token


def price_checked(function: CreditFunction, group: Group) -> tuple[Credit, ...]:
    """Return `function(group)`.

    Raises:
        CreditError: it answers for another number of trajectories or tokens, or puts advantage off the decision tokens.

    """
    credits = tuple(function(group))
    if len(credits) != len(group):
        raise CreditError(f"expected one Credit a trajectory, found {len(credits)} for {len(group)} trajectories")
    for index, (trajectory, credit) in enumerate(zip(group.trajectories, credits, strict=True)):
        for name, ledger in (("credit", credit.credit), ("advantage", credit.advantage)):
            if ledger.length != len(trajectory):
                raise CreditError(
                    f"the {name} of trajectory {index} has {ledger.length} tokens, expected {len(trajectory)}"
                )
        stray_T = (credit.advantage.total != 0) & ~trajectory.credit_mask
        if stray_T.any():
            raise CreditError(
                f"trajectory {index} has advantage on token {int(np.argmax(stray_T))}, which the policy did not "
                "sample: put 0 wherever Trajectory.credit_mask is false"
            )
    return credits


def _all_groups(chance_N: Floats, size: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Floats]:
    groups, weights = [], []
    for members in combinations_with_replacement(range(len(chance_N)), size):
        _, counts = np.unique(members, return_counts=True)
        orders = factorial(size) // prod(factorial(int(count)) for count in counts)
        groups.append(rng.permutation(members))
        weights.append(orders * float(np.prod(chance_N[list(members)])))
    weight_MG = np.repeat(np.array(weights)[:, None] / size, size, axis=1)
    return np.array(groups, dtype=np.int64), weight_MG


def _drawn_groups(chance_N: Floats, draws: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Floats]:
    def rows() -> Iterator[tuple[NDArray[np.int64], Floats]]:
        for index, chance in enumerate(chance_N.tolist()):
            for _ in range(draws):
                place = int(rng.integers(SAMPLED_SIZE))
                members = rng.choice(len(chance_N), SAMPLED_SIZE, p=chance_N / chance_N.sum())
                members[place] = index
                weight_G = np.zeros(SAMPLED_SIZE)
                weight_G[place] = chance / draws
                yield members, weight_G

    groups, weights = zip(*rows(), strict=True)
    return np.array(groups, dtype=np.int64), np.array(weights)
