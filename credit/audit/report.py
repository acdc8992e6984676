"""The audit itself: runs every check on every function and keeps what came out.

It prints nothing; `text.py` turns an `Audit` into tables, Markdown and JSON.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from accredit.credit.axioms.boundary import BOUNDARY_CASES, boundary_fault
from accredit.credit.axioms.checks import FACTORS, axioms_of_both
from accredit.credit.axioms.panel import Panel
from accredit.credit.axioms.residual import Axiom, Residual
from accredit.credit.errors import AccreditError, CreditError
from accredit.credit.exact.branching import branching
from accredit.credit.exact.chain import ChainProcess
from accredit.credit.exact.process import ExactProcess
from accredit.credit.exact.random_tree import random_tree
from accredit.credit.exact.script import two_turn
from accredit.credit.exact.signal import Signal
from accredit.credit.exact.symbols import symbols

from .functions import MAINSTREAM, OMITTED, Make, audited_functions
from .probe import LEAST_RIGHT, Probe, probe
from .signals import EPISODE_TURNS, SIZES, ChainRow, Signals, chain_table, measure_signals
from .two_turn import LiteratureRow, TwoTurnFigures, literature_table, two_turn_figures

__all__ = ["Audit", "AuditSettings", "FunctionAudit", "audit", "audited_processes"]

Heard = Callable[[int, int, str], None]
CHAIN_STEPS, SIGNAL_STEPS = 4, len(SIZES) + len(EPISODE_TURNS) - 1


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How closely the audit looks.

    Attributes:
        tolerance: a residual up to this counts as an axiom kept. In the units of the residual: reward for completeness
            and no disturbance, shares for the rest.
        most_groups: the most groups of a process that are enumerated; a process with more pairs than that is left out.
        signal_groups: groups behind each signal-to-noise figure; its relative error is about 1 / sqrt(groups).
        probe_groups: groups in which the probe flips decisions.
        factors: how many times the length processes are told, for scale stability.
        chain: whether the table of long chains is measured, too.
        seed: of everything that is drawn.

    """

    tolerance: float = 0.01
    most_groups: int = 700
    signal_groups: int = 150
    probe_groups: int = 40
    factors: tuple[int, ...] = FACTORS
    chain: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.tolerance > 0:
            raise CreditError(f"tolerance={self.tolerance}: expected a number above 0; exact credit is off by rounding")

    @classmethod
    def quick(cls, tolerance: float = 0.01, seed: int = 0) -> "AuditSettings":
        """Return the settings of a look that takes seconds: fewer groups, no long chains."""
        return cls(tolerance, most_groups=120, signal_groups=12, probe_groups=5, factors=(4,), chain=False, seed=seed)


