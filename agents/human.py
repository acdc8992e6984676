"""A person at a terminal as the policy: types what the assistant says."""

import asyncio
from collections.abc import Callable, Sequence

import numpy as np

from accredit.envs.rendering import Renderer

from .policy import Decision, Request

__all__ = ["HumanPolicy"]


class HumanPolicy:
    """Shows what is new since the person's last turn and reads one message.

    `show` prints text, `ask` returns what the person typed; both are called off the event loop.
    """

    lockstep = False
    version = 0

    def __init__(self, renderer: Renderer, show: Callable[[str], None] = print, ask: Callable[[], str] = input) -> None:
        self._renderer, self._show, self._ask = renderer, show, ask
        self._shown: dict[str, int] = {}

    async def sample(self, requests: Sequence[Request]) -> list[Decision]:
        """Ask for one message a request, one after the other."""
        return [await asyncio.to_thread(self._turn, request) for request in requests]

    def forget(self, episode_id: str) -> None:
        """Forget what an ended episode was shown."""
        self._shown.pop(episode_id, None)

    def _turn(self, request: Request) -> Decision:
        new = request.token_ids[self._shown.get(request.episode_id, 0) :]
        self._show(b"".join(self._renderer.token_bytes(new.tolist())).decode("utf-8", errors="replace"))
        ids = np.array(self._renderer.encode(self._ask()), dtype=np.int32)
        self._shown[request.episode_id] = len(request.token_ids) + len(ids)
        return Decision(ids, np.zeros(len(ids), dtype=np.float32), 0)
