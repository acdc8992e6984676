"""An audit as text: tables of strings (for a terminal), Markdown, JSON."""

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from accredit.credit.axioms.residual import Axiom, Residual

from .probe import LEAST_RIGHT
from .report import Audit, FunctionAudit
from .signals import EPISODE_TURNS, SIZES
from .two_turn import TwoTurnFigures

__all__ = ["TextTable", "notes", "to_json", "to_markdown", "to_tables"]

SCHEMA_VERSION = 1


class TextTable(NamedTuple):
    """A table of strings with a title and a sentence on how to read it."""

    title: str
    legend: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def to_tables(audit: Audit) -> list[TextTable]:
    """Return the tables of an audit, in the order to read them."""
    tables = [
        _axioms(audit, "credit"),
        _axioms(audit, "advantage"),
        TextTable(
            "Boundary cases and counterfactual probe",
            f"Flips: decisions of which another option was taken, everything else kept; right direction in at least "
            f"{LEAST_RIGHT:.0%} is asked. Deleted: how far credit moved when a null turn went, against the largest.",
            ("function", "boundary cases", "flips", "right direction", "moved by deleted null turn"),
            [_edge_row(found) for found in audit.functions],
        ),
        TextTable(
            "Two turns and a coin: advantage of every function",
            "Residual: mean |sum over decision tokens - what the decisions moved V|. Null: mean size on tokens without "
            "a choice / with one. Luck: share of the first decision's variance that the later coin explains. Balance: "
            "first turn's gradient against the second's, 1 is right. In brackets: the residual of the credit.",
            ("function", "residual", "(credit)", "null", "luck", "balance", "cosine"),
            [(found.name, *_two_turn_cells(found.two_turn)) for found in audit.functions],
        ),
        TextTable(
            "Two turns and a coin: known figures, and ours",
            "Known: measured with the estimators' own code. Ours: our forms of them.",
            ("estimator", "residual", "null", "luck", "balance", "why it differs"),
            [(row.name, *_known_cells(row.known, figures), row.note or "-") for row, figures in audit.literature],
        ),
        _signals(audit),
    ]
    if audit.chain:
        tables.append(
            TextTable(
                "Long chains: signal-to-noise of one group's gradient",
                "Known figure, then ours. Group mean is dr_grpo.",
                ("turns (relevant)", "group", "group mean", "anchored", "exact V"),
                [
                    (
                        f"{row.process.turns} ({row.process.relevant})",
                        str(row.size),
                        *(f"{known:g}, {one.signal_to_noise:.3f}" for known, one in zip(row.known, ours, strict=True)),
                    )
                    for row, ours in audit.chain
                ],
            )
        )
    return tables


def notes(audit: Audit) -> list[str]:
    """Return what the tables do not say by themselves, a sentence each."""
    settings = audit.settings
    said = [
        f"An axiom is kept when its residual is at most {settings.tolerance:g}. "
        f"Processes, all groups of each: {', '.join(audit.processes)}."
    ]
    if strong := audit.broken_by_all_mainstream:
        said.append(
            f"No mainstream method here keeps {', '.join(strong)}: ask whether that is too strong a demand, or the gap."
        )
    for found in audit.functions:
        said += [f"{found.name} fails the boundary case '{case}': {fault}" for case, fault in found.faults]
    said += [f"Not audited: {name}, because {why}." for name, why in audit.omitted.items()]
    return said


def to_markdown(audit: Audit) -> str:
    """Return the audit as a Markdown page."""
    lines = ["# Audit of credit functions", ""]
    for table in to_tables(audit):
        lines += [f"## {table.title}", "", table.legend, ""]
        lines += [f"| {' | '.join(table.columns)} |", "|" + "---|" * len(table.columns)]
        lines += [f"| {' | '.join(row)} |" for row in table.rows]
        lines.append("")
    lines += ["## Notes", "", *(f"- {note}" for note in notes(audit)), ""]
    return "\n".join(lines)


