"""Adapters: gradients, the reference, and whole runs that save and resume them."""

import copy
import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from accredit.agents.lora import LoRA, add, switched_off
from accredit.agents.models import LoadedModel, ModelError, load_model, save_model
from accredit.cli import main
from accredit.envs import tinytokenizers
from accredit.trainer import checkpoint
from accredit.trainer.batch import collate, rows_of
from accredit.trainer.checkpoint import CheckpointError
from accredit.trainer.config import ConfigError, LossConfig, OptimizerConfig, SFTConfig, TrainConfig
from accredit.trainer.config_file import load_config
from accredit.trainer.distributed import Processes, Unheard
from accredit.trainer.estimate import memory_estimate
from accredit.trainer.export import ExportError, export
from accredit.trainer.learner import make_learner
from accredit.trainer.logprobs import score
from accredit.trainer.loop import train
from accredit.trainer.metrics import read_metrics
from accredit.trainer.setup import make_optimizer, prepare
from accredit.trainer.sft import warm_start
from accredit.trainer.update import Updater

NOISY = """
from accredit.envs import Task, ToolEnv
class Noisy(ToolEnv):
    def tasks(self, rng): return [Task(f'say {n}', answer=n) for n in range(10)]
    def reward(self): return (len(self.answer) * 37 % 11) / 10
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_renderer, make_tiny_llama):
    folder = tmp_path_factory.mktemp("lora")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tinytokenizers.byte_level())
    model = make_tiny_llama()
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(20)  # the head, too, stays as it is: let it tell tokens apart
    save_model(LoadedModel(model, tokenizer, tiny_renderer), folder / "tiny")
    (folder / "noisy.py").write_text(NOISY)
    return folder


def settings(kind, folder, tmp_path, **more):
    overrides = {
        "name": "a",
        "runs_dir": str(tmp_path),
        "env": f"{folder}/noisy.py:Noisy",
        "model.path": str(folder / "tiny"),
        "model.lora": {"rank": 4, "alpha": 8},
        "steps": 4,
        "rollout.groups": 2,
        "rollout.decision_tokens": 8,
        "rollout.episode_tokens": 1500,
        "optimizer.lr": 0.02,
        "evaluation.episodes": 2,
        "evaluation.every": 0,
        **more,
    }
    return load_config(kind, None, [f"{key}={json.dumps(value)}" for key, value in overrides.items()])


def trained(folder, tmp_path, **more):
    resume = more.pop("resume", False)
    more = {"rollout.group_size": 4, "save.every": 2, **more}
    return train(settings(TrainConfig, folder, tmp_path, **more), Unheard(), resume=resume).run


resumed = partial(trained, resume=True)


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    return trained(folder, tmp_path_factory.mktemp("runs"), **{"loss.kl": 0.1})


def moved(model):
    """Let the adapter of `model` change what it computes."""
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in adapter_of(model).values():
            weight.copy_(0.3 * torch.randn_like(weight))
    return model


def adapter_of(model):
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def plain_logprobs(model, batch):
    """Every row by itself, through the whole model and its logits; in the order of `score`."""
    parts = []
    for row in batch:
        logits = model(torch.tensor(row.token_ids_T)[None].long()).logits[0].log_softmax(-1)
        targets = torch.tensor(row.targets_N).long()
        parts.append(logits[targets - 1, torch.tensor(row.token_ids_T).long()[targets]])
    return torch.cat(parts)


def wrapped(model):
    """The same adapter in peft's own wrapper."""
    return peft.get_peft_model(model, peft.LoraConfig(r=3, lora_alpha=6, target_modules="all-linear"))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("form", ["every layer", "two targets", "peft's wrapper"])
