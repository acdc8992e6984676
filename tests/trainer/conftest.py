"""Short real episodes of the shop, sampled by a tiny random Llama or played by the expert."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.scripted import ScriptedPolicy
from accredit.agents.transformers import TransformersPolicy
from accredit.envs import load_env, tinytokenizers
from accredit.envs.chatml import ChatMLRenderer


@pytest.fixture(scope="session")
def renderer():
    return ChatMLRenderer(tinytokenizers.byte_level(), "signature")


@pytest.fixture
def model(renderer):
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=renderer.vocab_size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    )


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
