"""Order: does credit rank decisions as their exact effect does? Rank statistics, nothing of credit functions."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .panel import Panel

__all__ = ["StateOrder", "order_within_states", "weighted_auc"]

Floats = NDArray[np.float64]
TIE = 1e-11


class StateOrder(NamedTuple):
    """`tau`: weighted Kendall tau of the options of a state, over pairs of different value.

    `argmax_changed`: the share of the states, weighted by their probability, in which the option with most credit is
    not among the best.
    """

    tau: float
    argmax_changed: float


def weighted_auc(amounts: Floats, positive: Floats, negative: Floats) -> float:
    """Return the chance that a drawn positive has more than a drawn negative, ties half.

    Args:
        amounts: float64 [R].
        positive: float64 [R], the weight of each row among the positives, 0 for a negative.
        negative: float64 [R], its weight among the negatives.

    Returns:
        1.0 where one of the two is empty: nothing can be in a wrong order.

    """
    if not (positive.any() and negative.any()):
        return 1.0
    scale = float(np.abs(amounts).max())
    levels = np.round(amounts / scale / TIE) if scale else np.zeros(len(amounts))
    _, level_R = np.unique(levels, return_inverse=True)
    up, down = np.bincount(level_R, positive), np.bincount(level_R, negative)
    below = np.cumsum(down) - down
    return float((up * (below + down / 2)).sum() / (up.sum() * down.sum()))


def order_within_states(panel: Panel, amount_NT: Floats) -> StateOrder:
    """Compare, in every prefix with a choice, the mean amount of each option with the value it leads to."""
    concordant, pairs, changed, states = 0.0, 0.0, 0.0, 0.0
    scale = max(1e-300, float(np.abs(amount_NT).max())) * TIE
    spread = max(1e-300, float(np.abs(panel.move_NT).max())) * TIE
    options: dict[int, dict[int, list[tuple[float, float, float]]]] = {}
    for n, t in np.argwhere(panel.choice_NT).tolist():
        row = (float(panel.chance_N[n]), float(amount_NT[n, t]), float(panel.value_NT1[n, t + 1]))
        token = int(panel.trajectories[n].token_ids[t])
        options.setdefault(int(panel.known_NT1[n, t]), {}).setdefault(token, []).append(row)
    for by_token in options.values():
        chance, amount, value = np.array([_mean_row(rows) for rows in by_token.values()]).T
        weight = float(chance.sum())
        if np.ptp(value) > spread:
            states += weight
            changed += weight * (value[int(np.argmax(amount))] < value.max() - spread)
        for i in range(len(value)):
            for j in range(i):
                if abs(value[i] - value[j]) > spread:
                    pairs += weight
                    apart = amount[i] - amount[j]
                    concordant += weight * float(np.sign(apart) * np.sign(value[i] - value[j])) * (abs(apart) > scale)
    return StateOrder(concordant / pairs if pairs else 1.0, changed / states if states else 0.0)


def _mean_row(rows: list[tuple[float, float, float]]) -> tuple[float, float, float]:
    chance, amount, value = np.array(rows).T
    total = float(chance.sum())
    return total, float(chance @ amount) / total, float(chance @ value) / total