def test_gradients_are_those_of_plain_autograd_and_the_base_gets_none(model, sampled_trajectories, form, checkpointing):
    model = wrapped(model) if form == "peft's wrapper" else model
    if form != "peft's wrapper":
        add(model, LoRA(3, 6.0, ("q_proj", "down_proj") if form == "two targets" else None), Path("base"))
    model = moved(model).double()
    rows = rows_of(sampled_trajectories, [t.credit_mask.astype(float) for t in sampled_trajectories])
    torch.manual_seed(1)
    weights = torch.randn(sum(len(row.targets_N) for row in rows), dtype=torch.float64)
    adapter = adapter_of(model)
    expected = torch.autograd.grad((plain_logprobs(model, rows) * weights).sum(), list(adapter.values()))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    (score(model, collate(rows)).logprobs_N * weights).sum().backward()
    for (name, weight), wanted in zip(adapter.items(), expected, strict=True):
        assert wanted.abs().max() > 1e-4, name
        torch.testing.assert_close(weight.grad, wanted, rtol=1e-4, atol=1e-5)  # norms are in float32
    assert len(adapter) == (8 if form == "two targets" else 28)
    assert all(weight.grad is None for weight in model.parameters() if not weight.requires_grad)


def test_a_fresh_adapter_changes_nothing_and_a_switched_off_one_neither(model, sampled_trajectories):
    rows = rows_of(sampled_trajectories, [t.credit_mask.astype(float) for t in sampled_trajectories])
    with torch.no_grad():
        before = score(model, collate(rows)).logprobs_N
        add(model, LoRA(dropout=0.5), Path("base"))
        model.train()
        assert torch.equal(score(model, collate(rows)).logprobs_N, before)  # dropped or not: B is 0
        moved(model)
        with switched_off(model):
            assert torch.equal(score(model, collate(rows)).logprobs_N, before)
        assert model.training
        assert (score(model, collate(rows)).logprobs_N - before).abs().max() > 0.01
        assert not torch.equal(*(score(model, collate(rows)).logprobs_N for _ in range(2)))  # dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_reference_is_the_model_itself_without_its_adapter(model, sampled_trajectories, monkeypatch, dtype):
    advantages = [t.credit_mask.astype(np.float64) for t in sampled_trajectories]
    batch = collate(rows_of(sampled_trajectories, advantages))
    base = copy.deepcopy(model.to(dtype))
    add(model, LoRA(rank=4), Path("base"))
    monkeypatch.setattr(copy, "deepcopy", None)  # no second copy
    optimizer = make_optimizer(model, OptimizerConfig(lr=0.02))
    updater = Updater(model, optimizer, LossConfig(kind="unclipped", kl=0.5, kl_estimator="k2"), OptimizerConfig())
    frozen = {name: weight.clone() for name, weight in model.named_parameters() if not weight.requires_grad}
    kl = [updater.update(sampled_trajectories, advantages, 0.02, seed)["loss/kl"] for seed in range(3)]
    with torch.no_grad():
        found = score(model, batch).logprobs_N
        expected = score(base, batch).logprobs_N
        with switched_off(model):
            assert torch.equal(score(model, batch).logprobs_N, expected)
    assert kl[0] == 0
    assert kl[2] > 0
    assert (found - expected).abs().max() > 0.01
    assert all(weight.dtype is torch.float32 for weight in adapter_of(model).values())
    assert all(torch.equal(weight, model.get_parameter(name)) for name, weight in frozen.items())


@pytest.mark.parametrize(
    ("target", "why"),
    [("lm_head", "it is the output head"), ("q_prj", "did you mean 'q_proj'"), ("embed_tokens", "it is a Embedding")],
)
def test_a_target_that_cannot_be_adapted_is_refused(model, target, why):
    with pytest.raises(ModelError, match=f"cannot adapt '{target}': {why}"):
        add(model, LoRA(targets=("v_proj", target)), Path("base"))


