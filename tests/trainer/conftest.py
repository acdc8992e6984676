"""Short real episodes of the shop, sampled by a tiny random Llama or played by the expert; small runs of that model."""

import json

import pytest
from safetensors.torch import load_file

from accredit.agents.models import LoadedModel, save_model
from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.scripted import ScriptedPolicy
from accredit.agents.transformers import TransformersPolicy
from accredit.envs import load_env, tinytokenizers
from accredit.trainer import checkpoint
from accredit.trainer.config import TrainConfig
from accredit.trainer.config_file import load_config

NOISY = (
    "    def tasks(self, rng): return [Task(f'say {n}', answer=n) for n in range(10)]\n"
    "    def reward(self): return (len(self.answer) * 37 % 11) / 10\n"
)
"""An environment's body whose rewards differ between rollouts of an untrained model, so that weights really move."""


@pytest.fixture(scope="session")
def renderer(tiny_renderer):
    return tiny_renderer


@pytest.fixture
def model(make_tiny_llama):
    return make_tiny_llama()


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory, renderer, make_tiny_llama):
    """The folder of a tiny random model over bytes."""
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tinytokenizers.byte_level())
    save_model(LoadedModel(make_tiny_llama(), tokenizer, renderer), folder)
    return folder


def small_run(tmp_path, model, body=NOISY, **more):
    """The configuration of a run of a few steps on an environment of the body given."""
    source = tmp_path / f"env{abs(hash(body))}.py"
    source.write_text(f"from accredit.envs import Task, ToolEnv, tool\nclass Env(ToolEnv):\n{body}")
    wanted = {
        "name": "a",
        "runs_dir": str(tmp_path / "runs"),
        "env": f"{source}:Env",
        "model.path": str(model),
        "steps": 3,
        "rollout.groups": 2,
        "rollout.group_size": 4,
        "rollout.decision_tokens": 8,
        "rollout.episode_tokens": 1500,
        "rollout.turns": 2,
        "optimizer.lr": 0.01,
        "evaluation.episodes": 3,
        "evaluation.every": 0,
        "save.every": 1,
        "credit.check": False,
        **more,
    }
    return load_config(TrainConfig, None, [f"{key}={json.dumps(value)}" for key, value in wanted.items()])


def weights_of(run):
    return load_file(checkpoint.find(run.checkpoints, "last") / "model.safetensors")


def shop_episodes(count):
    options = {"level": "easy", "split": "train"}
    return [
        Episode(f"ep-{i}", f"g-{i // 4}", seeds_of(0, i // 4), seeds_of(1, i), seeds_of(2, i), options)
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def expert_trajectories(renderer):
    return live(shop_episodes(8), ScriptedPolicy(renderer), lambda: load_env("Shop-v0"), renderer)


@pytest.fixture
def sampled_trajectories(renderer, model):
    limits = Limits(12, 1200, turns=2)
    return live(shop_episodes(8), TransformersPolicy(model), lambda: load_env("Shop-v0"), renderer, limits)
