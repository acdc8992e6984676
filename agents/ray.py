"""A crew on a Ray cluster: workers, each an actor with an engine and weights of its own, live shares of the episodes.

A rollout is cut into as many shares of whole groups as the crew was made with workers, whoever is alive, so a share is
lived in the same batches wherever it is lived: which worker did it, and whether another one died over it before,
changes no bit. (The number of workers does change the batches, and with a lockstep engine the last bits.) A worker that
dies, or its node, loses its share, which another one lives from the start; nothing of the lost attempt is counted. When
weights are handed over, new workers are asked for in place of the lost.

Weights go into the object store once a step, and from there once to each node, however many workers it has.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray
import ray.exceptions
import torch
from numpy.typing import NDArray

from accredit.credit import Trajectory
from accredit.sandboxes.errors import AccreditError

from .crew import LocalCrew, OnEpisode, Work, in_order, lots_of, tell
from .policy import EngineError
from .rollout import Episode

__all__ = ["RayCrew", "RayOptions"]

Lived = tuple[list[Trajectory], list[Trajectory]]
"""The trajectories of a share, and what machines' failures ended on the way."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Where workers run and what each of them gets; times in seconds."""

    address: str = "auto"
    """'auto', the cluster of this machine; 'local', one that is started here; or host:port."""
    workers: int = 1
    gpus: float = 0.0
    cpus: float = 1.0
    start_s: float = 600.0
    """Most seconds until a worker stands, or has new weights."""
    share_s: float = 3600.0
    """Most seconds for a share; a worker that takes longer counts as lost."""


class _Worker:
    """An actor: a model of its own and the crew that samples from it, as `make` gives them."""

    def __init__(self, make: Callable[[], tuple[Any, LocalCrew]]) -> None:
        self.model, self.crew = make()

    def stands(self) -> None:
        pass

    def take(self, weights: Mapping[str, NDArray], version: int) -> dict[str, float]:
        with torch.no_grad():
            for name, target in self.model.named_parameters():
                if name in weights:
                    target.copy_(torch.from_numpy(weights[name].copy()).view(target.dtype))
        return self.crew.updated(version)

    def live(self, episodes: Sequence[Episode], work: Work) -> Lived:
        faults: list[Trajectory] = []
        return self.crew.live(episodes, work, on_fault=faults.append), faults


