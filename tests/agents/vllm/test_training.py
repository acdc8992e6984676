"""Whole runs over the vLLM engine."""

import json
from pathlib import Path

import pytest

from accredit.cli import main
from accredit.credit.traces import open_run
from accredit.trainer.metrics import read_metrics

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.timeout(900)  # engines start, several times slower on a machine that is busy


def test_a_run_trains_over_vllm_and_records_the_version_of_every_turn(tmp_path, capsys):
    more = {
        "name": "v",
        "runs_dir": str(tmp_path),
        "steps": 2,
        "rollout.engine": "vllm",
        "rollout.groups": 2,
        "rollout.group_size": 4,
        "evaluation.episodes": 4,
        "evaluation.every": 0,
        "loss.kl": 0,
    }
    assert (
        main(
            [
                "train",
                str(ROOT / "examples" / "shop.yaml"),
                *(f"{key}={json.dumps(value)}" for key, value in more.items()),
            ]
        )
        == 0
    )
    assert "held out after" in capsys.readouterr().out
    stepped = [line for line in read_metrics(tmp_path / "v" / "metrics.jsonl") if "engine/parity_gap_nats" in line]
    assert [line["step"] for line in stepped] == [1, 2]
    assert all(line["engine/parity_gap_nats"] < 1e-4 for line in stepped)  # float32
    assert all(line["policy/sampler_gap_nats"] < 1e-4 for line in stepped)
    run = open_run(tmp_path / "v" / "traces")
    found = {}
    for episode in run.episodes():
        found.setdefault((episode.split, episode.step), set()).update(episode.trajectory.policy_versions)
    assert found == {("heldout", 0): {0}, ("train", 1): {0}, ("train", 2): {1}, ("heldout", 2): {2}}


def test_a_run_lives_ahead_over_vllm_and_is_never_more_than_one_version_behind(tmp_path):
    more = {
        "name": "v",
        "runs_dir": str(tmp_path),
        "steps": 4,
        "rollout.engine": "vllm",
        "rollout.groups": 2,
        "rollout.group_size": 4,
        "rollout.max_staleness": 1,
        "loss.importance": "token",
        "evaluation.episodes": 4,
        "evaluation.every": 2,
        "loss.kl": 0,
    }
    words = [f"{key}={json.dumps(value)}" for key, value in more.items()]
    assert main(["train", str(ROOT / "examples" / "shop.yaml"), *words]) == 0
    stepped = [line for line in read_metrics(tmp_path / "v" / "metrics.jsonl") if "rollout/reward" in line]
    assert [line["rollout/staleness_max"] for line in stepped] == [0, 1, 1, 1]
    taught = [line for line in stepped if line["optimizer/steps"]]
    assert taught and all("policy/importance_mean" in line for line in taught)  # on policy too: the engine has a gap
    run = open_run(tmp_path / "v" / "traces")
    found = {}
    for episode in run.episodes():
        found.setdefault((episode.split, episode.step), set()).update(episode.trajectory.policy_versions)
    train = {("train", 1): {0}, ("train", 2): {0}, ("train", 3): {1}, ("train", 4): {2}}
    assert found == {**train, ("heldout", 0): {0}, ("heldout", 2): {2}, ("heldout", 4): {4}}
