"""The six axioms as residuals. A token's credit is c_t, what is known after it F_t, its exact value move V_t - V_{t-1}.

Each check takes an exact process (or its `Panel`) and a credit function (or the `Priced` panel, to price once for
several checks) and returns a `Residual`. The axioms are asked of the credit; with `quantity="advantage"`, of what
multiplies grad log pi. Axiom 6 is always about the advantage: that is what trains.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accredit.credit.exact.process import ExactProcess
from accredit.credit.ledger import CreditFunction

from .order import order_within_states, weighted_auc
from .panel import Panel, Priced
from .residual import Axiom, Residual, Witness

__all__ = [
    "FACTORS",
    "all_axioms",
    "axioms_of_both",
    "causality",
    "completeness",
    "discrimination",
    "no_disturbance",
    "policy_invariance",
    "priced_longer",
    "scale_stability",
]

Floats = NDArray[np.float64]
Make = Callable[[ExactProcess], CreditFunction]
FACTORS = (2, 4, 16)
ROUNDING = 1e-11  # a move of V below this share of the largest is rounding


def completeness(
    process: ExactProcess | Panel, function: CreditFunction | Priced, quantity: str = "credit"
) -> Residual:
    """Axiom 1: max over trajectories of |sum_t c_t - (R - V_0)|, c_t the mean over the companions.

    An advantage never holds luck: it is asked to sum to what the decisions moved V, which is R - V_0 less luck.
    """
    priced = _priced(process, function, quantity)
    panel = priced.panel
    found_N, expected_N = priced.mean_NT.sum(axis=1), panel.reward_N - panel.value_NT1[:, 0]
    if quantity == "advantage":
        expected_N = np.where(panel.decided_NT, panel.move_NT, 0.0).sum(axis=1)
    worst = int(np.argmax(np.abs(found_N - expected_N)))
    value = float(abs(found_N[worst] - expected_N[worst]))
    witness = _witness(panel, value, worst, None, found_N[worst], expected_N[worst])
    return Residual(Axiom.COMPLETENESS, value, witness, {"max abs": value}, panel.exact)


def causality(process: ExactProcess | Panel, function: CreditFunction | Priced, quantity: str = "credit") -> Residual:
    """Axiom 2: the mean over decision and feedback tokens of Var(c_t given F_t) / Var(R)."""
    priced = _priced(process, function, quantity)
    panel = priced.panel
    expected_NT = _given(panel, priced.mean_NT, panel.known_NT1[:, 1:])
    squared_NT = np.where(panel.valued_NT, (priced.mean_NT - expected_NT) ** 2, 0.0)
    value = _mean(panel, squared_NT, panel.valued_NT) / panel.variance if panel.variance else 0.0
    n, t = _worst(squared_NT)
    witness = _witness(panel, value, n, t, priced.mean_NT[n, t], expected_NT[n, t])
    return Residual(Axiom.CAUSALITY, value, witness, {"variance share": value}, panel.exact)


def no_disturbance(
    process: ExactProcess | Panel, function: CreditFunction | Priced, quantity: str = "credit"
) -> Residual:
    """Axiom 3: mean |c_t| on decisions that move no value; mean |E[c_t given F_{t-1}]|. The larger is the residual.

    The first is taken over every priced group, not over the companions' mean: noise on a null token is a disturbance.
    """
    priced = _priced(process, function, quantity)
    panel = priced.panel
    still = ROUNDING * max(1e-300, float(np.abs(panel.move_NT).max()))
    null_NT = panel.decided_NT & (np.abs(panel.move_NT) <= still)
    amount, weight, n, t = priced.rows(null_NT)
    null = float(weight @ np.abs(amount) / weight.sum()) if weight.sum() > 0 else 0.0
    asked_NT = panel.decided_NT if quantity == "advantage" else panel.valued_NT
    fair_NT = np.where(asked_NT, _given(panel, priced.mean_NT, panel.known_NT1[:, :-1]), 0.0)
    unfair = _mean(panel, np.abs(fair_NT), asked_NT)
    if null >= unfair and len(amount):
        at = int(np.argmax(np.abs(amount)))
        witness = _witness(panel, null, int(n[at]), int(t[at]), float(amount[at]), 0.0)
    else:
        i, j = _worst(np.abs(fair_NT))
        witness = _witness(panel, unfair, i, j, fair_NT[i, j], 0.0)
    parts = {"on null decisions": null, "given the past": unfair}
    return Residual(Axiom.NO_DISTURBANCE, max(null, unfair), witness, parts, panel.exact)


def discrimination(
    process: ExactProcess | Panel, function: CreditFunction | Priced, quantity: str = "credit"
) -> Residual:
    """Axiom 4: 1 - AUC of c_t against the sign of the exact advantage; (1 - Kendall tau) / 2 of the options of a state.

    The AUC is over every priced decision that moves the value, tau over the mean credit of each option. The larger is
    the residual: 0 orders all rightly, .5 is chance.
    """
    priced = _priced(process, function, quantity)
    panel = priced.panel
    least = ROUNDING * max(1e-300, float(np.abs(panel.move_NT).max()))
    amount, weight, n, t = priced.rows(panel.decided_NT & (np.abs(panel.move_NT) > least))
    good = panel.move_NT[n, t] > 0
    auc = weighted_auc(amount, np.where(good, weight, 0.0), np.where(good, 0.0, weight))
    tau = order_within_states(panel, priced.mean_NT).tau
    value = max(1 - auc, (1 - tau) / 2)
    witness = None
    if value > 0 and len(amount):
        at = int(np.argmin(np.where(good, 1.0, -1.0) * amount))
        witness = _witness(panel, value, int(n[at]), int(t[at]), float(amount[at]), float(panel.move_NT[n[at], t[at]]))
    return Residual(Axiom.DISCRIMINATION, value, witness, {"AUC": auc, "tau": tau}, panel.exact)


def scale_stability(
    process: ExactProcess | Panel,
    function: CreditFunction | Priced,
    quantity: str = "credit",
    factors: Sequence[int] = FACTORS,
    make: Make | None = None,
    longer: Mapping[int, Priced] | None = None,
) -> Residual:
    """Axiom 5: what stretching by `factors` with null tokens and null turns changes; the largest change counts.

    Drift of the energy: |E sum_t c_t^2 (stretched) / (as it was) - 1|. Drift of the others: mean |change of c_t| on the
    decisions that have alternatives, relative to mean |c_t|. A function that needs the values of its process is made
    anew for every stretched process by `make`. What `priced_longer` returned spares pricing again.
    """
    priced = _priced(process, function, quantity)
    longer = priced_longer(priced, factors, make) if longer is None else longer
    if not longer:
        return Residual(Axiom.SCALE_STABILITY, None)
    panel = priced.panel
    energy, (choices, where) = _energy(priced), _choices(priced)
    parts, worst, witness = {"energy / Var(R)": energy / panel.variance if panel.variance else 0.0}, 0.0, None
    for factor, told in longer.items():
        again = _priced(told.panel, told, quantity)
        drift = abs(_energy(again) / energy - 1) if energy else float(_energy(again) > 0)
        others, weight = _choices(again)[0], panel.weight_MG[where[:, 0], where[:, 1]]
        size = float(weight @ np.abs(choices))
        moved = float(weight @ np.abs(others - choices)) / size if size else float(np.abs(others).max(initial=0.0) > 0)
        parts |= {f"energy x{factor}": drift, f"others x{factor}": moved}
        if max(drift, moved) > worst and len(choices):
            worst, at = max(drift, moved), int(np.argmax(np.abs(others - choices)))
            m, g, t = where[at].tolist()
            witness = _witness(panel, worst, int(panel.groups[m, g]), t, float(others[at]), float(choices[at]))
        worst = max(worst, drift, moved)
    return Residual(Axiom.SCALE_STABILITY, worst, witness, parts, panel.exact)


def priced_longer(priced: Priced, factors: Sequence[int] = FACTORS, make: Make | None = None) -> dict[int, Priced]:
    """Price the same groups of the process stretched by each of `factors`; nothing if it cannot be stretched."""
    panels = {factor: longer for factor in factors if (longer := priced.panel.stretched(factor)) is not None}
    return {f: longer.priced(make(longer.recalled) if make else priced.function) for f, longer in panels.items()}


def policy_invariance(
    process: ExactProcess | Panel, function: CreditFunction | Priced, quantity: str = "credit"
) -> Residual:
    """Axiom 6: 1 - cosine of E sum_t advantage_t grad log pi(x_t) with the exact policy gradient.

    Parts: the cosine, the slope (1 is the gradient itself), and the share of the states with alternatives in which the
    option of most mean advantage is not the best one.
    """
    priced = _priced(process, function, quantity)
    panel = priced.panel
    mean_NT = priced.advantage_NT
    found_P = np.zeros(panel.scores[0].shape[1])
    for chance, row_T, score_TP in zip(panel.chance_N, mean_NT, panel.scores, strict=True):
        found_P += chance * (row_T[: len(score_TP)] @ score_TP)
    exact_P = panel.process.policy_gradient().ravel()
    lengths = float(np.linalg.norm(found_P) * np.linalg.norm(exact_P))
    cosine = float(found_P @ exact_P) / lengths if lengths else float(not np.any(found_P) and not np.any(exact_P))
    slope = float(found_P @ exact_P) / float(exact_P @ exact_P) if exact_P.any() else 0.0
    order = order_within_states(panel, mean_NT)
    value = max(0.0, 1 - cosine)
    n, t = _worst(np.where(panel.choice_NT, np.abs(mean_NT - slope * panel.move_NT), 0.0) * panel.chance_N[:, None])
    witness = _witness(panel, value, n, t, mean_NT[n, t], slope * panel.move_NT[n, t])
    parts = {"cosine": cosine, "slope": slope, "argmax changed": order.argmax_changed}
    return Residual(Axiom.POLICY_INVARIANCE, value, witness, parts, panel.exact)


def all_axioms(
    process: ExactProcess | Panel, function: CreditFunction | Priced, quantity: str = "credit", make: Make | None = None
) -> tuple[Residual, ...]:
    """Return the six residuals, in the order of `Axiom`; `make` as in `scale_stability`."""
    return axioms_of_both(process, function, make, (quantity,))[quantity]


def axioms_of_both(
    process: ExactProcess | Panel,
    function: CreditFunction | Priced,
    make: Make | None = None,
    quantities: Sequence[str] = ("credit", "advantage"),
    factors: Sequence[int] = FACTORS,
) -> dict[str, tuple[Residual, ...]]:
    """Return the six residuals of each quantity, pricing once.

    Stretched trajectories are long, so axiom 5 is measured on smaller groups of the same process.
    """
    priced = _priced(process, function, "credit")
    small = priced.panel.to_stretch
    short = small.priced(make(small.recalled) if make else priced.function)
    longer = priced_longer(short, factors, make)
    found = {}
    for quantity in quantities:
        plain = [check(priced.panel, priced, quantity) for check in PLAIN]
        drift = scale_stability(small, short, quantity, longer=longer)
        found[quantity] = (*plain, drift, policy_invariance(priced.panel, priced, quantity))
    return found


PLAIN = (completeness, causality, no_disturbance, discrimination)


def _priced(process: ExactProcess | Panel, function: CreditFunction | Priced, quantity: str) -> Priced:
    if isinstance(function, Priced):
        return function if function.quantity == quantity else replace(function, quantity=quantity)
    return (process if isinstance(process, Panel) else Panel.of(process)).priced(function, quantity)


def _given(panel: Panel, amount_NT: Floats, known_NT: NDArray[np.int64]) -> Floats:
    """float64 [N, T], E[amount_t given what `known_NT` numbers]."""
    count = int(known_NT.max()) + 2
    weight_NT = np.broadcast_to(panel.chance_N[:, None], known_NT.shape)
    mass = np.bincount(known_NT.ravel() + 1, weight_NT.ravel(), count)
    total = np.bincount(known_NT.ravel() + 1, (weight_NT * amount_NT).ravel(), count)
    expected_NT: Floats = (total / np.maximum(mass, 1e-300))[known_NT + 1]
    return expected_NT


def _mean(panel: Panel, amount_NT: Floats, mask_NT: NDArray[np.bool_]) -> float:
    weight_NT = panel.chance_N[:, None] * mask_NT
    return float((weight_NT * amount_NT).sum() / max(1e-300, float(weight_NT.sum())))


def _energy(priced: Priced) -> float:
    return float((priced.panel.weight_MG * (priced.amount_MGT**2).sum(axis=2)).sum())


def _choices(priced: Priced) -> tuple[Floats, NDArray[np.intp]]:
    """Return the amounts on decisions with alternatives, group by group in order, and their places [.., (m, g, t)]."""
    where = np.argwhere(priced.panel.choice_NT[priced.panel.groups])
    return priced.amount_MGT[where[:, 0], where[:, 1], where[:, 2]], where


def _worst(amount_NT: Floats) -> tuple[int, int]:
    n, t = np.unravel_index(int(np.argmax(amount_NT)), amount_NT.shape)
    return int(n), int(t)


def _witness(panel: Panel, value: float, n: int, token: int | None, found: float, expected: float) -> Witness | None:
    if value <= 0:
        return None
    return Witness(panel.process.name, panel.trajectories[n], token, float(found), float(expected))
