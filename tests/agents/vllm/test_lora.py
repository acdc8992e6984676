"""Adapters handed to an engine: parity through updates, and an update that was skipped."""

import os
import signal
import socket
import subprocess
import sys

import httpx
import pytest
import torch

from accredit.agents.lora import LoRA
from accredit.agents.models import load_model
from accredit.agents.policy import EngineError
from accredit.agents.vllm.options import VLLMOptions, engine_environment
from accredit.agents.vllm.parity import ParityError
from accredit.agents.vllm.policy import VLLMPolicy
from accredit.agents.vllm.weights import export

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


@pytest.mark.skipif(os.environ.get("REQUIRE_VLLM") != "1", reason="starts a server: set REQUIRE_VLLM=1")
def test_a_server_takes_adapters(adapted, requests, sample, largest_gap, tmp_path):
    export(adapted.model, tmp_path / "base")
    adapted.tokenizer.save_pretrained(tmp_path / "base")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(tmp_path / "base")]
    command += ["--port", str(port), "--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", "1024"]
    command += ["--enforce-eager", "--logprobs-mode", "raw_logprobs", "--no-enable-chunked-prefill"]
    command += ["--enable-lora", "--max-lora-rank", "8"]
    with engine_environment(VLLMOptions(threads=1), on_gpu=False):
        environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    options = VLLMOptions(servers=(address,), context_tokens=512, weights_dir=str(tmp_path), start_s=500)
    try:
        policy = VLLMPolicy(adapted.model, options)
        for version in range(1, 4):
            step(adapted.model)
            assert policy.updated(version)["engine/parity_gap_nats"] < TOLERANCE
            asked = requests()
            assert largest_gap(adapted.model, asked, sample(policy, asked)) < TOLERANCE
        served = [model["id"] for model in httpx.get(f"{address}/v1/models").json()["data"]]
        assert len(served) == 2  # the base and one adapter: old ones are dropped
        step(adapted.model)
        with pytest.raises(ParityError):
            policy.check()
        policy.close()
        torch.manual_seed(1)
        larger = load_model("base", lora=LoRA(rank=16))
        with pytest.raises(EngineError, match="up to rank 8, expected 16"):
            VLLMPolicy(larger.model, options)
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(20)
