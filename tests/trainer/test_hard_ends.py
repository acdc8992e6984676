"""Runs that go wrong: each ends with a message that says what to do, or goes on with counted data."""

import json
import os
import resource
import subprocess
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
import torch

from accredit.cli import main
from accredit.credit.traces import open_run
from accredit.trainer.checkpoint import CheckpointError
from accredit.trainer.config import SFTConfig
from accredit.trainer.loop import train
from accredit.trainer.metrics import read_metrics
from accredit.trainer.run import RunError
from accredit.trainer.setup import TaskError
from accredit.trainer.sft import warm_start

from .conftest import NOISY, small_run, weights_of


class Silent:
    def started(self, run, config, first_step): ...
    def lived(self, done, of): ...
    def stepped(self, step, metrics): ...
    def evaluated(self, step, evaluation): ...


@pytest.fixture
def configured(tmp_path, tiny_folder):
    """Makes the configuration of a small run on an environment of the body given."""
    return partial(small_run, tmp_path, tiny_folder)


def test_a_policy_that_emits_garbage_is_data(configured):
    """A random model over bytes: broken UTF-8, no calls, no answers."""
    run = train(
        configured("    def tasks(self, rng): return [Task('x')]\n    def reward(self): return 0.0\n"), Silent()
    ).run
    lines = [line for line in read_metrics(run.metrics) if "rollout/reward" in line]
    assert [line["rollout/reward"] for line in lines] == [0.0] * 3
    assert [line["rollout/unscored_share"] for line in lines] == [0.0] * 3


def test_an_environment_that_raises_now_and_then_is_counted_and_the_run_goes_on(configured):
    body = NOISY.replace(
        "    def reward(self): return",
        "    def reward(self):\n        if self.rng.random() < 0.1: raise KeyError('it fell over')\n        return",
    )
    run = train(configured(body, **{"rollout.group_size": 16}), Silent()).run
    rows = [row for row in open_run(run.path).index() if row.split == "train"]
    broken = [row for row in rows if row.stop == "environment_error"]
    assert 0 < len(broken) < len(rows) / 3
    assert all(row.reward is None for row in broken)
    shares = [line["rollout/unscored_share"] for line in read_metrics(run.metrics) if "rollout/reward" in line]
    assert np.mean(shares) == pytest.approx(len(broken) / len(rows))
    assert "it fell over" in str(open_run(run.path).load(broken[0]).trajectory.error)


def test_an_empty_dataset_is_refused_before_anything_is_lived(configured):
    config = configured("    def tasks(self, rng): return []\n    def reward(self): return 0.0\n")
    with pytest.raises(TaskError, match=r"has no training task to begin.*tasks\(\) is empty"):
        train(config, Silent())


def test_held_out_tasks_that_cannot_be_drawn_are_refused_before_anything_is_lived(configured):
    config = configured(
        "    def draw_task(self, rng):\n"
        "        if self.split == 'heldout': raise RuntimeError('the test set is not mounted')\n"
        "        return Task('x')\n"
        "    own_splits = True\n"
        "    def reward(self): return 0.0\n"
    )
    with pytest.raises(TaskError, match=r"has no held-out task to begin.*the test set is not mounted"):
        train(config, Silent())


def test_tasks_whose_prompts_leave_no_room_are_counted_and_a_step_of_nothing_else_ends_the_run(configured):
    body = NOISY.replace("f'say {n}'", "f'say {n} ' * (200 if n % 2 else 1)")
    run = train(configured(body, **{"rollout.episode_tokens": 300, "rollout.groups": 8}), Silent()).run
    shares = [line["rollout/undecided_share"] for line in read_metrics(run.metrics) if "rollout/reward" in line]
    assert all(0 <= share < 1 for share in shares)
    assert max(shares) > 0
    with pytest.raises(RunError, match=r"none of the 8 episodes .* came to a decision: rollout.episode_tokens is 99"):
        train(configured(body.replace("n % 2", "True"), name="b", **{"rollout.episode_tokens": 99}), Silent())


@contextmanager
def largest_file(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("size", "kind"), [(3_000, RunError), (60_000, CheckpointError)])
def test_a_disk_that_takes_no_more_ends_the_run_and_a_resume_ends_with_the_same_bits(configured, size, kind):
    whole = train(configured(name="whole"), Silent()).run
    with largest_file(size), pytest.raises(kind, match=r"(?s)cannot write.*MB are free.*--resume"):
        train(configured(), Silent())
    run = train(configured(), Silent(), resume=True).run
    expected, found = weights_of(whole), weights_of(run)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_a_disk_that_takes_no_more_ends_a_warm_start_that_can_go_on(tmp_path, tiny_folder):
    told = {"evaluation": {"episodes": 2, "every": 0}, "env_options": {"level": "easy"}}
    told |= {"rollout": {"decision_tokens": 400, "episode_tokens": 8000}, "model": {"path": str(tiny_folder)}}
    config = SFTConfig(env="Shop-v0", runs_dir=str(tmp_path), steps=30, episodes=2, batch=1, **told)
    with largest_file(3_000), pytest.raises(RunError, match=r"cannot write.*MB are free.*accredit sft .* --resume"):
        warm_start(config, Silent())
    assert warm_start(config, Silent(), resume=True).after.episodes == 2


def test_a_disk_that_takes_no_more_ends_an_evaluation_that_can_go_on(tmp_path, capsys):
    words = ["eval", "base", "Arithmetic-v0", "--episodes", "2", "--out", str(tmp_path / "out")]
    with largest_file(1_000):
        assert main(words) == 1
    assert "make room and give the same command again, or another --out" in " ".join(capsys.readouterr().err.split())
    assert main(words) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_told_and_nothing_that_was_written_is_lost(configured, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this machine may not mount a tmpfs")
    try:
        config = configured(runs_dir=str(disk), **{"save.keep": 9, "steps": 12})
        with pytest.raises((RunError, CheckpointError), match=r"(?s)No space left|writing file|free") as told:
            train(config, Silent())
        assert "--resume" in str(told.value)
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        run = train(config, Silent(), resume=True).run
        lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
        assert sorted(line["step"] for line in lines if "rollout/reward" in line) == list(range(1, 13))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_a_run_directory_that_cannot_be_written_is_named(configured, tmp_path):
    (tmp_path / "file").write_text("no folder")
    for place in (str(tmp_path / "file" / "runs"), "/proc/runs"):
        with pytest.raises(RunError, match=r"cannot write to .*set runs_dir="):
            train(configured(runs_dir=place), Silent())


def test_a_tracker_that_fails_is_told_of_once_and_ends_nothing(tmp_path, caplog):
    from accredit.trainer.trackers import Trackers

    (tmp_path / "tensorboard").write_text("a file where a folder should be")
    trackers = Trackers(tmp_path)
    trackers.log(1, {"rollout/reward": 0.5})
    trackers.close()
    assert caplog.text.count("tracker tensorboard failed") == 1
