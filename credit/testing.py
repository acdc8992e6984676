"""Assertions on a credit function of your own, for pytest.

    from accredit.credit.testing import assert_boundary_cases, check_axioms

    def test_my_function() -> None:
        assert_boundary_cases(my_function)
        check_axioms(my_function, axioms=["causality", "policy invariance"], tolerance=0.02)

Both need numpy only. A function that needs exact prefix values is given as `factory=`, from a process to the function:
`check_axioms(factory=lambda process: Mine(values=process.values))`.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches

from .axioms import BOUNDARY_CASES, Axiom, Panel, Residual, all_axioms, boundary_fault
from .errors import CreditError
from .exact import ExactProcess, branching, random_tree, two_turn
from .ledger import CreditFunction

__all__ = ["assert_boundary_cases", "check_axioms"]

Factory = Callable[[ExactProcess], CreditFunction]


def check_axioms(
    function: CreditFunction | None = None,
    *,
    factory: Factory | None = None,
    axioms: Iterable[Axiom | str] = tuple(Axiom),
    tolerance: float = 0.01,
    processes: Iterable[ExactProcess] | None = None,
    quantity: str = "credit",
    most_groups: int = 200,
) -> list[Residual]:
    """Assert that the residual of every axiom of `axioms` is at most `tolerance` on every process; return them all.

    Args:
        function: the credit function; or
        factory: how to make it for a process.
        axioms: those to assert, by name.
        tolerance: the largest residual that passes.
        processes: enumerable exact processes; by default two turns and a coin, one that stops early, and a random tree.
        quantity: "credit" or "advantage".
        most_groups: the most groups of a process that are enumerated; beyond it some are drawn.

    Raises:
        AssertionError: names every axiom that fails, by how much, and the token where it fails worst.
        CreditError: no such axiom, or none; no process; an axiom that is measured on none of the processes (scale
            stability needs one that can be stretched); or not exactly one of `function` and `factory`.

    """
    make, asked = _one_of(function, factory), [_axiom(axiom) for axiom in _listed(axioms)]
    chosen = (two_turn(), branching(), random_tree(1, depth=4)) if processes is None else tuple(processes)
    for what, given in (("axioms", asked), ("processes", chosen)):
        if not given:
            raise CreditError(f"{what} is empty: nothing would be checked")
    found, failures = [], []
    for process in chosen:
        panel = Panel.of(process, most_groups)
        for residual in all_axioms(panel, make(panel.recalled), quantity, make):
            found.append(residual)
            if residual.axiom in asked and residual.holds(tolerance) is False:
                failures.append(_failure(residual, process.name, tolerance, quantity))
    unmeasured = set(asked) - {residual.axiom for residual in found if residual.value is not None}
    if unmeasured:
        raise CreditError(
            f"{' and '.join(sorted(unmeasured))} was measured on none of {', '.join(p.name for p in chosen)}: leave it "
            "out of `axioms`, or add a process that can be stretched"
        )
    if failures:
        raise AssertionError("\n".join([f"{len(failures)} residuals above {tolerance:g}:", *failures]))
    return found


def assert_boundary_cases(function: CreditFunction | None = None, *, factory: Factory | None = None) -> None:
    """Assert the boundary cases: length 1, equal rewards, a group of one, nothing decided, unscored members.

    Raises:
        AssertionError: names every case that fails, and what was expected.
        CreditError: not exactly one of `function` and `factory`.

    """
    make = _one_of(function, factory)
    faults = [f"{case.name}: {fault}" for case in BOUNDARY_CASES if (fault := boundary_fault(case, make))]
    if faults:
        raise AssertionError("\n".join([f"{len(faults)} of {len(BOUNDARY_CASES)} boundary cases fail:", *faults]))


def _one_of(function: CreditFunction | None, factory: Factory | None) -> Factory:
    if factory is not None and function is None:
        return factory
    if function is not None and factory is None:
        given = function
        return lambda process: given
    raise CreditError("expected exactly one of function and factory")


def _listed(axioms: Iterable[Axiom | str]) -> Iterable[Axiom | str]:
    return [axioms] if isinstance(axioms, str) else axioms


def _axiom(name: Axiom | str) -> Axiom:
    try:
        return Axiom(name)
    except ValueError:
        names = [axiom.value for axiom in Axiom]
        near = get_close_matches(str(name), names, 1, 0.4)
        hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(names)}"
        raise CreditError(f"there is no axiom '{name}': {hint}") from None


def _failure(residual: Residual, process: str, tolerance: float, quantity: str) -> str:
    parts = ", ".join(f"{name} {value:.4g}" for name, value in residual.parts.items())
    lines = [f"{residual.axiom} of the {quantity}: {residual.value:.4g} on {process} ({parts})"]
    return "\n    worst at ".join([*lines, str(residual.witness)] if residual.witness else lines)
