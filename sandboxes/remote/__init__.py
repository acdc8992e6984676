"""Sandboxes of other machines, behind the same protocol: over HTTP (`server`, `client`) or as Ray actors (`ray`).

A *desk* holds the sessions of a pool on the far side and answers by number, so that what is asked twice is done once.
A *line* carries questions to a desk. Whatever goes wrong with it is infrastructure's fault, never the program's.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import RemoteSandbox

__all__ = ["RemoteSandbox"]


def __getattr__(name: str) -> object:
    if name != "RemoteSandbox":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .client import RemoteSandbox  # the server's side needs no httpx

    return RemoteSandbox
