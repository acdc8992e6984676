"""The Docker engine, asked with deadlines: containers and images, and nothing about what runs in them.

The SDK blocks, and its own timeouts do not hold everywhere, so every call is made in a thread that may be given up. The
number of such threads is bounded; a call that finds no room in time is refused like one that gets no answer.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import docker
import docker.errors
import requests
from docker.types import LogConfig

from accredit.sandboxes.errors import SandboxError

from . import image
from .owner import LABEL
from .stream import AttachedStream

_T = TypeVar("_T")
_ANSWER_S = 60.0  # for one request; starting a container on a busy machine takes seconds
_IMAGE_S = 300.0
_SDK_S = 300  # the SDK's own timeout, for threads that were given up
_MOST_CALLS = 32
_SUPERVISOR_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
"""What the slot needs to give programs another user id and to clean up after them. Programs have none."""


class NotInTime(SandboxError):
    """The engine did not answer within the time it was given."""


class Death(NamedTuple):
    """What the engine knows of a container's end: whether it was killed for memory, and words for people."""

    out_of_memory: bool
    detail: str


class ContainerSpec(NamedTuple):
    """What varies between containers. `tmpfs_mb` is the size of `/tmp` and of `/work`, each."""

    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    runtime: str | None
    memory_mb: int
    pids: int
    tmpfs_mb: int


