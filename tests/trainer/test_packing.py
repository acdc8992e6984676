"""Packed, shared, micro-batched, chunked and checkpointed training against plain rows through the library's model."""

import json
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import Recorder, StopReason
from accredit.trainer.batch import collate, micro_batches, rows_of, weigh
from accredit.trainer.logprobs import HeadError, score
from accredit.trainer.loss import policy_loss
from accredit.trainer.packing import pack
from accredit.trainer.tree_attention import NAME, AttentionError

SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "pad_token_id": 0,
    "initializer_range": 0.4,  # large, so that attention is far from uniform
}
MODELS = {
    "llama, tied": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama, untied": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=False),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, tie_word_embeddings=True),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES),
    "mistral, window of 9": lambda: transformers.MistralConfig(**SIZES, sliding_window=9),
}


def made(config):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).double()


def trajectory(prompt, turns):
    recorder = Recorder()
    recorder.prompt(prompt)
    for decision, feedback in turns:
        recorder.decision(decision, np.full(len(decision), -4.0))
        recorder.feedback(feedback)
    return recorder.finish(1.0, StopReason.DONE)


def group_of(rng):
    """Two prompts, four members each, two of them a pair that parts in its second turn; and a row of its own."""

    def ids(count):
        return rng.integers(1, 61, count).tolist()

    trajectories = []
    for size in (23, 300):  # the longer prompt and a long answer reach over more than one block of queries
        prompt = ids(size)
        first = (ids(5), ids(7))
        trajectories += [
            trajectory(prompt, [first, (ids(4), ids(3))]),
            trajectory(prompt, [first, (ids(6), ids(2))]),
            trajectory(prompt, [(ids(3), ids(9)), (ids(2), ids(1))]),
            trajectory(prompt, [(ids(280), ids(2))]),
        ]
    return [*trajectories, trajectory(ids(4), [(ids(6), [])])]


def plain_gradient(model, rows):
    """Row by row, unpacked, over the model's own logits."""
    model.zero_grad()
    for row in rows:
        ids = torch.from_numpy(row.token_ids_T.astype(np.int64))[None]
        logprobs_TV = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
        targets = torch.from_numpy(row.targets_N)
        logprobs_N = logprobs_TV[targets - 1, ids[0, targets]]
        advantages_N = torch.from_numpy(row.advantages_N)
        loss_N, _ = policy_loss(logprobs_N, torch.from_numpy(row.logprobs_N), advantages_N, "unclipped")
        (loss_N * torch.from_numpy(row.weight_N)).sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


def packed_gradient(model, rows, most_tokens, block):
    model.zero_grad()
    for part in micro_batches(rows, most_tokens):
        batch = collate(part)
        logprobs_N, _ = score(model, batch, block)
        loss_N, _ = policy_loss(logprobs_N, batch.logprobs_N, batch.advantages_N, "unclipped")
        (loss_N * batch.weight_N).sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_training_has_the_gradient_of_plain_training(name, checkpointing):
    rng = np.random.default_rng(0)
    trajectories = group_of(rng)
    advantages = [np.where(t.credit_mask, rng.normal(size=len(t)), 0.0) for t in trajectories]
    rows = weigh(rows_of(trajectories, advantages), "token_mean")
    model = made(MODELS[name]()).train()
    expected = plain_gradient(model, rows)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for most_tokens, block in ((100_000, (1024, 8192)), (400, (7, 10)), (1, (1024, 13))):
        found = packed_gradient(model, rows, most_tokens, block)
        for weight, gradient in expected.items():
            # float64, but the library's norms and rotations round to float32 on the way
            torch.testing.assert_close(found[weight], gradient, atol=1e-6 * float(gradient.abs().max()), rtol=1e-5)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=7), min_size=1, max_size=12))
def test_a_packing_holds_every_prefix_once_and_every_row_as_a_path(rows):
    packing = pack([np.array(row, dtype=np.int32) for row in rows])
    assert len(packing.token_ids_T) == len({tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)})
    assert sum(packing.tree.lengths) == len(packing.token_ids_T)
    assert all(parent is None or parent < at for at, parent in enumerate(packing.tree.parents))
    for row, path in zip(rows, packing.paths, strict=True):
        assert packing.token_ids_T[path].tolist() == row
        assert packing.positions_T[path].tolist() == list(range(len(row)))


def test_a_decision_that_rows_share_is_scored_once_and_weighs_for_each():
    shared = ([7, 8], [9])
    pair = [trajectory([1, 2, 3], [shared, ([at], [])]) for at in (4, 5)]
    rows = rows_of(pair, [t.credit_mask.astype(float) for t in pair])
    batch = collate(rows)
    assert len(batch.labels_U) == 4
    assert batch.labels_N.tolist() == [7, 8, 4, 7, 8, 5]


def test_a_model_that_attends_along_trees_samples_as_before(tmp_path):
    model = made(MODELS["qwen3"]()).eval()
    ids = torch.randint(1, 61, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0
    with torch.no_grad():
        before = model(input_ids=ids, attention_mask=mask).logits
        score(model, collate(rows_of([trajectory([1], [([2], [])])], [np.array([0.0, 1.0])])))
        assert model.config._attn_implementation == NAME
        assert torch.equal(model(input_ids=ids, attention_mask=mask).logits[mask.bool()], before[mask.bool()])
    model.save_pretrained(tmp_path)
    assert NAME not in json.dumps(json.loads((tmp_path / "config.json").read_text()))


def test_models_that_would_be_miscomputed_are_refused():
    batch = collate(rows_of([trajectory([1], [([2], [])])], [np.array([0.0, 1.0])]))
    gemma = transformers.Gemma2Config(**SIZES, final_logit_softcapping=30.0)
    with pytest.raises(HeadError, match=r"Gemma2ForCausalLM has final_logit_softcapping=30\.0"):
        score(made(gemma), batch)
    capped = transformers.Gemma2Config(**SIZES, final_logit_softcapping=None, attn_logit_softcapping=50.0)
    with pytest.raises(AttentionError, match="Gemma2Attention soft-caps its scores"):
        score(made(capped), batch)
    mamba = transformers.MambaConfig(vocab_size=61, hidden_size=8, state_size=4, num_hidden_layers=1, time_step_rank=2)
    with pytest.raises(AttentionError, match="MambaForCausalLM does not take its attention"):
        score(made(mamba), batch)
