"""Whole runs of two processes over gloo on the CPU: what one process does, written once, resumed by either."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors.torch import load_file

from accredit.agents.models import LoadedModel, save_model
from accredit.credit.traces import open_run
from accredit.envs import tinytokenizers
from accredit.trainer import checkpoint
from accredit.trainer.config import TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.distributed import Unheard
from accredit.trainer.loop import train
from accredit.trainer.metrics import read_metrics
from accredit.trainer.run import RunDirectory

NOISY = """
import os, signal
from accredit.envs import Task, ToolEnv
class Noisy(ToolEnv):
    def tasks(self, rng): return [Task(f'say {n}', answer=n) for n in range(10)]
    def reward(self):
        if os.environ.get('KILLED') == os.environ.get('RANK', 'none'):
            os.kill(os.getpid(), signal.SIGKILL)
        return (len(self.answer) * 37 % 11) / 10
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_renderer, make_tiny_llama):
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("runs")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tinytokenizers.byte_level())
    save_model(LoadedModel(make_tiny_llama(), tokenizer, tiny_renderer), folder / "tiny")
    (folder / "noisy.py").write_text(NOISY)
    settings = {
        "runs_dir": str(folder),
        "env": f"{folder}/noisy.py:Noisy",
        "model": {"path": str(folder / "tiny")},
        "steps": 2,
        "rollout": {"groups": 3, "group_size": 4, "decision_tokens": 8, "episode_tokens": 1500, "turns": 2},
        "optimizer": {"lr": 0.003},
        "evaluation": {"episodes": 3, "every": 2},
        "save": {"every": 1},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    return folder


def alone(folder, name, resume=False, **more):
    words = [f"name={name}", *(f"{key}={json.dumps(value)}" for key, value in more.items())]
    return train(load_config(TrainConfig, folder / "run.yaml", words), Unheard(), resume=resume).run


def together(folder, *words, timeout_s=280, **environment):
    """Start two processes of `accredit train`; the port is free: it was bound a moment ago."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(port)]
    return subprocess.run(
        [*launch, "-m", "accredit", "train", str(folder / "run.yaml"), *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
        cwd=folder,
    )


@pytest.fixture(scope="module")
def split(folder):
    done = together(folder, "name=split")
    assert done.returncode == 0, done.stderr[-3000:]
    return done, RunDirectory(folder / "split")


@pytest.fixture(scope="module")
def whole(folder):
    return alone(folder, "whole")


def weights_of(run, step):
    return load_file(run.checkpoints / f"step-{step:06d}" / "model.safetensors")


def lines_of(run, step):
    merged = {}
    for line in read_metrics(run.metrics):
        if line["step"] == step:
            merged |= line
    return merged


def test_two_processes_live_and_learn_as_one_does(split, whole):
    _, run = split
    theirs, ours = lines_of(run, 1), lines_of(whole, 1)
    for name in ("rollout/reward", "rollout/tokens", "credit/spread", "advantage/spread", "rollout/no_spread_share"):
        assert theirs[name] == pytest.approx(ours[name], abs=1e-9), name  # the same episodes, whoever lived them
    assert theirs["optimizer/grad_norm"] == pytest.approx(ours["optimizer/grad_norm"], rel=1e-4)
    assert theirs["policy/sampler_gap_nats"] < 1e-4
    assert lines_of(run, 0)["eval/reward"] == pytest.approx(lines_of(whole, 0)["eval/reward"])
    first, expected = weights_of(run, 1), weights_of(whole, 1)
    assert set(first) == set(expected)
    assert max(float((first[name] - expected[name]).abs().max()) for name in first) < 3e-4  # a tenth of a step


def test_the_run_directory_is_written_once(split):
    done, run = split
    assert done.stdout.count("begins (2 steps") == 1
    assert [line["step"] for line in read_metrics(run.metrics) if "loss/policy" in line] == [1, 2]
    rows = open_run(run.path).index()
    assert sum(row.split == "train" for row in rows) == 2 * 12
    assert sum(row.split == "heldout" for row in rows) == 2 * 3
    assert len({(row.step, row.episode_id) for row in rows}) == len(rows)


def test_one_process_goes_on_with_what_two_wrote_and_two_with_what_one_wrote(folder, split, whole):
    assert split[1].path.exists()
    ahead = alone(folder, "whole", resume=True, steps=3)
    alone(folder, "split", resume=True, steps=3)
    alone(folder, "handed", steps=2)
    done = together(folder, "name=handed", "steps=3", "--resume")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "goes on after step 2" in done.stdout
    expected = weights_of(ahead, 3)
    for name in ("split", "handed"):
        found = weights_of(RunDirectory(folder / name), 3)
        assert max(float((found[key] - expected[key]).abs().max()) for key in found) < 1.5e-3, name
    state = torch.load(RunDirectory(folder / "handed").checkpoints / "step-000003" / "optimizer.pt", weights_only=True)
    assert {float(kept["step"]) for kept in state["state"].values()} == {3.0}  # the moments were taken over


def test_a_process_that_dies_ends_the_run_with_a_message(folder):
    done = together(folder, "name=killed", KILLED="1")
    assert done.returncode != 0
    assert "Signal 9 (SIGKILL)" in done.stderr  # torchrun names who died
    assert checkpoint.latest(folder / "killed" / "checkpoints") is None


def test_what_the_first_process_cannot_do_ends_all_with_its_reason(folder, whole):
    before = whole.metrics.read_text()
    done = together(folder, "name=whole")
    assert done.returncode != 0
    assert "RunError" in done.stderr and "already holds a run" in done.stderr
    assert whole.metrics.read_text() == before
