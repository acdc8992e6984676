"""Runs untrusted code; typed verdicts. Knows nothing of the rest of the suite.

`accredit.sandboxes.select.select()` gives the strongest sandbox that works here, or the one that the run names,
`await sandbox.open()` a session for one episode, `await session.run(code)` an `Outcome`; `run_python(code)` does all
three in blocking code.
Names load on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bwrap import BubblewrapSandbox
    from .docker import DockerSandbox
    from .embedded.session import EmbeddedSandbox, EmbeddedSession
    from .errors import AccreditError, SandboxError, SandboxFault
    from .housekeeping import PoolCounts, PoolOptions
    from .monty import MontySandbox
    from .once import run_python
    from .plain import SubprocessSandbox
    from .pool import Pool
    from .protocol import (
        BlockingSession,
        Entry,
        ErrorSpan,
        IsolationReport,
        Layer,
        Level,
        Limits,
        Outcome,
        Sandbox,
        Session,
        Usage,
    )
    from .remote.client import RemoteSandbox
    from .verdict import Blame, Evidence, Status, Verdict, classify

__all__ = [
    "AccreditError",
    "Blame",
    "BlockingSession",
    "BubblewrapSandbox",
    "DockerSandbox",
    "EmbeddedSandbox",
    "EmbeddedSession",
    "Entry",
    "ErrorSpan",
    "Evidence",
    "IsolationReport",
    "Layer",
    "Level",
    "Limits",
    "MontySandbox",
    "Outcome",
    "Pool",
    "PoolCounts",
    "PoolOptions",
    "RemoteSandbox",
    "Sandbox",
    "SandboxError",
    "SandboxFault",
    "Session",
    "Status",
    "SubprocessSandbox",
    "Usage",
    "Verdict",
    "classify",
    "run_python",
]

_HOMES = {
    ".bwrap": ("BubblewrapSandbox",),
    ".docker": ("DockerSandbox",),
    ".embedded.session": ("EmbeddedSandbox", "EmbeddedSession"),
    ".errors": ("AccreditError", "SandboxError", "SandboxFault"),
    ".housekeeping": ("PoolCounts", "PoolOptions"),
    ".monty": ("MontySandbox",),
    ".once": ("run_python",),
    ".plain": ("SubprocessSandbox",),
    ".pool": ("Pool",),
    ".protocol": (
        "BlockingSession",
        "Entry",
        "ErrorSpan",
        "IsolationReport",
        "Layer",
        "Level",
        "Limits",
        "Outcome",
        "Sandbox",
        "Session",
        "Usage",
    ),
    ".remote.client": ("RemoteSandbox",),
    ".verdict": ("Blame", "Evidence", "Status", "Verdict", "classify"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
