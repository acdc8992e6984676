"""The boundary cases that every credit function must pass, on tiny exact processes.

A case prices a group and says what is wrong, or nothing. Functions that need values get those of the case's process.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accredit.credit.exact.process import ExactProcess, enumerate_or_raise
from accredit.credit.exact.script import Script, choice, coin, filler, two_turn
from accredit.credit.exact.tree import PROMPT_TOKEN, TreeProcess
from accredit.credit.ledger import Credit, CreditFunction
from accredit.credit.recorder import Recorder
from accredit.credit.trajectory import Group, StopReason, Trajectory

from .panel import price_checked

__all__ = ["BOUNDARY_CASES", "BoundaryCase", "boundary_fault"]

Make = Callable[[ExactProcess], CreditFunction]
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class BoundaryCase:
    """A situation at the edge; `fault` prices it and returns what is wrong, None if nothing is."""

    name: str
    fault: Callable[[Make], str | None]


def boundary_fault(case: BoundaryCase, make: Make) -> str | None:
    """Return what is wrong with the function that `make` makes in this case, None if nothing is; errors are faults."""
    try:
        return case.fault(make)
    except Exception as error:  # a user's function may raise anything, and that is the finding
        return f"{type(error).__name__}: {error}"


def _all_of(process: ExactProcess) -> Group:
    return Group(enumerate_or_raise(process)[1])


def _length_one(make: Make) -> str | None:
    process = TreeProcess(Script("one token", (choice(),), lambda picks: float(picks[0])))
    group = _all_of(process)
    for trajectory, credit in zip(group.trajectories, price_checked(make(process), group), strict=True):
        found, wanted = credit.advantage.total[-1], 1 if trajectory.reward else -1
        if np.sign(found) != wanted:
            return (
                f"the one token of a trajectory of reward {trajectory.reward:g} has advantage {found:g}, of two at 0, 1"
            )
    return None


def _equal_rewards(reward: float) -> Callable[[Make], str | None]:
    def fault(make: Make) -> str | None:
        process = TreeProcess(Script("equal rewards", (filler(), choice(), coin(), choice()), lambda picks: reward))
        return _not_zero(price_checked(make(process), _all_of(process)), f"all rewards are {reward:g}")

    return fault


def _group_of_one(make: Make) -> str | None:
    process = two_turn()
    richer = _paid_more(process, 1.0)
    for trajectory, paid_more in zip(enumerate_or_raise(process)[1], enumerate_or_raise(richer)[1], strict=True):
        (credit,) = price_checked(make(process), Group((trajectory,)))
        found, surprise = float(credit.credit.total.sum()), float(np.diff(process.values(trajectory)[[0, -1]])[0])
        if min(abs(found), abs(found - surprise)) > TOLERANCE:
            raw = " (the raw reward)" if abs(found - (trajectory.reward or 0.0)) < TOLERANCE else ""
            return f"the credit of a lone trajectory sums to {found:g}{raw}; expected 0, or R - V_0 = {surprise:g}"
        (other,) = price_checked(make(richer), Group((paid_more,)))
        moved = float(np.abs(other.advantage.total - credit.advantage.total).max())
        if moved > TOLERANCE:
            return (
                f"the advantage of a lone trajectory moves by {moved:g} when all rewards and values are 1 higher: "
                "the reward's level is paid; expected 0, or a comparison with values that are known"
            )
    return None


def _paid_more(process: TreeProcess, more: float) -> TreeProcess:
    """Return the process of a script with `more` on top of every reward."""
    rules = process.rules
    assert isinstance(rules, Script)
    return TreeProcess(replace(rules, outcome_of=lambda picks: rules.outcome_of(picks) + more))


def _no_decision(make: Make) -> str | None:
    process = TreeProcess(Script("no decision", (coin(), filler(coin().kind)), lambda picks: float(picks[0])))
    for credit in price_checked(make(process), _all_of(process)):
        if credit.advantage.total.any():
            return "advantage in a trajectory in which nothing was decided"
    return None


def _unscored(make: Make) -> str | None:
    process = two_turn()
    members = enumerate_or_raise(process)[1]
    among = [replace(t, outcome=None) if index in (1, 4) else t for index, t in enumerate(members)]
    among.append(_never_started())
    scored = [t for t in among if t.outcome is not None]
    function = make(process)
    credits = price_checked(function, Group(tuple(among)))
    lost = _not_zero(
        [c for t, c in zip(among, credits, strict=True) if t.outcome is None], "the trajectory is unscored"
    )
    if lost:
        return lost
    alone = price_checked(function, Group(tuple(scored)))
    kept = [c for t, c in zip(among, credits, strict=True) if t.outcome is not None]
    for index, (one, other) in enumerate(zip(alone, kept, strict=True)):
        if not _same(one, other):
            return f"unscored members change the credit of scored member {index}: leave them out of every baseline"
    nobody = Group((*(replace(t, outcome=None) for t in members[:3]), _never_started()))
    return _not_zero(price_checked(function, nobody), "nobody in the group is scored")


def _never_started() -> Trajectory:
    """Return an episode that failed before the first turn: a prompt, nothing decided, unscored."""
    recorder = Recorder()
    recorder.prompt([PROMPT_TOKEN])
    return recorder.finish(None, StopReason.INFRASTRUCTURE)


def _not_zero(credits: Sequence[Credit], why: str) -> str | None:
    for index, credit in enumerate(credits):
        for name, ledger in (("credit", credit.credit), ("advantage", credit.advantage)):
            if (size := float(np.abs(ledger.total).max(initial=0.0))) > 0:
                return f"{why}, but trajectory {index} has {name} up to {size:g}; expected exactly 0"
    return None


def _same(one: Credit, other: Credit) -> bool:
    pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = [
        (one.credit.total, other.credit.total),
        (one.advantage.total, other.advantage.total),
    ]
    return all(np.allclose(a, b, rtol=0, atol=TOLERANCE) for a, b in pairs)


BOUNDARY_CASES = (
    BoundaryCase("length 1", _length_one),
    BoundaryCase("reward always 0", _equal_rewards(0.0)),
    BoundaryCase("reward constant", _equal_rewards(0.7)),
    BoundaryCase("a group of one", _group_of_one),
    BoundaryCase("no decision token", _no_decision),
    BoundaryCase("unscored members", _unscored),
)
