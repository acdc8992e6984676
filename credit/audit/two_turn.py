"""The two-turn table: what public estimators do to a process of two decisions and one coin, everything enumerated.

The group holds every trajectory of `two_turn` eight times, so the baseline is exact and no sampling is left. Figures:

- residual: the mean over trajectories of |sum over decision tokens - what the two decisions moved V|;
- null ratio: mean |amount| on decision tokens without alternatives / on those with;
- luck share: the share of the variance of the first decision's amount that the later coin explains;
- balance: the first decision's gradient against the second's, over the same ratio of the exact gradient. 1 is right;
- cosine with the exact gradient.

The public functions are judged by their *advantage*, which multiplies grad log pi; our `credit` of the same functions
is shown beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accredit.credit.axioms.panel import price_checked
from accredit.credit.exact.process import enumerate_or_raise
from accredit.credit.exact.recalled import Recalled
from accredit.credit.exact.script import two_turn
from accredit.credit.trajectory import Group, Trajectory

from .functions import Make, make_for

__all__ = ["LITERATURE", "LiteratureRow", "TwoTurnFigures", "literature_table", "two_turn_figures"]

Floats = NDArray[np.float64]
COPIES = 8
FIRST, COIN, SECOND = 2, 3, 5  # tokens, after the prompt's


class TwoTurnFigures(NamedTuple):
    """One row; see the module. None where a figure is undefined: no variance, or a gradient of 0."""

    residual: float
    credit_residual: float
    null_ratio: float | None
    luck_share: float | None
    balance: float | None
    cosine: float


@dataclass(frozen=True, slots=True)
class LiteratureRow:
    """A row of the known table.

    Attributes:
        name: the estimator.
        make: how to make our form of it.
        known: residual, null ratio, luck share, balance as measured with the estimator's own code; None = undefined.
        keys: what the state key holds; "observation" where the estimator groups by what the tool showed.
        extra_reward: whether the first turn is paid .4 a on top of an outcome of R, as turn-reward methods are used.
        note: why our figures differ, if they do.

    """

    name: str
    make: Make
    known: tuple[float, float | None, float | None, float | None]
    keys: str = "state"
    extra_reward: bool = False
    note: str = ""


LITERATURE = (
    LiteratureRow("Doob, exact V", make_for("exact"), (0.0, 0.0, 0.0, 1.0)),
    LiteratureRow(
        "GRPO with std",
        make_for("grpo"),
        (4.08, 1.0, 0.265, 1.0),
        note="4.08 divides by the sample's deviation of 64 rewards, ours by the population's: x 1.008",
    ),
    LiteratureRow("mean baseline", make_for("dr_grpo"), (1.08, 1.0, 0.265, 1.0)),
    LiteratureRow("RLOO", make_for("rloo"), (1.10, 1.0, 0.265, 1.0), note="1.095 before rounding"),
    LiteratureRow("GAE, feedback skipped", make_for("gae", lam=0.0, feedback="skipped"), (0.15, 0.0, 0.36, 1.0)),
    LiteratureRow("GAE, V = 0 on feedback", make_for("gae", lam=0.0, feedback="zeroed"), (0.50, 0.0, None, 0.0)),
    LiteratureRow("VinePPO, exact V", make_for("vineppo"), (0.40, 0.95, 0.36, 1.0)),
    LiteratureRow("GiGPO", make_for("gigpo", gamma=1.0), (2.10, 0.97, 0.265, 1.0), keys="observation"),
    LiteratureRow(
        "MT-GRPO",
        make_for("mt_grpo"),
        (5.19, 0.89, 0.079, 2.46),
        extra_reward=True,
        note="5.19 divides by the sample's deviation of 64 rewards, ours by the population's: x 1.008",
    ),
)


def literature_table() -> list[tuple[LiteratureRow, TwoTurnFigures]]:
    """Return the known table again, row by row, from our own forms of the estimators."""
    return [(row, two_turn_figures(row.make, row.keys, row.extra_reward)) for row in LITERATURE]


def two_turn_figures(make: Make, keys: str = "state", extra_reward: bool = False) -> TwoTurnFigures:
    """Return the row of one function. `keys` and `extra_reward` as in `LiteratureRow`."""
    process = two_turn(keys=keys)
    recalled = Recalled(process)
    trajectories = enumerate_or_raise(process)[1]
    members = []
    for trajectory in trajectories:
        paid = _paid_on_top(trajectory) if extra_reward else trajectory
        if not extra_reward:
            recalled.remember(paid, process.values(trajectory))
        members.append(paid)
    credits = price_checked(make(recalled), Group(tuple(members * COPIES)))[: len(members)]
    amounts = {
        "advantage": np.array([credit.advantage.total for credit in credits]),
        "credit": np.array([credit.credit.total for credit in credits]),
    }
    advantage_NT = amounts["advantage"]
    move_NT = np.array([np.diff(process.values(trajectory)) for trajectory in trajectories])
    decided_T = trajectories[0].credit_mask
    residuals = {name: _residual(amount_NT, move_NT, decided_T) for name, amount_NT in amounts.items()}
    scores = [process.score(trajectory) for trajectory in trajectories]
    gradient_P = np.mean([row_T @ score_TP for row_T, score_TP in zip(advantage_NT, scores, strict=True)], axis=0)
    exact_P = process.policy_gradient()
    null_T = decided_T.copy()
    null_T[[FIRST, SECOND]] = False
    lengths = float(np.linalg.norm(gradient_P) * np.linalg.norm(exact_P))
    return TwoTurnFigures(
        residual=residuals["advantage"],
        credit_residual=residuals["credit"],
        null_ratio=_ratio(np.abs(advantage_NT[:, null_T]).mean(), np.abs(advantage_NT[:, [FIRST, SECOND]]).mean()),
        luck_share=_luck_share(advantage_NT[:, FIRST], trajectories),
        balance=_ratio(float(gradient_P[1] * exact_P[3]), float(gradient_P[3] * exact_P[1])),
        cosine=float(gradient_P @ exact_P) / lengths if lengths else 0.0,
    )


def ordering(rows: Mapping[str, TwoTurnFigures]) -> list[str]:
    """Return the names from the smallest residual to the largest."""
    return sorted(rows, key=lambda name: rows[name].residual)


def _paid_on_top(trajectory: Trajectory) -> Trajectory:
    paid_K = np.zeros(trajectory.turns)
    paid_K[0] = 0.4 * (int(trajectory.token_ids[FIRST]) % 10)
    return replace(trajectory, turn_rewards=paid_K)


def _residual(amount_NT: Floats, move_NT: Floats, decided_T: NDArray[np.bool_]) -> float:
    return float(np.abs((amount_NT - move_NT)[:, decided_T].sum(axis=1)).mean())


def _luck_share(amount_N: Floats, trajectories: tuple[Trajectory, ...]) -> float | None:
    coin_N = np.array([trajectory.token_ids[COIN] for trajectory in trajectories])
    total = float(amount_N.var())
    if total < 1e-15:
        return None
    means = np.array([amount_N[coin_N == face].mean() for face in coin_N])
    return float(means.var()) / total


def _ratio(above: float, below: float) -> float | None:
    return float(above / below) if abs(below) > 1e-15 else None
