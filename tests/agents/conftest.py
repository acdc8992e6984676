"""A tiny random Llama over a byte-level tokenizer, and a shop of the easy level."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from accredit.envs import tinytokenizers
from accredit.envs.chatml import ChatMLRenderer


@pytest.fixture(scope="session")
def renderer():
    return ChatMLRenderer(tinytokenizers.byte_level(), "signature")


@pytest.fixture
def model(renderer):
    torch.manual_seed(0)
    made = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=renderer.vocab_size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
    ).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(3)  # far from uniform, so that a wrong mask or position shows
    return made
