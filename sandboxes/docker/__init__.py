"""Sandboxes in containers of a Docker engine, with the host's kernel or with gVisor's. Needs the extra `docker`.

The containers' own first process is imported from here, too, where there is no SDK: names load on first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .session import DockerSandbox

__all__ = ["DockerSandbox"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import session

    return session.DockerSandbox
