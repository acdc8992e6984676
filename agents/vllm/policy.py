"""The policy over one or more replicas: routing, seeds, updates, and the guard after each.

All turns of an episode go to one replica, whose prefix cache then holds them; a replica that is lost hands its episodes
to the others. Requests are sent as episodes ask, and the engine batches them as it goes, so batches, and with them the
last bits of results, depend on how long tools take: runs repeat closely in float32, not to the bit.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from accredit.agents.models import has_adapter
from accredit.agents.policy import Decision, EngineError, Request, turn_seed
from accredit.envs.execution import LoopThread

from .local import LocalReplica
from .options import VLLMOptions, refused_arguments
from .parity import TOLERANCES, check, widest
from .replica import Asked, Replica, ReplicaLost, Sampled
from .server import ServerReplica
from .weights import Outbox

__all__ = ["VLLMPolicy"]

_PROBES = 6
_PROBE_TOKENS = 16

_log = logging.getLogger(__name__)

T = TypeVar("T")


class VLLMPolicy:
    """Samples from `model`, which the trainer may update in place; call `updated` after each change of the weights.

    Making one starts the engines, or finds the servers, hands them the weights and compares log-probabilities.

    Raises:
        EngineError: nothing can be started, or no server answers, or its settings make another policy of the model.
        ParityError: log-probabilities are not the model's.

    """

    lockstep = False

    def __init__(self, model: Any, options: VLLMOptions | None = None, version: int = 0) -> None:
        self.model, self.options = model, options or VLLMOptions()
        if has_adapter(model):
            from accredit.agents.lora import rank_of

            self.options = replace(self.options, lora_rank=rank_of(model))
        refused = refused_arguments(self.options.engine_args)
        if refused:
            raise EngineError("rollout.vllm.engine_args cannot hold " + "; ".join(refused))
        self._version = version
        self._recent: deque[NDArray[np.int32]] = deque(maxlen=_PROBES)
        self._routes: dict[str, Replica] = {}
        self._lost: set[str] = set()
        self._senders: dict[str, Any] = {}
        self._why = "no replica was started"
        self._adapted = self.options.lora_rank is not None
        self._outbox = Outbox(self.options.weights_dir)
        self._thread = LoopThread("vllm")
        self._replicas: list[Replica] = []
        try:
            self._replicas += self._servers() if self.options.servers else self._own_engines()
            for replica in self._replicas:
                self._wait(replica.start(), self.options.start_s + 60)
            if self.options.servers or self._adapted:
                self._hand_over()
            self.check()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> int:
        """The version of the weights."""
        return self._version

    def updated(self, version: int) -> dict[str, float]:
        """Hand the weights to every replica, clear the prefix caches, and compare log-probabilities.

        A server that was lost and answers again is taken back. No request may be in flight.

        Raises:
            ParityError: a replica's log-probabilities are not the model's.
            EngineError: no replica is left.

        """
        started = time.monotonic()
        self._hand_over()
        self._version = version
        metrics = {"time/weights_s": time.monotonic() - started}
        return {**metrics, "engine/parity_gap_nats": self.check(), "engine/replicas": float(len(self._alive()))}

    def check(self) -> float:
        """Return the widest gap between the replicas' log-probabilities and the model's, in nats.

        Each replica goes on from a few fixed contexts and from the newest that it was asked about, whose prefixes it
        has cached, and the model scores what it sampled.

        Raises:
            ParityError: the gap exceeds the tolerance.

        """
        contexts = [*_fixed_contexts(self.model.config.vocab_size), *self._recent]
        room = self.options.context_tokens - _PROBE_TOKENS
        contexts = [context[: max(1, room)] for context in contexts]
        tolerance = self.options.tolerance or TOLERANCES.get(self.options.dtype, 1.0)
        nats = 0.0
        for replica in self._alive():

            async def probe(replica: Replica = replica) -> list[Sampled]:
                asked = [
                    Asked(context, _PROBE_TOKENS, frozenset(), 1.0, turn_seed(self._version, place))
                    for place, context in enumerate(contexts)
                ]
                return await asyncio.gather(*[replica.sample(each) for each in asked])

            try:
                sampled = self._wait(probe(), self.options.request_s)
            except ReplicaLost as error:
                self._bury(replica, error)
                continue
            gap = widest(self.model, contexts, sampled)
            check(gap, tolerance, replica.name, self._version)
            nats = max(nats, gap.nats)
        self._alive()
        return nats

    async def sample(self, requests: Sequence[Request]) -> list[Decision]:
        """Sample one decision a request; what else the engine is asked meanwhile joins the same batches.

        Raises:
            EngineError: no replica is left, or the engine refuses a request.

        """
        work = asyncio.run_coroutine_threadsafe(self._sample(requests), self._thread.loop)
        return await asyncio.wrap_future(work)

    def forget(self, episode_id: str) -> None:
        """Forget where an ended episode was sampled."""
        self._routes.pop(episode_id, None)

    def close(self) -> None:
        """Stop the engines that were started, and delete the exported weights."""
        for replica in self._replicas:
            try:
                self._wait(replica.close(), 60)
            except EngineError as error:
                _log.warning("%s", error)
        self._thread.close()
        self._outbox.close()

    def _servers(self) -> list[ServerReplica]:
        return [ServerReplica(address, self.options) for address in self.options.servers]

    def _own_engines(self) -> list[LocalReplica]:
        folder = self._outbox.put(self.model)
        return [LocalReplica(f"replica {number}", folder, self.options) for number in range(self.options.replicas)]

    async def _sample(self, requests: Sequence[Request]) -> list[Decision]:
        return list(await asyncio.gather(*[self._decide(request) for request in requests]))

    async def _decide(self, request: Request) -> Decision:
        if request.limit < 1:
            raise ValueError(f"a request needs room for at least one token, found a limit of {request.limit}")
        if len(request.token_ids) + request.limit > self.options.context_tokens:
            raise EngineError(
                f"episode {request.episode_id} asks for {request.limit} tokens after {len(request.token_ids)}, and the "
                f"engine holds {self.options.context_tokens}: raise context_tokens (rollout.episode_tokens)"
            )
        seed = turn_seed(request.seed, request.turn)
        asked = Asked(request.token_ids, request.limit, request.stop_ids, request.temperature, seed)
        version = self._version
        while True:
            replica = self._route(request.episode_id)
            try:
                sampled = await asyncio.wait_for(replica.sample(asked), self.options.request_s)
            except TimeoutError:
                self._bury(replica, ReplicaLost(f"{replica.name} gave no decision in {self.options.request_s:g} s"))
            except ReplicaLost as error:
                self._bury(replica, error)
            else:
                self._recent.append(request.token_ids)
                return Decision(sampled.ids, sampled.logprobs, version)

    def _route(self, episode_id: str) -> Replica:
        """Return the episode's replica; a new episode, or one whose replica is lost, gets the least busy."""
        alive = self._alive()
        replica = self._routes.get(episode_id)
        if replica is None or replica not in alive:
            busy = [place.name for place in self._routes.values()]
            replica = self._routes[episode_id] = min(alive, key=lambda each: busy.count(each.name))
        return replica

    def _alive(self) -> list[Replica]:
        alive = [replica for replica in self._replicas if replica.name not in self._lost]
        if not alive:
            raise EngineError(f"{self._why}: no replica is left, and the run cannot go on. Resume it with --resume")
        return alive

    def _bury(self, replica: Replica, error: ReplicaLost) -> None:
        self._why = str(error)
        if replica.name not in self._lost:
            self._lost.add(replica.name)
            _log.warning("%s; %d of %d left", error, len(self._replicas) - len(self._lost), len(self._replicas))

    def _hand_over(self) -> None:
        by_disk = self.options.weights == "disk" or self._adapted
        folder = self._outbox.put(self.model, self._adapted) if by_disk else None
        for replica in self._replicas:
            try:
                if folder is not None:
                    self._wait(replica.load(folder), self.options.request_s)
                else:
                    self._send(replica)
            except ReplicaLost as error:
                self._bury(replica, error)
            else:
                self._lost.discard(replica.name)
        self._alive()

    def _send(self, replica: Replica) -> None:
        """Hand the weights over in the GPU's memory."""
        from .ipc import MemoryTransfer

        assert isinstance(replica, LocalReplica)

        def wait(work: Coroutine[Any, Any, None]) -> None:
            self._wait(work, self.options.request_s)

        if replica.name not in self._senders:
            self._senders[replica.name] = MemoryTransfer(self.model, replica, wait)
        self._senders[replica.name].send()
        wait(replica.clear())

    def _wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine in the engine's loop and wait for it here."""
        future = asyncio.run_coroutine_threadsafe(work, self._thread.loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise ReplicaLost(f"vLLM did not answer within {timeout_s:g} s") from error


def _fixed_contexts(vocabulary: int) -> list[NDArray[np.int32]]:
    ids = np.random.default_rng(0).integers(0, vocabulary, (2, 40))
    return list(ids.astype(np.int32))
