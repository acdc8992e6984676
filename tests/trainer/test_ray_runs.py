"""Runs whose episodes are lived on a Ray cluster, of two nodes in one machine: the same run, also when a node dies."""

import json
import logging
import os
import threading
import time
from collections import Counter
from functools import partial

import pytest
import torch

if os.environ.get("REQUIRE_RAY") != "1":
    pytest.skip("starting a Ray cluster takes up to a minute: set REQUIRE_RAY=1", allow_module_level=True)

import ray
from ray.cluster_utils import Cluster
from safetensors.torch import load_file

from accredit.agents.crew import Work
from accredit.agents.models import LoadedModel, save_model
from accredit.agents.policy import EngineError
from accredit.agents.ray import RayCrew, RayOptions
from accredit.agents.rollout import Episode
from accredit.credit.traces import open_run
from accredit.envs import tinytokenizers
from accredit.trainer.config import TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.distributed import Unheard
from accredit.trainer.loop import train
from accredit.trainer.metrics import read_metrics
from accredit.trainer.setup import _in_worker

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}

NOISY = """
import os, time
from pathlib import Path
from accredit.envs import Task, ToolEnv
HERE = Path(__file__).parent
class Noisy(ToolEnv):
    def tasks(self, rng): return [Task(f'say {n}', answer=n) for n in range(10)]
    def reward(self):
        if self.options['split'] == 'train' and (HERE / 'slow').exists():
            import ray
            (HERE / f'node-{ray.get_runtime_context().get_node_id()}').touch()
            time.sleep(2)
        return (len(self.answer) * 37 % 11) / 10
"""


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    cluster.add_node(**{name: value for name, value in NODE.items() if name != "include_dashboard"})
    ray.init(address=cluster.address, logging_level=logging.ERROR)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_renderer, make_tiny_llama):
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("ray")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tinytokenizers.byte_level())
    save_model(LoadedModel(make_tiny_llama(), tokenizer, tiny_renderer), folder / "tiny")
    (folder / "noisy.py").write_text(NOISY)
    return folder


def config_of(folder, name, workers):
    settings = {
        "name": name,
        "runs_dir": str(folder),
        "env": f"{folder}/noisy.py:Noisy",
        "model.path": str(folder / "tiny"),
        "steps": 2,
        "rollout.groups": 4,
        "rollout.group_size": 4,
        "rollout.decision_tokens": 8,
        "rollout.turns": 1,
        "rollout.workers": 2,
        "rollout.ray.workers": workers,
        "rollout.ray.start_s": 200,
        "optimizer.lr": 0.003,
        "evaluation.episodes": 2,
        "save.every": 1,
    }
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    return load_config(TrainConfig, None, words)


def run_of(folder, name, workers):
    return train(config_of(folder, name, workers), Unheard()).run


def weights_of(run, step=2):
    return load_file(run.checkpoints / f"step-{step:06d}" / "model.safetensors")


@pytest.fixture(scope="module")
def spread(cluster, folder):
    return run_of(folder, "spread", 2)


def test_a_run_on_a_cluster_is_the_run_of_one_process(spread, folder):
    here = run_of(folder, "here", 0)
    first, expected = (read_metrics(run.metrics) for run in (spread, here))
    for theirs, ours in zip(first, expected, strict=True):
        for name in {"rollout/reward", "rollout/tokens", "credit/spread", "eval/reward"} & set(ours):
            assert theirs[name] == pytest.approx(ours[name], abs=1e-9), (name, ours["step"])
    assert [line["ray/workers"] for line in first if "ray/workers" in line] == [2, 2]
    assert all(line["policy/sampler_gap_nats"] < 1e-4 for line in first if "loss/policy" in line)  # weights arrived
    found, wanted = weights_of(spread, 1), weights_of(here, 1)
    assert max(float((found[name] - wanted[name]).abs().max()) for name in found) < 3e-4  # a tenth of a step


def test_a_node_that_dies_costs_time_and_nothing_else(spread, cluster, folder):
    (node,) = cluster.worker_nodes
    killed = threading.Event()

    def kill():
        until = time.monotonic() + 200
        while time.monotonic() < until and not (folder / f"node-{node.node_id}").exists():
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        (folder / "slow").unlink()
        killed.set()

    (folder / "slow").touch()
    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    run = run_of(folder, "killed", 2)
    thread.join(60)
    assert killed.is_set()
    assert (folder / f"node-{node.node_id}").exists()  # it was living its share when it died
    times = Counter((row.step, row.split, row.episode_id) for row in open_run(run.path).index())
    assert len(times) == 2 * 16 + 2 * 2
    assert set(times.values()) == {1}
    found, expected = weights_of(run), weights_of(spread)
    assert all(torch.equal(found[name], expected[name]) for name in expected)  # shares are lived alike anywhere
    assert read_metrics(run.metrics)[-1]["step"] == 2
    assert min(line["ray/workers"] for line in read_metrics(run.metrics) if "ray/workers" in line) == 1


def test_a_lost_worker_is_replaced_when_weights_are_handed_over(cluster, folder):
    config = config_of(folder, "replaced", 2)
    model, local = _in_worker(config)
    crew = RayCrew(model, partial(_in_worker, config), RayOptions(workers=2, cpus=0.4, start_s=200))
    episodes = [Episode(f"e{n}-{m}", f"e{n}", n, m, m, {"split": "train"}) for n in range(4) for m in range(2)]
    done, heard = crew.live(episodes, Work(paired=True)), []
    assert [t.episode_id for t in done[:2]] == ["e0-0", "e0-0-fork"]
    ray.kill(crew._workers[0])
    known = {t.episode_id: t for t in done[:4]}
    again = crew.live(episodes, Work(paired=True, ended=known), heard.append)
    assert [t.token_ids.tolist() for t in again] == [t.token_ids.tolist() for t in done]
    assert Counter(t.episode_id for t in heard) == Counter(t.episode_id for t in done[4:])
    for version in (1, 2):  # the new worker is asked for with the first, and stands after the second
        with torch.no_grad():
            next(model.parameters()).mul_(0.7)
        assert crew.updated(version)["ray/workers"] == 1
    for _ in range(2):
        crew._admit(200.0)
    fresh = crew.live(episodes, Work())
    local.updated(2)
    here = local.live(episodes, Work())
    assert len(crew._workers) == 2
    assert all(set(t.policy_versions) == {2} for t in fresh)  # the new worker has the newest weights, too
    assert [t.token_ids.tolist() for t in fresh] == [t.token_ids.tolist() for t in here]
    assert [t.token_ids.tolist() for t in fresh] != [t.token_ids.tolist() for t in done[::2]]
    crew.close()


def test_workers_for_which_there_is_no_room_are_named(cluster, folder):
    make = partial(_in_worker, config_of(folder, "none", 1))
    with pytest.raises(EngineError, match=r"1 of 1 workers did not start within 2 s: .*asks for 64 cores"):
        RayCrew(None, make, RayOptions(workers=1, cpus=64, start_s=2))
