"""The container backend: one warm container an episode, with the embedded backend's slot in it.

A run costs a fork inside the container, not a new container and not an `exec`. The container shares the host's kernel,
so it is called a container and nothing more; with `runtime="runsc"` it has gVisor's. Needs the extra `docker`, an
engine, and no registry.
"""

import json
import os
import socket
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, cast

from accredit.sandboxes.embedded.client import SlotClient
from accredit.sandboxes.embedded.confine import uid_for
from accredit.sandboxes.embedded.launch import ENVIRONMENT
from accredit.sandboxes.embedded.session import EmbeddedSandbox
from accredit.sandboxes.errors import SandboxError
from accredit.sandboxes.protocol import Layer, Limits
from accredit.sandboxes.verdict import Evidence, Status

from . import owner
from .engine import ContainerSpec, Engine
from .image import SLOT_HOME
from .reaper import Reaper
from .stream import AttachedStream

__all__ = ["DockerLauncher", "DockerSandbox"]

_ROOM_MB = 64  # for the slot itself, beyond what a run may use
_GVISOR_MB = 16  # for each process of the container, in gVisor's own books
_LEAST_PIDS, _PIDS_OF_GVISOR = (
    256,
    4096,
)  # its kernel dies of too few: it has several threads for each of the container's
_INSIDE = """
import sys, types
for name, path in (("accredit", []), ("accredit.sandboxes", [sys.argv[1]])):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = path
sys.modules["accredit"].sandboxes = package
from accredit.sandboxes.docker.inside import main
main(sys.argv[2])
"""
_GONE_S = 60.0
_MOST_STARTING = 2 + (os.cpu_count() or 2) // 2  # more at once take longer each, up to their deadlines
_TURN_S = 300.0
_starting = threading.BoundedSemaphore(_MOST_STARTING)
_turns = count()


class DockerSandbox(EmbeddedSandbox):
    """Opens sessions in containers.

    Without an `image` one is made of this machine's interpreter; one of yours needs `python3`, 3.11 or newer, and has
    to be on the engine already. `host` is the engine's address, by default that of `DOCKER_HOST`. `run` and `attempt`
    become labels of the containers.
    """

    def __init__(
        self,
        runtime: str | None = None,
        image: str | None = None,
        host: str | None = None,
        *,
        without: Collection[str] = (),
        run: str = "",
        attempt: int = 0,
    ) -> None:
        super().__init__(without)
        self.name = "gvisor" if runtime == "runsc" else "docker"
        self.runtime, self.image = runtime, image
        self.engine = Engine(host)
        self.run, self.attempt = run, attempt
        self._lock = threading.Lock()
        self._image: str | None = None
        self._reaper: Reaper | None = None

    def open_blocking(self, limits: Limits | None = None) -> SlotClient:
        """Start a container from ordinary, blocking code; raise `SandboxError` with the reason if that cannot be."""
        limits = limits or Limits()
        launcher = DockerLauncher(self.name, self.engine, self._ready_image(), self.runtime, self.run, self.attempt)
        if not _starting.acquire(timeout=_TURN_S):
            raise SandboxError(
                f"{self.engine.host}: {_MOST_STARTING} containers were still starting after {_TURN_S:g} s"
            )
        try:
            return SlotClient(limits, self.without, launcher)
        finally:
            _starting.release()

    def _ready_image(self) -> str:
        with self._lock:
            if self._image is None:
                if self.runtime is not None and self.runtime not in (known := self.engine.runtimes()):
                    raise SandboxError(
                        f"expected the engine {self.engine.host} to have the runtime {self.runtime!r}, actually it has "
                        f"{', '.join(known)}: install it and add it with dockerd --add-runtime"
                    )
                self._image = self.engine.image_with_slot(self.image) if self.image else self.engine.own_image()
                self._reaper = Reaper(self.engine)
            return self._image


