"""Whole runs on a tiny model: what they leave behind, how they end, and that they resume to the same bits."""

import json
import shutil
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from accredit.agents.models import load_model
from accredit.credit.traces import open_run
from accredit.trainer import checkpoint
from accredit.trainer.config import SFTConfig, TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.loop import train
from accredit.trainer.metrics import MetricsWriter, read_metrics
from accredit.trainer.run import RunError
from accredit.trainer.setup import learning_rate
from accredit.trainer.sft import warm_start


class Silent:
    def __init__(self):
        self.steps, self.evaluations = [], []

    def started(self, run, config, first_step):
        self.first = first_step

    def lived(self, done, of):
        pass

    def stepped(self, step, metrics):
        self.steps.append((step, metrics))

    def evaluated(self, step, evaluation):
        self.evaluations.append((step, evaluation))


def settings(kind, tmp_path, tiny_folder, **more):
    overrides = {
        "name": "a",
        "runs_dir": str(tmp_path),
        "env": "Shop-v0",
        "env_options": {"level": "easy"},
        "model.path": str(tiny_folder),
        "steps": 4,
        "rollout.groups": 2,
        "rollout.decision_tokens": 8,
        "rollout.episode_tokens": 1500,
        "rollout.turns": 2,
        "optimizer.lr": 0.01,
        "evaluation.episodes": 3,
        "evaluation.every": 2,
        **more,
    }
    return load_config(kind, None, [f"{key}={json.dumps(value)}" for key, value in overrides.items()])


def noisy(tmp_path, tiny_folder, **more):
    """An environment whose reward differs between rollouts of an untrained model, so that weights really move."""
    source = tmp_path / "noisy.py"
    source.write_text(
        "from accredit.envs import Task, ToolEnv\n"
        "class Noisy(ToolEnv):\n"
        "    def tasks(self, rng): return [Task(f'say {n}', answer=n) for n in range(10)]\n"
        "    def reward(self): return (len(self.answer) * 37 % 11) / 10\n"
    )
    more = {"rollout.group_size": 4, "save.every": 2, **more}
    return settings(TrainConfig, tmp_path, tiny_folder, env=f"{source}:Noisy", env_options={}, **more)


def weights_of(run):
    newest = checkpoint.latest(run.checkpoints)
    assert newest is not None
    return load_file(newest / "model.safetensors")


def test_a_run_leaves_behind_what_its_directory_promises(tmp_path, tiny_folder):
    heard = Silent()
    result = train(noisy(tmp_path, tiny_folder), heard)
    path = result.run.path
    names = {"config.yaml", "environment.json", "metrics.jsonl", "tensorboard", "checkpoints", "traces"}
    assert names <= {entry.name for entry in path.iterdir()}
    assert [step for step, _ in heard.steps] == [1, 2, 3, 4]
    assert [step for step, _ in heard.evaluations] == [0, 2, 4]
    assert any((path / "tensorboard").iterdir())
    assert json.loads((path / "environment.json").read_text())["packages"]["torch"] is not None
    rows = open_run(path).index()
    assert sum(row.split == "train" for row in rows) == 4 * 8
    assert sum(row.split == "heldout" for row in rows) == 3 * 3
    lines = read_metrics(path / "metrics.jsonl")
    assert {line["step"] for line in lines} == {0, 1, 2, 3, 4}
    gap = max(metrics["policy/sampler_gap_nats"] for _, metrics in heard.steps)
    assert gap < 1e-4  # float32: sampler and trainer are one model
    assert all(metrics["optimizer/grad_norm"] > 0 for _, metrics in heard.steps)


def test_a_stored_episode_is_the_one_that_was_lived(tmp_path, tiny_folder):
    result = train(noisy(tmp_path, tiny_folder, steps=1), Silent())
    reader = open_run(result.run.path)
    row = next(row for row in reader.index() if row.split == "train")
    stored = reader.episode(row.episode_id)
    assert stored.credit is not None
    assert stored.trajectory.credit_mask.any()
    assert not stored.credit.advantage.total[~stored.trajectory.credit_mask].any()
    said = b"".join(stored.token_bytes).decode(errors="replace")
    assert "say " in said