class RayCrew:
    """Lives episodes with the weights of `model`, which `updated` hands to the workers.

    `make` is called in each worker, on its node, and returns a model of the same shape with the same weights, and a
    crew that samples from it.

    Raises:
        EngineError: there is no such cluster, or no worker starts.

    """

    def __init__(self, model: Any, make: Callable[[], tuple[Any, LocalCrew]], options: RayOptions) -> None:
        self.model, self.options = model, options
        self._make = make
        self._version = 0
        self._weights: Any = None  # the newest, in the object store
        self._connected = _connect(options.address)
        self._workers: dict[int, Any] = {}
        self._coming: dict[Any, tuple[int, Any, int]] = {}  # number, worker, version of its weights, by what it answers
        self._numbers = 0
        self._why = "none has started"
        try:
            for _ in range(options.workers):
                self._ask_for_one()
            self._admit(options.start_s, every=True)
            self._alive()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> int:
        """The version of the weights."""
        return self._version

    def live(
        self,
        episodes: Sequence[Episode],
        work: Work,
        on_done: OnEpisode | None = None,
        on_fault: OnEpisode | None = None,
    ) -> list[Trajectory]:
        """Do what `Crew.live` says; of what is done it tells share by share.

        Raises:
            EngineError: no worker is left.

        """
        lots = lots_of(episodes)
        shares = [[e for lot in lots[n :: self.options.workers] for e in lot] for n in range(self.options.workers)]
        waiting = deque(number for number, share in enumerate(shares) if share)
        wanted = len(waiting)
        running: dict[Any, tuple[int, int, float]] = {}  # worker, share and when it is late, by what is waited for
        found: dict[int, list[Trajectory]] = {}
        while len(found) < wanted:
            self._admit(0.0)
            busy = {worker for worker, _, _ in running.values()}
            for worker in [number for number in self._alive() if number not in busy][: len(waiting)]:
                share = waiting.popleft()
                answer = self._workers[worker].live.remote(shares[share], _own_part(work, shares[share]))
                running[answer] = worker, share, time.monotonic() + self.options.share_s
            patience = max(0.0, min(late for _, _, late in running.values()) - time.monotonic())
            done, _ = ray.wait(list(running), num_returns=1, timeout=min(patience, 5.0))
            late = [answer for answer, (_, _, until) in running.items() if time.monotonic() > until]
            for answer in dict.fromkeys([*done, *late]):
                worker, share, _ = running.pop(answer)
                try:
                    found[share], faults = _value(answer, 0.0 if answer not in done else None)
                except _LostError as error:
                    self._bury(worker, f"{error}; its {len(shares[share])} episodes are lived again")
                    waiting.append(share)
                    continue
                tell(on_done, found[share], work.ended)
                tell(on_fault, faults)
        return in_order(episodes, ((shares[number], lived) for number, lived in found.items()), work)

    def updated(self, version: int) -> dict[str, float]:
        """Hand the model's weights to every worker, and ask for new workers in place of the lost.

        Returns:
            `ray/workers`, how many have them, `time/handover_s`, and of each metric of the workers the largest.

        Raises:
            EngineError: no worker is left, or one cannot take the weights.

        """
        started = time.monotonic()
        self._admit(0.0)
        self._weights, self._version = ray.put(_packed(self.model)), version
        answers = {number: worker.take.remote(self._weights, version) for number, worker in self._workers.items()}
        metrics: dict[str, float] = {}
        for number, answer in answers.items():
            try:
                told = _value(answer, max(0.0, started + self.options.start_s - time.monotonic()))
            except _LostError as error:
                self._bury(number, str(error))
            else:
                metrics |= {name: max(value, metrics.get(name, value)) for name, value in told.items()}
        for _ in range(self.options.workers - len(self._workers) - len(self._coming)):
            self._ask_for_one()
        workers = len(self._alive())
        return {**metrics, "ray/workers": float(workers), "time/handover_s": time.monotonic() - started}

    def close(self) -> None:
        """End the workers, and the connection if it was made here."""
        for worker in [*self._workers.values(), *(worker for _, worker, _ in self._coming.values())]:
            ray.kill(worker)
        self._workers, self._coming = {}, {}
        if self._connected:
            ray.shutdown()
            self._connected = False

    def _ask_for_one(self) -> None:
        placed = ray.remote(_Worker).options(
            num_cpus=self.options.cpus, num_gpus=self.options.gpus, scheduling_strategy="SPREAD"
        )
        self._await(self._numbers, placed.remote(self._make))
        self._numbers += 1

    def _await(self, number: int, worker: Any) -> None:
        """Let a worker that comes up take the weights as they are now."""
        first = worker.stands.remote() if self._weights is None else worker.take.remote(self._weights, self._version)
        self._coming[first] = number, worker, self._version

    def _admit(self, timeout_s: float, every: bool = False) -> None:
        """Take in the workers that stand by now with the newest weights; raise `EngineError` if one cannot be made."""
        if not self._coming:
            return
        ready, _ = ray.wait(list(self._coming), num_returns=len(self._coming), timeout=timeout_s)
        for answer in ready:
            number, worker, version = self._coming.pop(answer)
            try:
                _value(answer, None)
            except _LostError as error:
                self._why = str(error)
                _log.warning("a worker did not come up: %s", error)
            else:
                if version == self._version:
                    self._workers[number] = worker
                else:  # newer weights came while it was being made
                    self._await(number, worker)
        if every and self._coming:
            raise EngineError(
                f"{len(self._coming)} of {self.options.workers} workers did not start within {timeout_s:g} s: the "
                f"cluster has {_have()}, and each worker asks for {self.options.cpus:g} cores and "
                f"{self.options.gpus:g} GPUs. Lower rollout.ray.workers, cpus or gpus, or add nodes"
            )

    def _alive(self) -> list[int]:
        if not self._workers:
            raise EngineError(f"no worker of the Ray cluster is left: {self._why}. Resume the run with --resume")
        return list(self._workers)

    def _bury(self, number: int, why: str) -> None:
        worker = self._workers.pop(number, None)
        self._why = why
        if worker is not None:
            ray.kill(worker)  # it may be cut off rather than dead: what it does now counts no more
        _log.warning("lost a worker: %s; %d of %d left", why, len(self._workers), self.options.workers)


class _LostError(Exception):
    """A worker, its node or its answer is gone."""


def _value(answer: Any, timeout_s: float | None) -> Any:
    """Return an answer; raise `_LostError` if its worker is lost, and what it raised if it failed."""
    try:
        return ray.get(answer, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError:
        raise _LostError("it gave no answer in time") from None
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, AccreditError):
            raise error.cause from None
        raise EngineError(f"a worker of the Ray cluster failed: {error.cause!r}") from error
    except ray.exceptions.RayError as error:
        raise _LostError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def _connect(address: str) -> bool:
    """Connect this process to the cluster, unless it is; return whether that was done here."""
    if ray.is_initialized():
        return False
    try:
        ray.init(
            address=address, include_dashboard=False if address == "local" else None, logging_level=logging.WARNING
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise EngineError(
            f"no Ray cluster at '{address}' ({error}): start one with `ray start --head`, join other machines with "
            "`ray start --address=HOST:PORT`, or set rollout.ray.address=local"
        ) from error
    return True


def _have() -> str:
    found = ray.cluster_resources()
    return f"{found.get('CPU', 0):g} cores and {found.get('GPU', 0):g} GPUs on {len(ray.nodes())} nodes"


def _packed(model: Any) -> dict[str, NDArray]:
    """Return the weights that train by name as flat bytes, which the object store shares without a copy.

    A model with an adapter trains nothing else, and a worker has the rest; a model that trains nothing, such as a copy
    to sample from, has all weights sent.
    """
    named = dict(model.named_parameters())
    trained = {name: weight for name, weight in named.items() if weight.requires_grad} or named
    return {name: weight.detach().cpu().contiguous().view(torch.uint8).numpy() for name, weight in trained.items()}


def _own_part(work: Work, share: Iterable[Episode]) -> Work:
    if not work.ended:
        return work
    groups = {episode.group for episode in share}
    return replace(work, ended={name: kept for name, kept in work.ended.items() if kept.group in groups})
