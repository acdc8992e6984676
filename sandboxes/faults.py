"""Outcomes of runs that the host side failed: nobody's doing, least of all the program's."""

from .protocol import Outcome
from .verdict import Evidence, Status, classify

__all__ = ["fault_outcome"]


def fault_outcome(status: Status, detail: str, sandbox_id: str, isolation_id: str) -> Outcome:
    """Return the outcome of a run that ended by a fault, which `detail` tells."""
    evidence = Evidence(fault=status, detail=detail)
    return Outcome(*classify(evidence), evidence, sandbox_id, isolation_id)
