"""One program in a slot of its own, from ordinary blocking code: for tools of environments and for scripts.

Callable from any thread, also inside a running event loop's worker thread, since it needs no loop. Opening a slot costs
about ten times as much as a run: an episode that runs many programs opens a session instead.
"""

from .protocol import Limits, Outcome
from .select import select


def run_python(code: str, limits: Limits | None = None, *, allow_weaker: bool | None = None) -> Outcome:
    """Run a program in a fresh slot; never raises for what the program did, `SandboxError` if there is no sandbox."""
    client = select(allow_weaker=allow_weaker).open_blocking(limits)
    try:
        return client.run(code)
    finally:
        client.close()
