"""The subprocess backend: a process of its own with resource limits, and nothing else. For code that you trust.

A program here reads every file that you can read, reaches the network, and can signal your other processes. What it
does have is the slot's way of working: limits, verdicts, an empty environment, files and cells. It is only used by a
caller who says `allow_weaker=True`.
"""

from collections.abc import Collection

from .embedded.client import SlotClient
from .embedded.launch import DirectLauncher
from .embedded.session import EmbeddedSandbox
from .protocol import LAYERS, Limits

__all__ = ["SubprocessLauncher", "SubprocessSandbox"]


class SubprocessLauncher(DirectLauncher):
    """Runs the slot as a process of this machine, under this backend's name."""

    name = "subprocess"


class SubprocessSandbox(EmbeddedSandbox):
    """Opens sessions of level L1. `without` can only leave out more."""

    name = "subprocess"

    def __init__(self, without: Collection[str] = ()) -> None:
        super().__init__({*without, *LAYERS} - ({"rlimits"} - set(without)))

    def open_blocking(self, limits: Limits | None = None) -> SlotClient:
        """Start a slot from ordinary, blocking code."""
        return SlotClient(limits or Limits(), self.without, SubprocessLauncher())
