"""Gathers the requests of concurrent episodes into batches for one policy.

In lockstep, a batch waits until every live episode asks, and its rows stand in the episodes' order: batches, and with
them results, are the same however long tools take. Otherwise whatever waits is sent at once.
"""

import asyncio

from .policy import Decision, Policy, Request

__all__ = ["Batcher"]


class Batcher:
    """Serves the coroutines of one rollout. Not thread-safe: it lives in one event loop."""

    def __init__(self, policy: Policy, episodes: int) -> None:
        self._policy = policy
        self._live = episodes
        self._waiting: list[tuple[int, Request, asyncio.Future[Decision]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def sample(self, order: int, request: Request) -> Decision:
        """Return the decision for `request`; `order` is the episode's place in the rollout."""
        future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._waiting.append((order, request, future))
        self._maybe_send()
        return await future

    def leave(self) -> None:
        """Say that an episode has ended and will not ask again."""
        self._live -= 1
        self._maybe_send()

    def _maybe_send(self) -> None:
        if self._waiting and (not self._policy.lockstep or len(self._waiting) == self._live):
            batch, self._waiting = sorted(self._waiting, key=lambda item: item[0]), []
            task = asyncio.get_running_loop().create_task(self._send(batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, batch: list[tuple[int, Request, asyncio.Future[Decision]]]) -> None:
        try:
            decisions = await self._policy.sample([request for _, request, _ in batch])
        except BaseException as error:
            for _, _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, _, future), decision in zip(batch, decisions, strict=True):
            if not future.done():
                future.set_result(decision)