def to_json(audit: Audit) -> str:
    """Return the audit as JSON, witnesses included; a figure that does not exist is null."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "tolerance": audit.settings.tolerance,
        "seed": audit.settings.seed,
        "processes": list(audit.processes),
        "functions": [_function_json(found, audit.settings.tolerance) for found in audit.functions],
        "two_turn": [
            {"name": row.name, "known": row.known, "ours": figures._asdict(), "note": row.note}
            for row, figures in audit.literature
        ],
        "chain": [
            {
                "turns": row.process.turns,
                "relevant": row.process.relevant,
                "group": row.size,
                "known": row.known,
                "ours": [one._asdict() for one in ours],
            }
            for row, ours in audit.chain
        ],
        "notes": notes(audit),
    }
    return json.dumps(content, indent=1, allow_nan=False)


def _axioms(audit: Audit, quantity: str) -> TextTable:
    tolerance = audit.settings.tolerance
    rows = []
    for found in audit.functions:
        residuals = found.credit if quantity == "credit" else found.advantage
        rows.append((found.name, *(_residual_cell(residual, tolerance) for residual in residuals)))
    legend = {
        "credit": "What a token is worth; the largest residual over the processes.",
        "advantage": "What multiplies grad log pi. It holds no luck, so it is asked to sum to what the decisions moved "
        "V. Most functions give each token of a segment all of it, which is neither complete nor stable in scale.",
    }
    return TextTable(f"Axioms: residuals of the {quantity}", legend[quantity], ("function", *Axiom), rows)


def _signals(audit: Audit) -> TextTable:
    columns = ("function", *(f"G={size}" for size in SIZES), *(f"K={turns}" for turns in EPISODE_TURNS), "cosine")
    rows = [
        (
            found.name,
            *(f"{found.signals.relative[size]:.2f}" for size in SIZES),
            *(_times(found.signals.episodes[turns]) for turns in EPISODE_TURNS),
            f"{found.signals.cosine:.3f}",
        )
        for found in audit.functions
    ]
    legend = (
        "G: signal-to-noise of one group's gradient as a share of exact V's, 8 turns. K: how many times the episodes "
        "of exact V it takes, groups of 8. A high figure with a low cosine is sure of a wrong direction."
    )
    return TextTable("Gradients on Chain, half of the turns relevant", legend, columns, rows)


def _edge_row(found: FunctionAudit) -> tuple[str, ...]:
    cases = "all pass" if not found.faults else f"{len(found.faults)} fail"
    verdict = "ok" if found.probe.right >= LEAST_RIGHT else "no"
    probed = (str(found.probe.flips), f"{found.probe.right:.1%} {verdict}", _number(found.probe.moved_by_deletion))
    return (found.name, cases, *probed)


def _two_turn_cells(figures: TwoTurnFigures) -> tuple[str, ...]:
    return (
        f"{figures.residual:.3f}",
        f"({figures.credit_residual:.3f})",
        _optional(figures.null_ratio, 2),
        _optional(figures.luck_share, 3),
        _optional(figures.balance, 2),
        f"{figures.cosine:.2f}",
    )


def _known_cells(known: Sequence[float | None], figures: TwoTurnFigures) -> tuple[str, ...]:
    ours = (figures.residual, figures.null_ratio, figures.luck_share, figures.balance)
    digits = (2, 2, 3, 2)
    return tuple(f"{_optional(k, d)}, {_optional(o, 3)}" for k, o, d in zip(known, ours, digits, strict=True))


def _residual_cell(residual: Residual, tolerance: float) -> str:
    if residual.value is None:
        return "-"
    return f"{_number(residual.value)} {'ok' if residual.holds(tolerance) else 'no'}"


def _number(value: float) -> str:
    if value == 0 or value >= 1e-3:
        return f"{value:.3f}"
    return f"{value:.0e}"


def _optional(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value + 0.0:.{digits}f}"


def _times(value: float) -> str:
    return "no direction" if math.isinf(value) else f"{value:.1f}x"


def _function_json(found: FunctionAudit, tolerance: float) -> dict[str, Any]:
    signals = found.signals
    return {
        "name": found.name,
        "credit": {residual.axiom.value: _residual_json(residual, tolerance) for residual in found.credit},
        "advantage": {residual.axiom.value: _residual_json(residual, tolerance) for residual in found.advantage},
        "faults": dict(found.faults),
        "probe": found.probe._asdict(),
        "two_turn": found.two_turn._asdict(),
        "signal_relative_to_exact": {str(size): value for size, value in signals.relative.items()},
        "episodes_relative_to_exact": {str(k): None if math.isinf(v) else v for k, v in signals.episodes.items()},
        "cosine": signals.cosine,
    }


def _residual_json(residual: Residual, tolerance: float) -> dict[str, Any]:
    witness = residual.witness
    return {
        "value": residual.value,
        "holds": residual.holds(tolerance),
        "exact": residual.exact,
        "parts": dict(residual.parts),
        "witness": None
        if witness is None
        else {
            "process": witness.process,
            "token_ids": witness.trajectory.token_ids.tolist(),
            "token": witness.token,
            "found": witness.found,
            "expected": witness.expected,
        },
    }
