import asyncio
from typing import NamedTuple

import numpy as np
import pytest
import torch

from accredit.agents.policy import Request, sampling_noise
from accredit.agents.transformers import TransformersPolicy

# float32 sums in another order: seen below 1e-5 on these sizes
TOLERANCE = 1e-4


def contexts(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(5, 250, length).astype(np.int32) for length in lengths]


def requests(ids, turn=0, limit=12, temperature=1.0, stop_ids=frozenset(range(2, 20))):
    return [
        Request(f"ep-{place}", context, turn, 100 + place, limit, stop_ids, temperature)
        for place, context in enumerate(ids)
    ]


class Sampled(NamedTuple):
    ids: np.ndarray
    logprobs: np.ndarray
    policy_version: int


def sample(policy, asked):
    decisions = asyncio.run(policy.sample(asked))
    return [Sampled(np.asarray(d.ids), np.asarray(d.logprobs), d.policy_version) for d in decisions]


def full_logprobs(model, context, ids):
    with torch.no_grad():
        logits_TV = model(torch.tensor(np.concatenate([context, ids]))[None].long()).logits[0].float()
    at = torch.arange(len(context) - 1, len(context) + len(ids) - 1)
    return logits_TV.log_softmax(-1)[at, torch.tensor(ids).long()].numpy()


def next_turn(ids, decisions):
    new = contexts([4 + place for place in range(len(ids))], seed=7)
    return [np.concatenate([c, d.ids, n]) for c, d, n in zip(ids, decisions, new, strict=True)]


def test_logprobs_are_those_of_a_full_forward_pass_in_every_turn(model):
    policy, ids = TransformersPolicy(model), contexts([9, 17, 3, 40])
    for turn in range(3):
        decisions = sample(policy, requests(ids, turn))
        for context, decision in zip(ids, decisions, strict=True):
            np.testing.assert_allclose(decision.logprobs, full_logprobs(model, context, decision.ids), atol=TOLERANCE)
        ids = next_turn(ids, decisions)


def test_an_episode_samples_the_same_alone_and_in_a_batch(model):
    ids = contexts([9, 17, 3, 40])
    together = sample(TransformersPolicy(model), requests(ids))
    for asked, expected in zip(requests(ids), together, strict=True):
        (alone,) = sample(TransformersPolicy(model), [asked])
        np.testing.assert_array_equal(alone.ids, expected.ids)


def test_a_prompt_shared_by_a_group_is_prefilled_once(model):
    seen = []
    hook = model.base_model.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    (context,) = contexts([30])
    sample(TransformersPolicy(model), requests([context] * 8, limit=1))
    hook.remove()
    assert seen[0] == (1, 30)


def test_later_turns_prefill_only_what_is_new(model):
    policy, ids = TransformersPolicy(model), contexts([9, 17])
    longer = next_turn(ids, sample(policy, requests(ids)))
    seen = []
    hook = model.base_model.register_forward_pre_hook(
        lambda _module, _args, kwargs: seen.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    sample(policy, requests(longer, turn=1, limit=1))
    hook.remove()
    # 4 and 5 new ids, and the decision's last id, which was never fed back
    assert seen[0] == (2, 6)


def test_a_context_that_does_not_extend_the_kept_one_is_read_anew(model):
    policy, ids = TransformersPolicy(model), contexts([20, 20])
    sample(policy, requests(ids))
    other = contexts([30, 30], seed=3)
    decisions = sample(policy, requests(other, turn=1))
    for context, decision in zip(other, decisions, strict=True):
        np.testing.assert_allclose(decision.logprobs, full_logprobs(model, context, decision.ids), atol=TOLERANCE)


def test_new_weights_drop_every_kept_key_and_value(model):
    policy, ids = TransformersPolicy(model), contexts([20, 11])
    longer = next_turn(ids, sample(policy, requests(ids)))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    policy.updated(4)
    decisions = sample(policy, requests(longer, turn=1))
    for context, decision in zip(longer, decisions, strict=True):
        assert decision.policy_version == 4
        np.testing.assert_allclose(decision.logprobs, full_logprobs(model, context, decision.ids), atol=TOLERANCE)


def test_temperature_changes_what_is_sampled_but_not_whose_logprobs_are_told(model):
    ids = contexts([20, 11, 5])
    greedy = sample(TransformersPolicy(model), requests(ids, temperature=0.0))
    hot = sample(TransformersPolicy(model), requests(ids, temperature=2.0))
    for context, decision in zip([*ids, *ids], [*greedy, *hot], strict=True):
        np.testing.assert_allclose(decision.logprobs, full_logprobs(model, context, decision.ids), atol=TOLERANCE)
    with torch.no_grad():
        logits = model(torch.tensor(ids[0])[None].long()).logits[0, -1]
    assert greedy[0].ids[0] == int(logits.argmax())


def test_a_decision_ends_with_a_stop_id_or_at_its_limit(model):
    decisions = sample(TransformersPolicy(model), requests(contexts([9] * 40), limit=15))
    stops = frozenset(range(2, 20))
    for decision in decisions:
        assert all(token not in stops for token in decision.ids[:-1])
        assert decision.ids[-1] in stops or len(decision.ids) == 15
    assert {len(decision.ids) == 15 for decision in decisions} == {True, False}


def test_samples_follow_the_distribution_of_the_model(model):
    (context,) = contexts([12])
    asked = [Request(f"e{i}", context, 0, i, 1, frozenset(), 1.0) for i in range(4000)]
    drawn = np.array([decision.ids[0] for decision in sample(TransformersPolicy(model), asked)])
    with torch.no_grad():
        expected = model(torch.tensor(context)[None].long()).logits[0, -1].softmax(-1).numpy()
    likeliest = np.argsort(-expected)[:5]
    shares = np.array([(drawn == token).mean() for token in likeliest])
    # four standard errors of a share out of 4000 draws
    np.testing.assert_allclose(shares, expected[likeliest], atol=4 * 0.5 / np.sqrt(4000))


def test_noise_belongs_to_the_seed_and_the_turn():
    assert np.array_equal(sampling_noise(5, 1, 10), sampling_noise(5, 1, 10))
    assert not np.array_equal(sampling_noise(5, 1, 10), sampling_noise(5, 2, 10))
    assert not np.array_equal(sampling_noise(5, 1, 10), sampling_noise(6, 1, 10))
    assert np.array_equal(sampling_noise(5, 1, 10), sampling_noise(5, 1, 30)[:10])


def test_a_request_without_room_is_refused(model):
    with pytest.raises(ValueError, match="limit of 0"):
        sample(TransformersPolicy(model), requests(contexts([5]), limit=0))
