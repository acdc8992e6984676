"""Adapters handed to an engine that this process starts: parity through updates, and an update that was skipped."""

import pytest
import torch

from accredit.agents.lora import LoRA
from accredit.agents.models import load_model
from accredit.agents.vllm.options import VLLMOptions
from accredit.agents.vllm.parity import ParityError
from accredit.agents.vllm.policy import VLLMPolicy

pytestmark = pytest.mark.timeout(900)  # engines start, several times slower on a machine that is busy

# float32 sums in another order: seen below 2e-5
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def adapted():
    torch.manual_seed(0)
    return load_model("base", lora=LoRA(rank=4, alpha=8))


@pytest.fixture(scope="module")
def policy(adapted):
    policy = VLLMPolicy(adapted.model, VLLMOptions(context_tokens=512, request_s=120))
    yield policy
    policy.close()


def step(model, size=0.05):
    """Change the adapter, as an optimizer would, by more than one step does."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(size * torch.randn_like(weight))


def test_adapters_arrive_and_their_logprobs_are_the_models(policy, adapted, requests, sample, largest_gap):
    first = policy.version
    for version in range(first, first + 4):
        if version > first:
            step(adapted.model)
            assert policy.updated(version)["engine/parity_gap_nats"] < TOLERANCE
        asked = requests()  # the same contexts, so that a prefix cache that outlives an update shows
        decisions = sample(policy, asked)
        assert largest_gap(adapted.model, asked, decisions) < TOLERANCE
        assert {decision.policy_version for decision in decisions} == {version}
    newest = max(policy._outbox._path.iterdir(), key=lambda folder: folder.name)
    assert {path.suffix for path in newest.iterdir()} >= {".safetensors"}
    assert not (newest / "model.safetensors").exists()  # an adapter, not the whole model


def test_an_adapter_that_the_engine_did_not_get_is_found(policy, adapted):
    policy.check()
    step(adapted.model)
    with pytest.raises(ParityError, match=r"largest gap .* nats .* tolerance 0\.001"):
        policy.check()
    policy.updated(policy.version + 1)
    policy.check()
