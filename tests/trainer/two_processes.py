"""Run by torchrun in test_distributed: an update of shards, beside the update of one process; facts go to argv[1]."""

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.transformers import TransformersPolicy
from accredit.envs import load_env, tinytokenizers
from accredit.envs.chatml import ChatMLRenderer
from accredit.trainer.config import LossConfig, OptimizerConfig
from accredit.trainer.distributed import Processes, processes_of
from accredit.trainer.distributed_weights import ShardedAdamW, ShardedModel
from accredit.trainer.setup import make_optimizer
from accredit.trainer.signals import TokenSignals
from accredit.trainer.update import Updater

RENDERER = ChatMLRenderer(tinytokenizers.byte_level(), "signature")


def model(dtype):
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=RENDERER.vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(shape).to(dtype)


def priced(count):
    options = {"level": "easy", "split": "train"}
    episodes = [
        Episode(f"ep-{i}", f"g-{i // 4}", seeds_of(0, i // 4), seeds_of(1, i), seeds_of(2, i), options)
        for i in range(count)
    ]
    policy = TransformersPolicy(model(torch.float32))
    lived = live(episodes, policy, lambda: load_env("Shop-v0"), RENDERER, Limits(12, 1200, turns=2))
    rng = np.random.default_rng(0)
    return lived, [trajectory.credit_mask * rng.normal(size=len(trajectory)) for trajectory in lived]


def gap(these, those):
    return max(float((a.detach().float() - b.detach().float()).abs().max()) for a, b in zip(these, those, strict=True))


def compare(company: Processes, trajectories, advantages, dtype, loss, optimizer):
    """Make the same updates with a whole model and with shards; return how far apart they end."""
    settings = LossConfig(**loss), OptimizerConfig(**optimizer)
    whole, start = model(dtype), model(dtype)
    if settings[1].gradient_checkpointing:
        whole.gradient_checkpointing_enable({"use_reentrant": False})
    one = copy.deepcopy(whole)
    plain = make_optimizer(one, settings[1])
    seen_alone, seen_together = TokenSignals(trajectories), TokenSignals(trajectories)
    alone = Updater(one, plain, *settings).update(trajectories, advantages, settings[1].lr, 0, signals=seen_alone)
    reference = ShardedModel(whole, trains=False)
    sharded = ShardedModel(whole)
    adam = ShardedAdamW(sharded, whole, lr=settings[1].lr, betas=settings[1].betas, weight_decay=0.0)
    split = Updater(sharded, adam, *settings, company, reference if settings[0].kl > 0 else None)
    together = split.update(trajectories, advantages, settings[1].lr, 0, signals=seen_together)
    sharded.write_to(whole)
    gradients: list[Any] = [shard.grad for shard in sharded.parameters()]
    state = adam.state_dict()
    facts = {
        "alone": alone,
        "together": together,
        "signals": [
            [np.nan_to_num(values_T, nan=9.0).tolist() for columns in seen.columns for values_T in columns.values()]
            for seen in (seen_alone, seen_together)
        ],
        "weights": gap(one.parameters(), whole.parameters()),
        "moved": gap(one.parameters(), start.parameters()),
        "share": sum(grad.to_local().numel() for grad in gradients) / sum(w.numel() for w in whole.parameters()),
    }
    whole_gradients: list[Any] = [weight.grad for weight in one.parameters()]
    gradient_pairs = [(shard.full_tensor(), grad) for shard, grad in zip(gradients, whole_gradients, strict=True)]
    if dtype is torch.float32:
        facts["gradient"] = max(float((a - b).abs().max() / b.abs().max()) for a, b in gradient_pairs)
    # what was gathered resumes one process, and what one process has resumes the shards
    if company.first:
        again = make_optimizer(copy.deepcopy(whole), settings[1])
        again.load_state_dict(state)
        mine, theirs = again.state_dict()["state"], state["state"]
        facts["resumed"] = max(gap([mine[n]["exp_avg_sq"]], [theirs[n]["exp_avg_sq"]]) for n in mine)
    adam_again = ShardedAdamW(ShardedModel(one), one, lr=1e-3)
    adam_again.load_state_dict(plain.state_dict())
    found, expected = adam_again.state_dict(), plain.state_dict()
    if company.first:
        facts["reshared"] = gap(
            [found["state"][n]["exp_avg"] for n in found["state"]],
            [expected["state"][n]["exp_avg"] for n in expected["state"]],
        )
        if "masters" in expected:
            facts["masters"] = gap(found["masters"], expected["masters"])
    return facts


def main(where):
    with processes_of("cpu") as company:
        lived, advantages = priced(8)
        firm = {"lr": 1e-2, "grad_clip": 0.5}
        cases = [
            ("whole", lived, advantages, torch.float32, {}, firm),
            (
                "many",
                lived,
                advantages,
                torch.float32,
                {"kl": 0.1, "entropy": 0.01, "aggregation": "sequence_mean"},
                {**firm, "minibatches": 2, "epochs": 2, "micro_tokens": 600, "gradient_checkpointing": True},
            ),
            ("idle", lived[:1], advantages[:1], torch.float32, {"kl": 0.1}, firm),
            ("sixteen", lived, advantages, torch.bfloat16, {}, firm),
        ]
        facts = {name: compare(company, *case) for name, *case in cases}
        if company.first:
            Path(where).write_text(json.dumps(facts))


if __name__ == "__main__":
    main(sys.argv[1])