class DockerLauncher:
    """Starts slots in containers of their own."""

    def __init__(
        self, name: str, engine: Engine, image: str, runtime: str | None, run: str = "", attempt: int = 0
    ) -> None:
        self.name = name
        self._engine, self._image, self._runtime = engine, image, runtime
        self._run, self._attempt = run, attempt

    def launch(self, options: Mapping[str, Any]) -> "Container":
        """Start a slot; raise `SandboxError` if the engine cannot."""
        limits = Limits(**options["limits"])
        sandbox_id = f"{os.getpid()}-{next(_turns)}"
        own_kernel = self._runtime == "runsc"
        inside = {**options, "contained": True, "folder": "/work", "uid": uid_for(7 * os.getpid() + next(_turns))}
        spec = ContainerSpec(
            image=self._image,
            command=("python3", "-I", "-S", "-B", "-c", _INSIDE, SLOT_HOME, json.dumps(inside)),
            environment=ENVIRONMENT,
            labels=owner.labels(self._run, self._attempt, sandbox_id),
            runtime=self._runtime,
            memory_mb=limits.memory_mb + _ROOM_MB + (_GVISOR_MB * limits.pids if own_kernel else 0),
            pids=_PIDS_OF_GVISOR if own_kernel else max(_LEAST_PIDS, 2 * limits.pids),
            tmpfs_mb=limits.disk_mb,
        )
        container = self._engine.create(spec)
        try:
            stream = self._engine.attach(container)  # before the start, so that no word is lost
        except BaseException:
            self._engine.remove(container)
            raise
        try:
            self._engine.start(container)
        except BaseException:
            stream.close()
            self._engine.remove(container)
            raise
        return Container(self._engine, container, stream, own_kernel)


class Container:
    """A slot in a container. `pid` is 0: its processes are the engine's, and may be on another machine."""

    pid = 0

    def __init__(self, engine: Engine, container: str, stream: AttachedStream, own_kernel: bool) -> None:
        self.container = container
        self.socket = cast(socket.socket, stream)  # it has the methods that frames use
        self._engine, self._stream, self._own_kernel = engine, stream, own_kernel
        self._known_death: Evidence | None = None

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the container to be gone; False if it did not come in time."""
        try:
            return self._engine.wait_until_gone(self.container, _GONE_S if timeout_s is None else timeout_s)
        except SandboxError:
            return True  # nobody is left who could say; a later reaper looks again

    def kill(self) -> None:
        """End the container at once; first the stream to it, on which the engine would wait."""
        self._stream.close()
        try:
            self._engine.remove(self.container)
        except SandboxError:
            pass  # an engine that is gone can remove nothing; the stream's end does

    def last_words(self) -> str:
        """Return the last line of what the slot wrote to its standard error, or say that there is none."""
        text = self._stream.complaints.decode("utf-8", "replace").strip()
        return text.splitlines()[-1] if text else "it left no message"

    def layers(self, found: tuple[Layer, ...]) -> tuple[Layer, ...]:
        """Add what the container is."""
        reason = "gVisor" if self._own_kernel else "shared with the host"
        by_container = tuple(
            replace(layer, reason="the container's") if layer.name in ("namespaces", "cgroup") and layer.on else layer
            for layer in found
        )
        return (*by_container, Layer("container", True), Layer("own_kernel", self._own_kernel, reason))

    def death(self, since: float) -> Evidence:
        """Return what the container's end during a run means: memory is the run's doing, all else is not.

        Later runs end alike: a program that takes its whole container along must not make them the host's failures.
        """
        if self._known_death is None:
            self._known_death = self._cause(since)
            return self._known_death
        return replace(self._known_death, detail=f"during an earlier run: {self._known_death.detail}")

    def _cause(self, since: float) -> Evidence:
        try:
            death = self._engine.death(self.container, since)
        except SandboxError as error:
            return Evidence(fault=Status.LOST, detail=f"the slot is gone, and so is the engine: {error}")
        if death.out_of_memory:
            return Evidence(wait_status=9, oom_kills=1, detail=f"the whole container ran out of memory; {death.detail}")
        return Evidence(fault=Status.LOST, detail=f"the slot is gone: {self.last_words()}; {death.detail}")

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
