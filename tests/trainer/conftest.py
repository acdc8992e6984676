"""Short real episodes of the shop, sampled by a tiny random Llama or played by the expert."""

import pytest

from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.scripted import ScriptedPolicy
from accredit.agents.transformers import TransformersPolicy
from accredit.envs import load_env


@pytest.fixture(scope="session")
def renderer(tiny_renderer):
    return tiny_renderer


@pytest.fixture
def model(make_tiny_llama):
    return make_tiny_llama()


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
