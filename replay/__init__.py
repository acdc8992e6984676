"""Reads stored trajectories and shows them: one file to mail, a page served while a run trains, or the terminal."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .html_file import export
    from .reading import PricedEpisode, RunReader, open_run
    from .terminal import show

__all__ = ["PricedEpisode", "RunReader", "export", "open_run", "show"]

_HOMES = {
    "PricedEpisode": "accredit.replay.reading",
    "RunReader": "accredit.replay.reading",
    "export": "accredit.replay.html_file",
    "open_run": "accredit.replay.reading",
    "show": "accredit.replay.terminal",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it offers {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
