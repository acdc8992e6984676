"""Training on pairs: half the episodes are branches, all of them count, and luck moves no weight."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from accredit.credit.traces import open_run
from accredit.trainer import checkpoint
from accredit.trainer.config import ConfigError, TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.loop import train

# Three turns; what is said pays, and a coin a turn pays `sigma` more. All on a grid, so that sums are exact.
SOURCE = """
from accredit.envs import Task, ToolEnv

class Lucky(ToolEnv):
    max_turns = 3
    option_names = ("sigma",)

    def tasks(self, rng):
        return [Task(f"say {n}", answer=n) for n in range(10)]

    def setup(self):
        self.state = {"said": 0, "luck": 0}

    def reply(self):
        self.state["said"] += len(self.answer) * 37 % 11
        self.state["luck"] += int(self.rng.integers(2))
        return f"coin {self.state['luck']}"

    def reward(self):
        return self.state["said"] / 32 + self.options["sigma"] * self.state["luck"]
"""


class Silent:
    def __init__(self):
        self.steps, self.evaluations, self.told = [], [], []

    def started(self, run, config, first_step):
        pass

    def lived(self, done, of):
        self.told.append((done, of))

    def stepped(self, step, metrics):
        self.steps.append(metrics)

    def evaluated(self, step, evaluation):
        self.evaluations.append(evaluation)


def settings(tmp_path, tiny_folder, **more):
    source = tmp_path / "lucky.py"
    source.write_text(SOURCE)
    overrides = {
        "name": "a",
        "runs_dir": str(tmp_path),
        "env": f"{source}:Lucky",
        "env_options": {"sigma": 0},
        "model.path": str(tiny_folder),
        "credit.function": "counterfactual",
        "steps": 2,
        "rollout.groups": 2,
        "rollout.group_size": 6,
        "rollout.decision_tokens": 6,
        "rollout.episode_tokens": 1000,
        "optimizer.lr": 0.01,
        "evaluation.episodes": 2,
        "evaluation.every": 0,
        **more,
    }
    return load_config(TrainConfig, None, [f"{key}={json.dumps(value)}" for key, value in overrides.items()])


def weights_of(result):
    newest = checkpoint.latest(result.run.checkpoints)
    assert newest is not None
    return load_file(newest / "model.safetensors")


def test_both_members_of_a_pair_are_stored_counted_and_priced_apart_from_other_turns(tmp_path, tiny_folder):
    heard = Silent()
    result = train(settings(tmp_path, tiny_folder, steps=1), heard)
    assert {of for _, of in heard.told} == {12}
    assert max(done for done, _ in heard.told) == 12
    reader = open_run(result.run.path)
    rows = [row for row in reader.index() if row.split == "train"]
    assert len(rows) == 12
    assert heard.steps[0]["rollout/reward"] == pytest.approx(np.mean([row.reward or 0.0 for row in rows]))
    priced = 0
    for base, fork in zip(rows[::2], rows[1::2], strict=True):
        one, other = reader.load(base), reader.load(fork)
        assert fork.episode_id == f"{base.episode_id}-fork" and fork.group == base.group
        assert one.trajectory.seeds["pair"] == other.trajectory.seeds["pair"]
        for member, partner in ((one, other), (other, one)):
            assert member.credit is not None
            assert member.trajectory.reward is not None and partner.trajectory.reward is not None
            turn, difference = (
                member.trajectory.seeds["fork_turn"],
                member.trajectory.reward - partner.trajectory.reward,
            )
            for span in member.trajectory.decisions:
                found = member.credit.advantage.total[span.start : span.end]
                assert np.all(found == (difference if span.turn == turn else 0.0))
            priced += difference != 0
    assert priced >= 4


def test_with_and_without_luck_the_weights_are_the_same_bits(tmp_path, tiny_folder):
    runs = {
        (function, sigma): weights_of(
            train(
                settings(
                    tmp_path,
                    tiny_folder,
                    name=f"{function}-{sigma}",
                    env_options={"sigma": sigma},
                    **{"credit.function": function},
                ),
                Silent(),
            )
        )
        for function, sigma in (("counterfactual", 0), ("counterfactual", 4), ("dr_grpo", 0), ("dr_grpo", 4))
    }
    calm, lucky = runs["counterfactual", 0], runs["counterfactual", 4]
    start = load_file(tiny_folder / "model.safetensors")
    assert any(not torch.equal(start[name], calm[name]) for name in calm)
    assert all(torch.equal(calm[name], lucky[name]) for name in calm)
    assert any(not torch.equal(runs["dr_grpo", 0][name], runs["dr_grpo", 4][name]) for name in calm)


def test_groups_of_an_odd_size_are_refused_before_anything_is_made(tmp_path, tiny_folder):
    config = settings(tmp_path, tiny_folder, **{"rollout.group_size": 5})
    with pytest.raises(ConfigError, match="group_size is 5, expected an even number"):
        train(config, Silent())
    assert not (tmp_path / "a").exists()
