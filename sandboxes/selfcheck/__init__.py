"""Attacks a sandbox with programs that mean harm or merely cause it, and says what came through.

`check` runs the whole list against one backend: every program ends as its table says, no secret of the host is read, no
process survives, and the next run works. The tests and `accredit sandbox doctor --hostile` both use it.
"""

from .check import Finding, Hosted, Report, check
from .intrusions import INTRUSIONS
from .program import LIMITS, Program
from .resources import RESOURCES
from .sessions import SESSIONS

__all__ = ["HOSTILE", "LIMITS", "Finding", "Hosted", "Program", "Report", "check"]

HOSTILE: tuple[Program, ...] = (*RESOURCES, *INTRUSIONS, *SESSIONS)
"""All hostile programs."""