def test_a_stored_episode_has_what_the_update_computed_of_it(tmp_path, tiny_folder):
    result = train(noisy(tmp_path, tiny_folder, steps=2), Silent())
    model = load_model(tiny_folder).model
    for episode in open_run(result.run.path).episodes():
        if episode.split == "heldout":
            assert episode.signals == {}
            continue
        assert episode.credit is not None
        trained_T = episode.credit.advantage.total != 0
        gap_T = episode.signals["trainer_logprob"] - episode.trajectory.logprobs
        assert np.array_equal(np.isfinite(gap_T), trained_T)
        np.testing.assert_allclose(np.exp(gap_T[trained_T]), 1, atol=1e-3)  # on policy, in float32
        if episode.step == 1 and trained_T.any():
            ids_T = torch.tensor(episode.trajectory.token_ids, dtype=torch.long)
            with torch.no_grad():
                logprobs_TV = model(ids_T[None]).logits[0].float().log_softmax(-1)
            entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1).numpy()
            at_N = np.flatnonzero(trained_T)
            np.testing.assert_allclose(episode.signals["entropy"][at_N], entropy_T[at_N - 1], atol=1e-4)


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(tmp_path, tiny_folder):
    one = weights_of(train(noisy(tmp_path, tiny_folder), Silent()).run)
    same = weights_of(train(noisy(tmp_path, tiny_folder, name="b"), Silent()).run)
    other = weights_of(train(noisy(tmp_path, tiny_folder, name="c", seed=1), Silent()).run)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_a_resumed_run_ends_with_the_bits_of_one_that_was_never_stopped(tmp_path, tiny_folder):
    whole = train(noisy(tmp_path, tiny_folder), Silent()).run
    train(noisy(tmp_path, tiny_folder, name="cut", steps=2), Silent())
    heard = Silent()
    resumed = train(noisy(tmp_path, tiny_folder, name="cut", steps=4), heard, resume=True).run
    assert heard.first == 2
    assert [step for step, _ in heard.steps] == [3, 4]
    expected, found = weights_of(whole), weights_of(resumed)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_half_written_checkpoint_is_never_resumed_from(tmp_path, tiny_folder):
    run = train(noisy(tmp_path, tiny_folder, steps=2), Silent()).run
    newest = checkpoint.latest(run.checkpoints)
    assert newest is not None
    shutil.copytree(newest, run.checkpoints / ".draft-000004")
    assert checkpoint.latest(run.checkpoints) == newest


def test_only_the_newest_checkpoints_and_the_best_are_kept(tmp_path, tiny_folder):
    more = {"save.every": 1, "save.keep": 1, "evaluation.every": 1}
    run = train(noisy(tmp_path, tiny_folder, **more), Silent()).run
    kept = sorted(path.name for path in run.checkpoints.iterdir() if not path.is_symlink())
    assert "step-000004" in kept
    assert len(kept) <= 2


def test_nothing_is_overwritten(tmp_path, tiny_folder):
    config = noisy(tmp_path, tiny_folder, steps=1)
    run = train(config, Silent()).run
    before = run.metrics.read_text()
    with pytest.raises(RunError, match="already holds a run: go on with --resume"):
        train(config, Silent())
    assert run.metrics.read_text() == before


def test_a_run_is_not_resumed_with_another_configuration(tmp_path, tiny_folder):
    train(noisy(tmp_path, tiny_folder, steps=1), Silent())
    with pytest.raises(RunError, match=r"another configuration.*optimizer"):
        train(noisy(tmp_path, tiny_folder, **{"optimizer.lr": 0.5}), Silent(), resume=True)
    with pytest.raises(RunError, match="nothing to resume"):
        train(noisy(tmp_path, tiny_folder, name="never"), Silent(), resume=True)


def test_a_run_that_is_older_than_a_setting_is_resumed_with_its_default(tmp_path, tiny_folder):
    run = train(noisy(tmp_path, tiny_folder, steps=1), Silent()).run
    settings = yaml.safe_load(run.config.read_text())
    del settings["rollout"]["seconds"], settings["model"]["device"]
    run.config.write_text(yaml.safe_dump(settings))
    train(noisy(tmp_path, tiny_folder, steps=2), Silent(), resume=True)
    assert [line["step"] for line in run.history() if "optimizer/lr" in line] == [1, 2]


def test_a_step_in_which_every_episode_failed_stops_with_the_first_error(tmp_path, tiny_folder):
    source = tmp_path / "broken.py"
    source.write_text(
        "from accredit.envs import Task, ToolEnv\n"
        "class Broken(ToolEnv):\n"
        "    def tasks(self, rng): return [Task('x')]\n"
        "    def reward(self): raise KeyError('the grader is missing')\n"
    )
    config = settings(TrainConfig, tmp_path, tiny_folder, env=f"{source}:Broken", env_options={})
    with pytest.raises(RunError, match=r"all 16 episodes of the step ended unscored.*the grader is missing"):
        train(config, Silent())


def test_a_group_without_spread_moves_no_weight(tmp_path, tiny_folder):
    source = tmp_path / "flat.py"
    source.write_text(
        "from accredit.envs import Task, ToolEnv\n"
        "class Flat(ToolEnv):\n"
        "    def tasks(self, rng): return [Task('x')]\n"
        "    def reward(self): return 0.7\n"
    )
    config = settings(TrainConfig, tmp_path, tiny_folder, env=f"{source}:Flat", env_options={}, steps=2)
    heard = Silent()
    run = train(config, heard).run
    before, after = load_file(tiny_folder / "model.safetensors"), weights_of(run)
    assert all(torch.equal(before[name], after[name]) for name in after)
    assert [metrics["rollout/no_spread_share"] for _, metrics in heard.steps] == [1.0, 1.0]


