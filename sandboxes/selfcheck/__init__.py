"""Attacks a sandbox with programs that mean harm or merely cause it, and says what came through.

`check` runs the whole list against one backend: every program ends as its table says, no secret of the host is read, no
process survives, and the next run works. The tests and `accredit sandbox doctor --hostile` both use it.
"""

from accredit.sandboxes.select import load

from .check import Finding, Report, check
from .host import Hosted
from .intrusions import INTRUSIONS
from .program import LIMITS, Program
from .resources import RESOURCES
from .sessions import SESSIONS

__all__ = ["HOSTILE", "LIMITS", "Finding", "Hosted", "Program", "Report", "attack", "check"]

HOSTILE: tuple[Program, ...] = (*RESOURCES, *INTRUSIONS, *SESSIONS)
"""All hostile programs."""


def attack(name: str) -> Report:
    """Run all hostile programs against the backend of this name."""
    return check(load(name), HOSTILE)
