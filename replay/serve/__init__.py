"""The replay page of a run, served on this machine, also while the run is being written."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .server import ServeError, serve

__all__ = ["ServeError", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: it offers {', '.join(__all__)}")
    from . import server

    return getattr(server, name)