def test_the_kl_penalty_is_measured_from_the_policy_that_the_run_started_with(tmp_path, tiny_folder):
    heard = Silent()
    train(noisy(tmp_path, tiny_folder, name="cut", steps=2, **{"loss.kl": 0.1}), heard)
    train(noisy(tmp_path, tiny_folder, name="cut", steps=3, **{"loss.kl": 0.1}), heard, resume=True)
    penalties = [metrics["loss/kl"] for _, metrics in heard.steps]
    assert penalties[0] == pytest.approx(0, abs=1e-6)
    assert penalties[1] > 1e-4
    assert penalties[2] > 1e-4  # after the resume: not from the checkpoint


def test_a_warm_start_learns_the_experts_decisions(tmp_path, tiny_folder):
    heard = Silent()
    whole = {"rollout.turns": None, "rollout.episode_tokens": 8000, "rollout.decision_tokens": 400}
    whole["evaluation.every"] = 6
    config = settings(SFTConfig, tmp_path, tiny_folder, steps=15, episodes=12, batch=8, **whole)
    result = warm_start(config, heard)
    assert [step for step, _ in heard.evaluations] == [0, 6, 12, 15]
    losses = [metrics["loss/nll_nats"] for _, metrics in heard.steps]
    assert losses[-1] < 0.7 * losses[0]
    took = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-c", took, result.run.path / "run.lock"], check=True, timeout=60)  # it is free
    again = settings(TrainConfig, tmp_path, result.checkpoint, name="next", steps=1, **{"evaluation.episodes": 1})
    assert train(again, Silent()).run.checkpoints.exists()


def test_a_warm_start_keeps_its_best_checkpoint_between_those_of_every_so_many_steps(tmp_path):
    class Looking(Silent):
        def stepped(self, step, metrics):
            super().stepped(step, metrics)
            if step == 4:
                self.kept = checkpoint.find(tmp_path / "best" / "checkpoints", "best").name

    told = {
        "name": "best",
        "runs_dir": str(tmp_path),
        "env": "Arithmetic-v0",
        "evaluation": {"every": 3, "episodes": 16},
    }
    heard = Looking()
    warm_start(SFTConfig(**told, steps=5, episodes=16, batch=8), heard)
    assert heard.evaluations[1][1].success > heard.evaluations[0][1].success  # it has learnt
    assert heard.kept == "step-000003"


class Stopped(Silent):
    """Interrupts a run when its third step is done."""

    def stepped(self, step, metrics):
        super().stepped(step, metrics)
        if step == 3:
            raise KeyboardInterrupt


def test_a_warm_start_that_was_stopped_goes_on_to_the_bits_of_one_that_was_not(tmp_path, tiny_folder):
    wanted = {"rollout.turns": None, "rollout.episode_tokens": 8000, "rollout.decision_tokens": 400}
    wanted |= {"steps": 5, "episodes": 6, "batch": 3, "save.every": 2, "optimizer.decay": "linear"}
    config = settings(SFTConfig, tmp_path, tiny_folder, name="cut", **wanted)
    with pytest.raises(KeyboardInterrupt):
        warm_start(config, Stopped())
    heard = Silent()
    cut = warm_start(config, heard, resume=True)
    assert [step for step, _ in heard.steps] == [3, 4, 5]  # the third was not in a checkpoint
    whole = warm_start(settings(SFTConfig, tmp_path, tiny_folder, name="whole", **wanted), Silent())
    assert weights_of(cut.run).keys() == weights_of(whole.run).keys()
    for name, weight in weights_of(whole.run).items():
        assert torch.equal(weights_of(cut.run)[name], weight), name
    assert cut.before == whole.before
    assert cut.after == whole.after
    told = [
        [{name: value for name, value in line.items() if name != "time/step_s"} for line in run.history()]
        for run in (cut.run, whole.run)
    ]
    assert told[0] == told[1]
    again = warm_start(config, heard, resume=True)  # nothing is left to do
    assert (again.checkpoint, again.after) == (cut.checkpoint, cut.after)
    with pytest.raises(RunError, match="has done 5 steps and steps is 4"):
        warm_start(config.model_copy(update={"steps": 4}), heard, resume=True)


def test_a_torn_last_line_of_metrics_is_skipped(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.write(1, {"rollout/reward": 0.5, "credit/mean": float("nan")})
    writer.write(2, {"rollout/reward": 0.6})
    writer.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "roll')
    assert read_metrics(tmp_path / "metrics.jsonl") == [
        {"step": 1, "rollout/reward": 0.5, "credit/mean": None},
        {"step": 2, "rollout/reward": 0.6},
    ]


def test_the_learning_rate_warms_up_and_decays(tmp_path, tiny_folder):
    config = noisy(tmp_path, tiny_folder, **{"optimizer.warmup_steps": 2, "optimizer.decay": "linear"}).optimizer
    rates = [learning_rate(config, step, 10) for step in range(10)]
    assert rates[:3] == pytest.approx([0.005, 0.01, 0.01])
    assert all(later < earlier for earlier, later in pairwise(rates[2:]))
