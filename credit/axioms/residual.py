"""What a check of an axiom answers: how far a credit function is from it, and where it is farthest."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from accredit.credit.trajectory import Trajectory

__all__ = ["Axiom", "Residual", "Witness"]


class Axiom(StrEnum):
    """The six axioms, in the order of the tables."""

    COMPLETENESS = "completeness"
    """The credit of all tokens sums to R - V_0."""
    CAUSALITY = "causality"
    """Nothing after a token moves its credit."""
    NO_DISTURBANCE = "no disturbance"
    """What changes no value gets no credit, and credit is fair given the past."""
    DISCRIMINATION = "discrimination"
    """Decisions of different effect get different credit, in the right order."""
    SCALE_STABILITY = "scale stability"
    """Null tokens and null turns change no other credit and not the total energy."""
    POLICY_INVARIANCE = "policy invariance"
    """The advantage-weighted score points along the true policy gradient."""


@dataclass(frozen=True, slots=True, eq=False)
class Witness:
    """Where an axiom fails worst.

    Attributes:
        process: the process's name.
        trajectory: the trajectory.
        token: the index of the token; None where the whole trajectory is meant.
        found: the figure found there.
        expected: the figure that the axiom asks for there.

    """

    process: str
    trajectory: Trajectory
    token: int | None
    found: float
    expected: float

    def __str__(self) -> str:
        ids = " ".join(map(str, self.trajectory.token_ids.tolist()))
        place = "the whole of" if self.token is None else f"token {self.token} of"
        return f"{place} [{ids}] of {self.process}: found {self.found:.6g}, expected {self.expected:.6g}"


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """How far a function is from an axiom; 0 is the axiom itself.

    Attributes:
        axiom: which one.
        value: the residual; None where it cannot be measured (a process that cannot be stretched).
        witness: the place where it fails worst; None when it holds, or when there is no such place.
        parts: the figures that `value` was made of, by name.
        exact: whether everything was enumerated; else sampling error is inside.

    """

    axiom: Axiom
    value: float | None
    witness: Witness | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    exact: bool = True

    def holds(self, tolerance: float) -> bool | None:
        """Whether the residual is at most `tolerance`; None where it was not measured."""
        return None if self.value is None else bool(self.value <= tolerance)
