"""A tiny random Llama over a byte-level tokenizer: a real model that costs milliseconds."""

import pytest


@pytest.fixture(scope="session")
def tiny_renderer():
    from accredit.envs import tinytokenizers
    from accredit.envs.chatml import ChatMLRenderer

    return ChatMLRenderer(tinytokenizers.byte_level(), "signature")


@pytest.fixture(scope="session")
def make_tiny_llama(tiny_renderer):
    def make():
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=tiny_renderer.vocab_size,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                tie_word_embeddings=True,
            )
        )

    return make