class Engine:
    """One Docker engine. Every method raises `SandboxError` if the engine refuses or does not answer in time."""

    def __init__(self, host: str | None = None) -> None:
        self.host = host or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        self._room = threading.BoundedSemaphore(_MOST_CALLS)
        self._client: docker.DockerClient | None = None
        self._lock = threading.Lock()
        self.clock_ahead_s = 0.0

    def connect(self) -> None:
        """Reach the engine, once, and learn how far its clock is ahead of ours."""
        with self._lock:
            if self._client is not None:
                return
            asked = time.time()
            client, info = self.ask("reaching the engine", self._reach)
            self.clock_ahead_s = _seconds(info.get("SystemTime", "")) - (asked + time.time()) / 2
            self._client = client

    def _reach(self) -> tuple[docker.DockerClient, dict[str, Any]]:
        use_environment = self.host == os.environ.get("DOCKER_HOST")  # certificates, too
        options: dict[str, Any] = {"timeout": _SDK_S, "max_pool_size": 2 * _MOST_CALLS}
        client = docker.from_env(**options) if use_environment else docker.DockerClient(base_url=self.host, **options)
        return client, client.info()

    @property
    def api(self) -> Any:
        """The SDK's client, which has no types."""
        self.connect()
        assert self._client is not None
        return self._client.api

    def runtimes(self) -> list[str]:
        """Return the names of the engine's runtimes."""
        return sorted(self.ask("asking for its runtimes", lambda: self.api.info()).get("Runtimes") or {})

    def own_image(self) -> str:
        """Return the image made of this machine's interpreter, with the slot over it; make it if it is not there."""
        mark = f"base-{image.own_fingerprint()}"
        tag = f"{image.REPOSITORY}:{mark}"
        with _image_lock:
            if not self._has_image(tag):
                root = image.own_root().tar()
                options = {"repository": image.REPOSITORY, "tag": mark, "changes": ["ENV PATH=/usr/bin:/bin"]}
                self.ask("importing the image", lambda: self.api.import_image_from_data(root, **options), _IMAGE_S)
                if not self._has_image(tag):
                    raise SandboxError(f"{self.host}: {tag} was imported and is not there: see the engine's log")
        return self.image_with_slot(tag)

    def image_with_slot(self, name: str) -> str:
        """Return an image that is the named one with the slot laid over it; make it if it is not there."""
        found = self.ask("looking up an image", lambda: _unless_gone(lambda: self.api.inspect_image(name)))
        if found is None:
            raise SandboxError(f"{self.host}: expected an image {name!r}, found none: load it before it is used")
        mark = f"{found['Id'].removeprefix('sha256:')[:16]}-{image.slot_fingerprint()}"
        tag = f"{image.REPOSITORY}:{mark}"
        with _image_lock:
            if not self._has_image(tag):
                self.ask("laying the slot over an image", lambda: self._lay_slot(name, mark), _IMAGE_S)
        return tag

    def _lay_slot(self, name: str, tag: str) -> None:
        container = self.api.create_container(name, command=["true"], labels={"accredit.image": "building"})["Id"]
        try:
            self.api.put_archive(container, "/", image.slot_tar())
            self.api.commit(container, repository=image.REPOSITORY, tag=tag)
        finally:
            self.api.remove_container(container, force=True)

    def _has_image(self, tag: str) -> bool:
        return bool(self.ask("looking for an image", lambda: self.api.images(name=tag, quiet=True)))

    def create(self, spec: ContainerSpec) -> str:
        """Create a container that nothing can get out of but through its streams, and return its id."""
        tmpfs = f"rw,nosuid,nodev,exec,size={spec.tmpfs_mb}m,nr_inodes=8192,mode=1777"
        host_config = {
            "network_mode": "none",
            "cap_drop": ["ALL"],
            "cap_add": list(_SUPERVISOR_CAPABILITIES),
            "security_opt": ["no-new-privileges"],
            "read_only": True,
            "tmpfs": {"/tmp": tmpfs, "/work": tmpfs},
            "mem_limit": f"{spec.memory_mb}m",
            "memswap_limit": f"{spec.memory_mb}m",
            "pids_limit": spec.pids,
            "auto_remove": True,
            "ipc_mode": "none",
            "log_config": LogConfig(type="none"),
            "runtime": spec.runtime,
        }
        return self.ask(
            "creating a container",
            lambda: self.api.create_container(
                spec.image,
                entrypoint=list(spec.command),
                command=[],
                user="0:0",
                working_dir="/",
                hostname="sandbox",
                environment=dict(spec.environment),
                labels=dict(spec.labels),
                stdin_open=True,
                network_disabled=True,
                host_config=self.api.create_host_config(**host_config),
            )["Id"],
        )

    def attach(self, container: str) -> AttachedStream:
        """Attach to a container's standard streams; its standard input ends when this stream does."""
        params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        return AttachedStream(
            self.ask("attaching to a container", lambda: self.api.attach_socket(container, params=params))
        )

    def start(self, container: str) -> None:
        """Start a created container."""
        self.ask("starting a container", lambda: self.api.start(container))

    def remove(self, container: str) -> None:
        """Kill a container, if it is there, and remove it; end the streams to it before."""
        api = self.api
        self.ask("removing a container", lambda: _unless_gone(lambda: api.remove_container(container, force=True)))

    def wait_until_gone(self, container: str, timeout_s: float) -> bool:
        """Wait until a container has ended and is removed; False if it did not come in time."""
        api, removed = self.api, {"condition": "removed"}
        try:
            self.ask("waiting for an end", lambda: _unless_gone(lambda: api.wait(container, **removed)), timeout_s)
        except NotInTime:
            return False
        return True

    def state(self, container: str) -> dict[str, Any] | None:
        """Return the container's state, `None` if it is gone."""
        api = self.api
        found = self.ask("inspecting a container", lambda: _unless_gone(lambda: api.inspect_container(container)))
        return None if found is None else found["State"]

    def death(self, container: str, since: float) -> Death:
        """Return why a container ended, from what the engine saw of it since a time of our clock."""
        begin = since + self.clock_ahead_s - 0.1
        events = self.ask("asking for events", lambda: self._events(container, begin))
        actions = [event.get("Action") for event in events]
        state = self.state(container) or {}
        codes = [event["Actor"]["Attributes"].get("exitCode") for event in events if event.get("Action") == "die"]
        code = codes[-1] if codes else state.get("ExitCode")
        detail = f"the container ended with exit code {code}" if code is not None else "the container is gone"
        if "kill" in actions:
            detail += ", killed through the engine"
        return Death("oom" in actions or bool(state.get("OOMKilled")), detail)

    def _events(self, container: str, since: float) -> list[dict[str, Any]]:
        until = f"{time.time() + self.clock_ahead_s:.6f}"
        filters = {"container": container, "type": "container"}
        with contextlib.closing(
            self.api.events(since=f"{since:.6f}", until=until, filters=filters, decode=True)
        ) as stream:
            return list(stream)

    def containers(self) -> dict[str, Mapping[str, str]]:
        """Return id -> labels of every container that a sandbox made, also of those that have ended."""
        found = self.ask("listing containers", lambda: self.api.containers(all=True, filters={"label": LABEL}))
        return {entry["Id"]: entry["Labels"] for entry in found}

    def ask(self, doing: str, work: Callable[[], _T], within_s: float | None = None) -> _T:
        """Do some work with the engine in a thread and give it up when it takes too long."""
        within_s = _ANSWER_S if within_s is None else within_s
        if not self._room.acquire(timeout=within_s):
            raise NotInTime(f"{self.host}: {doing} found {_MOST_CALLS} calls still unanswered after {within_s:g} s")
        box: Future[_T] = Future()
        threading.Thread(target=self._answer, args=(box, work), name="accredit-docker", daemon=True).start()
        try:
            return box.result(within_s)
        except NoAnswer:
            raise NotInTime(f"{self.host}: {doing} got no answer within {within_s:g} s") from None
        except (docker.errors.DockerException, requests.RequestException, OSError) as error:
            raise SandboxError(f"{self.host}: {doing} failed: {error}") from error

    def _answer(self, box: Future[_T], work: Callable[[], _T]) -> None:
        try:
            box.set_result(work())
        except BaseException as error:
            box.set_exception(error)
        finally:
            self._room.release()


_image_lock = threading.Lock()


def _unless_gone(work: Callable[[], _T]) -> _T | None:
    try:
        return work()
    except docker.errors.NotFound:
        return None
    except docker.errors.APIError as error:
        if error.status_code == 409:  # it is being removed already
            return None
        raise


def _seconds(text: str) -> float:
    try:
        return datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()
    except ValueError:
        return time.time()
