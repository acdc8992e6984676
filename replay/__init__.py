"""Reads stored trajectories and shows them: one file to mail, or the terminal."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accredit.credit.traces import open_run

    from .html_file import export
    from .terminal import show

__all__ = ["export", "open_run", "show"]

_HOMES = {
    "export": "accredit.replay.html_file",
    "open_run": "accredit.credit.traces",
    "show": "accredit.replay.terminal",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it offers {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
