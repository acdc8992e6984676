"""A Docker engine, where there is one: `DOCKER_HOST`, or what `.ci/docker-engine start` has started."""

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from accredit.sandboxes import SandboxError
from accredit.sandboxes.embedded.client import SlotClient

if TYPE_CHECKING:
    from accredit.sandboxes.docker import DockerSandbox
    from accredit.sandboxes.docker.engine import Engine


@pytest.fixture(scope="session")
def engine() -> "Engine":
    try:
        from accredit.sandboxes.docker.engine import Engine

        engine = Engine()
        engine.connect()
    except (ImportError, SandboxError) as error:
        if os.environ.get("REQUIRE_DOCKER") == "1":
            raise
        pytest.skip(f"no Docker engine on this machine: {error}")
    return engine


@pytest.fixture(scope="session")
def docker_sandbox(engine: "Engine") -> "DockerSandbox":
    from accredit.sandboxes.docker import DockerSandbox

    return DockerSandbox(run="tests", attempt=2)


@pytest.fixture(scope="session")
def gvisor(engine: "Engine") -> "DockerSandbox":
    from accredit.sandboxes.docker import DockerSandbox

    if "runsc" not in engine.runtimes():
        pytest.skip("the Docker engine has no runtime runsc (gVisor)")
    return DockerSandbox("runsc")


@pytest.fixture(scope="module")
def container(docker_sandbox: "DockerSandbox") -> Iterator[SlotClient]:
    client = docker_sandbox.open_blocking()
    yield client
    client.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Return a function that waits until something holds, and fails if it never does."""

    def wait(holds: Callable[[], bool]) -> None:
        until = time.monotonic() + 60.0
        while not holds():
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.1)

    return wait
