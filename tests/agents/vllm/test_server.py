"""A vLLM server of our own, trained with and evaluated over HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
import torch

from accredit.agents.openai import OpenAIPolicy
from accredit.agents.policy import EngineError
from accredit.agents.vllm.options import VLLMOptions, engine_environment
from accredit.agents.vllm.policy import VLLMPolicy
from accredit.agents.vllm.weights import export
from accredit.cli import main

pytestmark = pytest.mark.timeout(900)  # engines start, several times slower on a machine that is busy

# float32 sums in another order: seen below 2e-5
TOLERANCE = 1e-4

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def answers(address):
    try:
        return httpx.get(f"{address}/health", timeout=5).is_success
    except httpx.TransportError:
        return False


@pytest.fixture(scope="module")
def server(loaded, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    export(loaded.model, folder)
    loaded.tokenizer.chat_template = CHATML
    loaded.tokenizer.save_pretrained(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # `vllm serve`, by its module, for the wheel for CPUs has another name than its command looks for
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--port", str(port), "--host", "127.0.0.1", "--dtype", "float32", "--max-model-len", "1024"]
    command += [
        "--enforce-eager",
        "--logprobs-mode",
        "raw_logprobs",
        "--no-enable-chunked-prefill",
        "--disable-uvicorn-access-log",
    ]
    with engine_environment(VLLMOptions(threads=1), on_gpu=False):
        environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1"}
    log = (folder / "log").open("w")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 240
        while not answers(address):
            assert process.poll() is None and time.monotonic() < until, (folder / "log").read_text()[-3000:]
            time.sleep(0.5)
        yield address, process
    finally:
        log.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def test_a_server_takes_over_weights_and_its_logprobs_are_the_models(
    server, loaded, requests, sample, largest_gap, step, tmp_path
):
    torch.manual_seed(0)
    options = VLLMOptions(servers=(server[0],), context_tokens=512, weights_dir=str(tmp_path), start_s=240)
    policy = VLLMPolicy(loaded.model, options)
    kept = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    for version in range(3):
        asked = requests()
        decisions = sample(policy, asked)
        assert largest_gap(loaded.model, asked, decisions) < TOLERANCE
        assert {decision.policy_version for decision in decisions} == {version}
        step(loaded.model)
        assert policy.updated(version + 1)["engine/parity_gap_nats"] < TOLERANCE
    loaded.model.load_state_dict(kept)
    policy.updated(4)
    policy.close()
    assert not list(tmp_path.iterdir())


def test_a_server_too_small_for_an_episode_is_refused(server, loaded):
    with pytest.raises(EngineError, match="--max-model-len 4096"):
        VLLMPolicy(loaded.model, VLLMOptions(servers=(server[0],), context_tokens=4096))


def test_no_server_is_an_error_that_says_how_to_start_one(loaded):
    with pytest.raises(EngineError, match="vllm serve"):
        VLLMPolicy(loaded.model, VLLMOptions(servers=("http://127.0.0.1:9",), start_s=0.1))


def test_ids_are_asked_for_where_the_server_takes_them(server, loaded, requests, sample, largest_gap):
    policy = OpenAIPolicy(server[0], loaded.renderer)
    asked = requests()
    decisions = sample(policy, asked)
    policy.close()
    assert policy.form == "ids"
    assert largest_gap(loaded.model, asked, decisions) < TOLERANCE


@pytest.mark.parametrize("form", ["ids", "text", "chat"])
def test_held_out_tasks_are_lived_over_every_form(server, loaded, form, monkeypatch, capsys):
    monkeypatch.setattr(OpenAIPolicy.__init__, "__defaults__", (None, form if form != "ids" else None))
    arguments = [
        "eval",
        "base",
        "Shop-v0",
        "--level",
        "easy",
        "--server",
        f"{server[0]}/v1",
        "--episodes",
        "6",
        "--json",
    ]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["tasks"], told["unscored"]) == (6, 0)
    assert told["turns"] > 1.5  # calls were read from what it said, and answered


def test_a_server_that_dies_ends_the_run_by_name(server, loaded, requests, sample):
    policy = VLLMPolicy(loaded.model, VLLMOptions(servers=(server[0],), context_tokens=512, request_s=60))
    os.killpg(server[1].pid, signal.SIGKILL)
    server[1].wait(20)
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"does not answer.*no replica is left"):
        sample(policy, requests())
    assert time.monotonic() - began < 60
    policy.close()
