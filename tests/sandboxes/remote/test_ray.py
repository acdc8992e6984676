"""Sandboxes of a Ray cluster, on a real one of one node."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

if os.environ.get("REQUIRE_RAY") != "1":
    pytest.skip("starting a Ray cluster takes up to a minute: set REQUIRE_RAY=1", allow_module_level=True)

import ray

from accredit.sandboxes import Blame, Limits, PoolOptions, SandboxError, SandboxFault, Status
from accredit.sandboxes.remote.ray import RaySandbox


@pytest.fixture(scope="module")
def cluster(sandbox):
    del sandbox
    ray.init(num_cpus=1, include_dashboard=False, logging_level=logging.ERROR, object_store_memory=80 << 20)
    yield
    ray.shutdown()


def test_without_a_cluster_it_says_what_to_do() -> None:
    with pytest.raises(SandboxError, match=r"ray\.init"):
        RaySandbox()


def test_a_session_of_an_actor_is_a_session_and_its_death_is_infrastructure(cluster) -> None:
    sandbox = RaySandbox(options=PoolOptions(most=2, queue=0, warm=1))
    session = sandbox.open_blocking(Limits(wall_s=20.0))
    outcome = session.run("import sys\nprint(sys.stdin.read())", stdin=b"hi")
    assert (outcome.status, outcome.stdout) == (Status.OK, b"hi\n")
    assert session.run("1 / 0").blame is Blame.MODEL
    session.write("a", b"1")
    branch = session.branch()
    branch.write("a", b"2")
    assert (session.read("a"), branch.read("a")) == (b"1", b"2")
    with pytest.raises(SandboxFault) as caught:
        sandbox.open_blocking()
    assert caught.value.status is Status.OVERLOADED
    branch.close()
    (counts,) = sandbox.counts().values()
    assert (counts["runs"], counts["sessions"]) == (2, 1)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(session.run, "import time\ntime.sleep(60)", Limits(wall_s=60.0))
        (actor,) = sandbox._actors.values()
        ray.kill(actor)
        outcome = running.result(60)
    assert (outcome.status, outcome.blame) == (Status.LOST, Blame.INFRASTRUCTURE)
    assert session.run("print(1)").status is Status.LOST
    with pytest.raises(SandboxFault, match="gone") as caught:
        sandbox.open_blocking()
    assert caught.value.status is Status.LOST
    session.close()