def test_only_the_adapter_is_saved_and_the_checkpoint_loads_as_the_model_that_sampled(run, folder):
    newest = checkpoint.find(run.checkpoints, "last")
    assert not (newest / "model.safetensors").exists()
    saved = load_file(newest / "adapter_model.safetensors")
    assert len(saved) == 28
    assert all(weight.dtype is torch.float32 for weight in saved.values())
    assert any(weight.abs().max() > 0 for name, weight in saved.items() if "lora_B" in name)
    lines = [line for line in read_metrics(run.metrics) if "policy/sampler_gap_nats" in line]
    assert all(line["policy/sampler_gap_nats"] < 1e-4 for line in lines)  # sampled with the adapter
    assert lines[0]["loss/kl"] == pytest.approx(0, abs=1e-6)
    assert lines[-1]["loss/kl"] > 1e-4
    ids = torch.arange(20)[None]
    by_peft = peft.PeftModel.from_pretrained(load_model(str(folder / "tiny")).model, str(newest)).eval()
    merged = load_model(str(newest))
    assert merged.base is None
    assert getattr(merged.renderer, "tools_format", None) == "signature"
    torch.testing.assert_close(merged.model(ids).logits, by_peft(ids).logits)


def test_a_resumed_run_ends_with_the_bits_of_one_that_was_never_stopped(run, folder, tmp_path):
    more = {"name": "cut", "loss.kl": 0.1}
    trained(folder, tmp_path, steps=2, **more)
    again = resumed(folder, tmp_path, **more)
    whole = load_file(run.checkpoints / "step-000004" / "adapter_model.safetensors")
    found = load_file(again.checkpoints / "step-000004" / "adapter_model.safetensors")
    assert whole.keys() == found.keys()
    assert all(torch.equal(whole[name], found[name]) for name in whole)


def test_another_base_is_refused_by_a_resume_and_by_whoever_loads_the_checkpoint(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "own")
    kept = trained(tmp_path / "own", tmp_path, steps=1)
    model = load_model(str(tmp_path / "own" / "tiny")).model
    with torch.no_grad():
        model.get_input_embeddings().weight[0, 0] += 1
    model.save_pretrained(tmp_path / "own" / "tiny")
    with pytest.raises(CheckpointError, match=r"trained on other weights than those at .*own/tiny"):
        resumed(tmp_path / "own", tmp_path, steps=2)
    with pytest.raises(ModelError, match=r"an adapter for other weights than those at"):
        load_model(str(checkpoint.find(kept.checkpoints, "last")))
    shutil.rmtree(tmp_path / "own" / "tiny")
    with pytest.raises(ModelError, match=r"whose base is gone: no model at"):
        load_model(str(checkpoint.find(kept.checkpoints, "last")))


