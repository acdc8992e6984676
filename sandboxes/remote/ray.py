"""Sandboxes of a Ray cluster: one actor a node, each with a pool, sessions where the fewest are. Needs the extra `ray`.

An actor that dies, a node that leaves, and an answer that does not come are faults of a run, never its end. Sessions
end with the driver that opened them, because the actors do. Ray repeats no question by itself.
"""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from accredit.sandboxes.errors import SandboxError, SandboxFault
from accredit.sandboxes.housekeeping import PoolOptions
from accredit.sandboxes.pool import Pool
from accredit.sandboxes.protocol import IsolationReport, Limits
from accredit.sandboxes.select import select
from accredit.sandboxes.threads import ThreadedSession, adopt, in_thread
from accredit.sandboxes.verdict import Status

from .desk import Answer, Desk
from .far import FarSession, new_id, value_of

__all__ = ["RaySandbox"]

_START_S = 120.0
_CLOSE_S = 10.0
_NEVER_S = 1e9  # no lease: the actor ends with its driver
_AT_ONCE = 1000  # coroutines of an actor


class _Node:
    """A desk in an actor."""

    async def start(self, backend: str | None, allow_weaker: bool | None, options: PoolOptions | None) -> str:
        sandbox = await asyncio.to_thread(select, backend, allow_weaker)
        self.desk = Desk(Pool(sandbox, options), _NEVER_S)
        return sandbox.name

    async def open(self, session_id: str, limits: Limits | None) -> Answer:
        return await self.desk.open(session_id, limits)

    async def ask(self, session_id: str, number: int, what: str, arguments: Mapping[str, Any]) -> Answer:
        return await self.desk.ask(session_id, number, what, arguments)

    async def interrupt(self, session_id: str) -> Answer:
        return await self.desk.interrupt(session_id)

    async def close(self, session_id: str) -> Answer:
        return await self.desk.close(session_id)

    async def counts(self) -> dict[str, Any]:
        return self.desk.counts()


class RaySandbox:
    """Opens sessions on the nodes of a Ray cluster that this process is connected to (`ray.init` comes first).

    Every node that is alive now gets an actor with a pool of `options`; `backend` and `allow_weaker` are those of
    `select`, as they hold on the nodes.
    """

    name = "ray"

    def __init__(
        self,
        backend: str | None = None,
        options: PoolOptions | None = None,
        *,
        allow_weaker: bool | None = None,
        open_s: float = 200.0,
    ) -> None:
        if not ray.is_initialized():
            raise SandboxError("expected a connection to a Ray cluster: call ray.init(...) before RaySandbox()")
        self.open_s = open_s
        self._lock = threading.Lock()
        self._homes: dict[str, str] = {}  # the node of each session
        self._actors: dict[str, Any] = {}
        kind = ray.remote(_Node)
        for node in ray.nodes():
            if node["Alive"]:
                at = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                placed = kind.options(num_cpus=0, max_concurrency=_AT_ONCE, scheduling_strategy=at)
                self._actors[node["NodeID"]] = placed.remote()
        for actor in self._actors.values():
            _get(actor.start.remote(backend, allow_weaker, options), _START_S)

    def open_blocking(self, limits: Limits | None = None) -> FarSession:
        """Open a session on the node that has the fewest; raise `SandboxFault` if it cannot."""
        session_id = new_id()
        with self._lock:
            homes = list(self._homes.values())
            if not self._actors:
                raise SandboxFault("every node of the Ray cluster is gone", Status.LOST)
            node = min(self._actors, key=homes.count)
            self._homes[session_id] = node
        try:
            answer = self._call(node, "open", self.open_s, session_id, limits)
            report: IsolationReport = value_of(answer, IsolationReport)
        except BaseException:
            self.close(session_id)
            raise
        return FarSession(self, session_id, report, limits or Limits())

    async def open(self, limits: Limits | None = None) -> ThreadedSession:
        """Do what `open_blocking` does, without blocking."""
        return ThreadedSession(await adopt(in_thread(lambda: self.open_blocking(limits))))

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return the counters of each node's desk."""
        return {node: _get(actor.counts.remote(), _CLOSE_S) for node, actor in self._actors.items()}

    def ask(self, session_id: str, number: int, what: str, arguments: Mapping[str, Any], timeout_s: float) -> Answer:
        """Ask a question of a session."""
        node = self._homes[session_id]
        answer: Answer = self._call(node, "ask", timeout_s, session_id, number, what, dict(arguments))
        if what == "branch" and answer.error is None:
            self._homes[arguments["new"]] = node
        return answer

    def interrupt(self, session_id: str) -> None:
        """Stop what a session runs now."""
        self._call(self._homes[session_id], "interrupt", _CLOSE_S, session_id)

    def close(self, session_id: str) -> None:
        """End a session; where its actor is gone, it has ended already."""
        node = self._homes.pop(session_id, None)
        if node is not None:
            try:
                self._call(node, "close", _CLOSE_S, session_id)
            except SandboxFault:
                pass

    def shut(self) -> None:
        """End every actor and with it every session."""
        actors, self._actors = self._actors, {}
        for actor in actors.values():
            ray.kill(actor)

    def _call(self, node: str, what: str, timeout_s: float, *arguments: Any) -> Any:
        actor = self._actors.get(node)
        if actor is None:
            raise SandboxFault(f"the actor of node {node[:8]} is gone", Status.LOST)
        try:
            return _get(getattr(actor, what).remote(*arguments), timeout_s)
        except SandboxFault as fault:
            if fault.status is Status.LOST:  # no more sessions there
                self._actors.pop(node, None)
            raise


def _get(reference: Any, timeout_s: float) -> Any:
    try:
        return ray.get(reference, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError:
        raise SandboxFault(f"an actor gave no answer within {timeout_s:g} s", Status.BACKEND_TIMEOUT) from None
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, SandboxError):
            raise error.cause from None
        raise SandboxFault(f"an actor failed: {error.cause!r}", Status.PROTOCOL) from error
    except ray.exceptions.RayError as error:
        raise SandboxFault(f"an actor is gone: {error}", Status.LOST) from error
