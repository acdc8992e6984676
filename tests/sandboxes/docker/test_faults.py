"""What breaks around a container: trainers, engines, the container itself. Nothing of it is the model's fault."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from accredit.sandboxes import Blame, Limits, Outcome, SandboxError, Status

if TYPE_CHECKING:
    from accredit.sandboxes.docker import DockerSandbox
    from accredit.sandboxes.docker.engine import Engine

ROOT = Path(__file__).parents[3]
TRAINER = """
from accredit.sandboxes import Limits
from accredit.sandboxes.docker import DockerSandbox
client = DockerSandbox(run="doomed").open_blocking()
print("open", flush=True)
client.run("while True: pass", Limits(wall_s=600.0, cpu_s=600.0))
"""


def of_run(engine: "Engine", run: str) -> list[str]:
    return [name for name, labels in engine.containers().items() if labels["accredit.run"] == run]


def running(work: Callable[[], Outcome]) -> tuple[threading.Thread, list[Outcome]]:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(work()))
    thread.start()
    time.sleep(1.0)
    return thread, outcomes


def test_killing_the_trainer_leaves_no_container(
    docker_sandbox: "DockerSandbox", engine: "Engine", eventually: Callable[[Callable[[], bool]], None]
) -> None:
    docker_sandbox.open_blocking().close()  # the image is there
    trainer = subprocess.Popen([sys.executable, "-c", TRAINER], stdout=subprocess.PIPE)
    try:
        assert trainer.stdout is not None and trainer.stdout.readline() == b"open\n"
        assert len(of_run(engine, "doomed")) == 1
    finally:
        trainer.kill()
        trainer.wait()
    eventually(lambda: of_run(engine, "doomed") == [])


def test_a_container_killed_from_outside_is_lost_and_a_new_session_works(
    docker_sandbox: "DockerSandbox", engine: "Engine"
) -> None:
    before = set(engine.containers())
    client = docker_sandbox.open_blocking()
    try:
        (name,) = set(engine.containers()) - before
        thread, outcomes = running(lambda: client.run("while True: pass", Limits(wall_s=60.0, cpu_s=60.0)))
        engine.remove(name)
        thread.join(60.0)
        assert (outcomes[0].status, outcomes[0].blame) == (Status.LOST, Blame.INFRASTRUCTURE)
        assert "killed through the engine" in outcomes[0].evidence.detail
        assert client.run("print(1)").status is Status.LOST
    finally:
        client.close()
    client = docker_sandbox.open_blocking()
    assert client.run("print(1)").ok
    client.close()


@pytest.fixture
def own_engine(tmp_path: Path, engine: "Engine") -> Iterator[str]:
    """An engine for one test alone, to be stopped by it."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("starting another Docker engine takes root and dockerd")
    script = str(ROOT / ".ci" / "docker-engine")
    try:
        done = subprocess.run([script, "start", str(tmp_path)], capture_output=True, text=True, timeout=90, check=True)
        yield done.stdout.strip()
    finally:
        subprocess.run([script, "stop", str(tmp_path)], timeout=60, check=False)


def test_an_engine_that_stops_in_the_middle_is_infrastructure(own_engine: str, tmp_path: Path) -> None:
    from accredit.sandboxes.docker import DockerSandbox

    client = DockerSandbox(host=own_engine).open_blocking()
    assert client.run("print(1)").ok
    thread, outcomes = running(lambda: client.run("while True: pass", Limits(wall_s=20.0, cpu_s=60.0)))
    os.kill(int((tmp_path / "docker.pid").read_text()), signal.SIGTERM)
    thread.join(60.0)
    assert (outcomes[0].status, outcomes[0].blame) == (Status.LOST, Blame.INFRASTRUCTURE)
    client.close()
    with pytest.raises(SandboxError, match=r"docker\.sock: .* failed"):
        DockerSandbox(host=own_engine).open_blocking()


def test_an_engine_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docker")
    from accredit.sandboxes.docker import engine as module

    monkeypatch.setattr(module, "_MOST_CALLS", 2)
    monkeypatch.setattr(module, "_ANSWER_S", 0.5)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        engine = module.Engine(f"unix://{tmp_path}/silent.sock")
        for _ in range(2):
            with pytest.raises(SandboxError, match=r"silent\.sock: reaching the engine got no answer within 0\.5 s"):
                engine.connect()
        with pytest.raises(SandboxError, match=r"reaching the engine found 2 calls still unanswered after 0\.5 s"):
            engine.connect()


def test_twenty_sessions_at_once(docker_sandbox: "DockerSandbox", engine: "Engine") -> None:
    before = set(engine.containers())

    async def one(n: int) -> bytes:
        async with await docker_sandbox.open() as session:
            return (await session.run(f"print({n})")).stdout

    async def scene() -> list[bytes]:
        return await asyncio.gather(*(one(n) for n in range(20)))

    assert asyncio.run(scene()) == [f"{n}\n".encode() for n in range(20)]
    assert set(engine.containers()) <= before


def test_the_reaper_removes_containers_of_dead_processes_only(
    docker_sandbox: "DockerSandbox", engine: "Engine", eventually: Callable[[Callable[[], bool]], None]
) -> None:
    from accredit.sandboxes.docker import owner, reaper
    from accredit.sandboxes.docker.engine import ContainerSpec

    dead = subprocess.Popen(["sleep", "60"])
    started = owner.started(dead.pid)
    dead.kill()
    dead.wait()
    mine = owner.labels("tests", 0, "mine")
    others = {
        "orphan": {**mine, "accredit.pid": str(dead.pid), "accredit.started": started or ""},
        "number came again": {**mine, "accredit.started": "1"},
        "of another machine": {**mine, "accredit.host": "elsewhere", "accredit.pid": str(dead.pid)},
        "mine": mine,
    }
    image = engine.own_image()
    made = {
        name: engine.create(ContainerSpec(image, ["true"], {}, labels, None, 64, 64, 8))
        for name, labels in others.items()
    }
    try:
        removed = set(reaper.reap(engine))  # the sandbox's own reaper may come first to one of them
        assert removed <= {made["orphan"], made["number came again"]}
        kept = {made["mine"], made["of another machine"]}
        eventually(lambda: set(made.values()) & set(engine.containers()) == kept)
    finally:
        for name in made.values():
            with suppress(SandboxError):
                engine.remove(name)


def test_an_image_is_made_once_and_a_users_own_works(docker_sandbox: "DockerSandbox", engine: "Engine") -> None:
    from accredit.sandboxes.docker import DockerSandbox, image

    first = engine.own_image()
    assert engine.own_image() == first
    client = DockerSandbox(image=f"{image.REPOSITORY}:base-{image.own_fingerprint()}").open_blocking()
    assert client.run("print(1)").ok
    client.close()
    with pytest.raises(SandboxError, match="expected an image 'no-such-image', found none"):
        DockerSandbox(image="no-such-image").open_blocking()
    with pytest.raises(SandboxError, match=r"to have the runtime 'no-such-runtime', actually it has .*runc"):
        DockerSandbox("no-such-runtime").open_blocking()