def test_export_writes_the_merged_model_or_the_adapter_alone(run, folder, tmp_path, capsys):
    assert main(["export", str(run.path), "--out", str(tmp_path / "merged")]) == 0
    assert main(["export", str(run.path), "--out", str(tmp_path / "adapter"), "--adapter"]) == 0
    names = {path.name for path in (tmp_path / "merged").iterdir()}
    assert {"config.json", "model.safetensors", "README.md"} <= names
    assert not names & {"adapter_config.json", "base.json", "optimizer.pt", "state.json"}
    names = {path.name for path in (tmp_path / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= names
    assert not names & {"model.safetensors", "optimizer.pt", "state.json"}
    ids = torch.arange(20)[None]
    code = "import sys; sys.modules['peft'] = None; import torch; from transformers import AutoModelForCausalLM as M; "
    code += f"torch.save(M.from_pretrained({str(tmp_path / 'merged')!r})(torch.arange(20)[None]).logits, sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "logits.pt")], check=True, timeout=200)
    expected = load_model(str(checkpoint.find(run.checkpoints, "last"))).model(ids).logits
    torch.testing.assert_close(torch.load(tmp_path / "logits.pt"), expected)
    alone = AutoModelForCausalLM.from_pretrained(tmp_path / "adapter")  # finds the base by itself
    torch.testing.assert_close(alone(ids).logits, expected)
    whole = trained(folder, tmp_path, name="whole", steps=1, **{"model.lora": None})
    with pytest.raises(ExportError, match="no adapter: leave out --adapter"):
        export(whole.path, "last", tmp_path / "none", adapter=True)


def test_a_warm_start_trains_an_adapter_that_the_next_run_starts_from(folder, tmp_path):
    shop = {"env": "Shop-v0", "env_options": {"level": "easy"}, "rollout.episode_tokens": 8000}
    config = settings(
        SFTConfig,
        folder,
        tmp_path,
        steps=15,
        episodes=8,
        batch=6,
        **shop,
        **{"rollout.decision_tokens": 400, "optimizer.lr": 0.1, "model.lora": {"rank": 16}},
    )
    result = warm_start(config, Unheard())
    losses = [line["loss/nll_nats"] for line in read_metrics(result.run.metrics) if "loss/nll_nats" in line]
    assert losses[-1] < 0.8 * losses[0]
    started = load_model(result.checkpoint).model
    next_run = trained(folder, tmp_path, name="next", steps=1, **{"model.path": result.checkpoint, "loss.kl": 0.1})
    (line,) = [line for line in read_metrics(next_run.metrics) if "loss/kl" in line]
    assert line["loss/kl"] == pytest.approx(0, abs=1e-6)  # from what the warm start left, not from what it started from
    newest = checkpoint.find(next_run.checkpoints, "last")
    twice, ids = load_model(str(newest)).model, torch.arange(20)[None]
    by_peft = peft.PeftModel.from_pretrained(started, str(newest)).eval()
    torch.testing.assert_close(twice(ids).logits, by_peft(ids).logits, rtol=1e-4, atol=1e-4)


def test_the_memory_estimate_knows_what_trains(folder, tmp_path):
    of_base = {"loss.kl": 0.1, "model.path": "base"}
    whole = memory_estimate(settings(TrainConfig, folder, tmp_path, **of_base, **{"model.lora": None}))
    lora = memory_estimate(settings(TrainConfig, folder, tmp_path, **of_base))
    assert "reference policy" in whole
    assert "reference policy" not in lora
    model = load_model("base", lora=LoRA(4, 8.0)).model
    count = sum(weight.numel() for weight in adapter_of(model).values())
    assert f", {count / 1e6:.2f} M trained)" in lora
    sizes = [
        int(found.replace(",", "")) for text in (whole, lora) for found in re.findall(r"optimizer: ([\d,]+) MB", text)
    ]
    assert sizes[1] < sizes[0] / 10


def test_the_example_for_one_gpu_trains_an_adapter(capsys):
    example = Path(__file__).parents[2] / "examples" / "qwen3_vllm.yaml"
    assert main(["train", str(example), "--dry-run", "model.path=base"]) == 0
    told = capsys.readouterr().out
    assert "rank: 32" in told
    assert re.search(r"M parameters from base, [\d.]+ M trained", told)


def test_several_processes_train_no_adapter(folder, tmp_path):
    config = settings(TrainConfig, folder, tmp_path)
    with pytest.raises(ConfigError, match=r"model\.lora is set, expected null under torchrun"):
        make_learner(config, prepare(config), Processes(sharded=True))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model.lora", {"rnk": 4}, "did you mean 'rank'"),
        ("model.lora", {"targets": "q_proj"}, r"a list of layers' names, such as \[q_proj, v_proj\]"),
        ("model.lora", {"rank": 0}, "greater than or equal to 1"),
        ("rollout.vllm.weights", "ipc", r"rollout\.vllm\.weights is ipc, expected disk with model\.lora"),
    ],
)
def test_wrong_settings_are_told(folder, tmp_path, key, value, message):
    with pytest.raises(ConfigError, match=message):
        settings(TrainConfig, folder, tmp_path, **{key: value})