@dataclass(frozen=True, slots=True)
class FunctionAudit:
    """What the audit found of one function.

    Attributes:
        name: the function's.
        credit: the six residuals of its credit, each on the process where it is largest.
        advantage: the same of its advantage.
        faults: (boundary case, what is wrong), only of cases that failed.
        probe: the counterfactual probe, all processes together.
        two_turn: its row of the two-turn table.
        signals: its gradients on Chain.

    """

    name: str
    credit: tuple[Residual, ...]
    advantage: tuple[Residual, ...]
    faults: tuple[tuple[str, str], ...]
    probe: Probe
    two_turn: TwoTurnFigures
    signals: Signals


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings. `literature` and `chain` are the two known tables, measured again."""

    settings: AuditSettings
    processes: tuple[str, ...]
    functions: tuple[FunctionAudit, ...]
    literature: tuple[tuple[LiteratureRow, TwoTurnFigures], ...]
    chain: tuple[tuple[ChainRow, list[Signal]], ...]
    omitted: Mapping[str, str] = field(default_factory=dict)

    @property
    def broken_by_all_mainstream(self) -> tuple[Axiom, ...]:
        """The axioms that the credit of no audited mainstream method keeps; none if fewer than three are audited."""
        mainstream = [found for found in self.functions if found.name in MAINSTREAM]
        if len(mainstream) < 3:
            return ()
        tolerance = self.settings.tolerance
        return tuple(
            axiom for place, axiom in enumerate(Axiom) if not any(f.credit[place].holds(tolerance) for f in mainstream)
        )

    def keeps(self, name: str) -> bool:
        """Whether the credit of `name` keeps all six axioms, every boundary case and the probe."""
        (found,) = [one for one in self.functions if one.name == name]
        held = all(residual.holds(self.settings.tolerance) is not False for residual in found.credit)
        return held and not found.faults and found.probe.right >= LEAST_RIGHT


def audited_processes() -> tuple[ExactProcess, ...]:
    """Return the fixed set of processes on which residuals are taken."""
    return (
        two_turn(),
        symbols(),
        branching(),
        random_tree(0, depth=3),
        random_tree(1, depth=4),
        ChainProcess(2, 1, 0.7, 0.1),
    )


def audit(
    functions: Mapping[str, Make] | None = None,
    settings: AuditSettings | None = None,
    heard: Heard = lambda done, total, what: None,
) -> Audit:
    """Audit `functions` (by default all registered ones); calls `heard(done, total, what is next)` as it goes.

    Args:
        functions: name -> how to make the credit function for a process. Those that need no process ignore it.
        settings: how closely to look.
        heard: progress, in equal steps more or less.

    Raises:
        CreditError: a function fails, answers in a wrong shape, or puts advantage off the decision tokens.

    """
    settings = settings or AuditSettings()
    makers = audited_functions() if functions is None else dict(functions)
    all_panels = [Panel.of(process, settings.most_groups, settings.seed) for process in audited_processes()]
    panels = [panel for panel in all_panels if panel.exact]
    total, done = len(makers) + SIGNAL_STEPS + (CHAIN_STEPS if settings.chain else 0), 0

    def step(what: str) -> None:
        nonlocal done
        heard(done, total, what)
        done += 1

    found: dict[str, FunctionAudit] = {}
    for name, make in makers.items():
        step(name)
        try:
            found[name] = _audit_one(name, panels, make, settings)
        except AccreditError as error:
            raise CreditError(f"audit of '{name}': {error}") from error
        except Exception as error:
            raise CreditError(f"audit of '{name}': it failed with {type(error).__name__}: {error}") from error
    signals = measure_signals(makers, settings.signal_groups, settings.seed, lambda: step("gradients on Chain"))
    chain = chain_table(settings.signal_groups, settings.seed, lambda: step("long chains")) if settings.chain else []
    heard(total, total, "")
    return Audit(
        settings=settings,
        processes=tuple(panel.process.name for panel in panels),
        functions=tuple(replace(one, signals=signals[name]) for name, one in found.items()),
        literature=tuple(literature_table()),
        chain=tuple(chain),
        omitted=OMITTED if functions is None else {},
    )


def _audit_one(name: str, panels: list[Panel], make: Make, settings: AuditSettings) -> FunctionAudit:
    """Return all of one function but its signals, which all functions share rollouts for."""
    by_quantity: dict[str, list[tuple[Residual, ...]]] = {"credit": [], "advantage": []}
    for panel in panels:
        priced = panel.priced(make(panel.recalled))
        for quantity, residuals in axioms_of_both(panel, priced, make, factors=settings.factors).items():
            by_quantity[quantity].append(residuals)
    worst = {name: tuple(_worst(column) for column in zip(*rows, strict=True)) for name, rows in by_quantity.items()}
    faults = [(case.name, fault) for case in BOUNDARY_CASES if (fault := boundary_fault(case, make))]
    probes = [
        probe(process, make, settings.probe_groups, seed=settings.seed)
        for process in (two_turn(), branching(), random_tree(1, depth=4))
    ]
    flips = sum(one.flips for one in probes)
    right = sum(one.flips * one.right for one in probes) / max(1, flips)
    together = Probe(flips, right, max(one.moved_by_deletion for one in probes))
    return FunctionAudit(
        name=name,
        credit=worst["credit"],
        advantage=worst["advantage"],
        faults=tuple(faults),
        probe=together,
        two_turn=two_turn_figures(make),
        signals=Signals({}, {}, 0.0),
    )


def _worst(residuals: tuple[Residual, ...]) -> Residual:
    measured = [residual for residual in residuals if residual.value is not None]
    return max(measured or residuals, key=lambda residual: residual.value or 0.0)
