"""Engines that this process starts: parity through updates, the guard, seeds, settings, and death."""

import multiprocessing
import os
import time

import numpy as np
import pytest
import torch

from accredit.agents.models import load_model
from accredit.agents.policy import EngineError
from accredit.agents.vllm.options import VLLMOptions
from accredit.agents.vllm.parity import ParityError
from accredit.agents.vllm.policy import VLLMPolicy

pytestmark = pytest.mark.timeout(900)  # engines start, several times slower on a machine that is busy

# float32 sums in another order: seen below 2e-5
TOLERANCE = 1e-4

OPTIONS = VLLMOptions(context_tokens=512, request_s=120)


@pytest.fixture(scope="module")
def started(loaded):
    torch.manual_seed(0)
    before = dict(os.environ)
    policy = VLLMPolicy(loaded.model, OPTIONS)
    yield policy, before, dict(os.environ)
    policy.close()


@pytest.fixture
def policy(started, loaded):
    policy, _, _ = started
    yield policy
    policy.updated(policy.version)  # whatever a test did to the weights


def test_logprobs_are_the_models_before_and_after_three_updates(policy, loaded, requests, sample, largest_gap, step):
    first = policy.version
    for version in range(first, first + 4):
        if version > first:
            step(loaded.model)
            metrics = policy.updated(version)
            assert metrics["engine/parity_gap_nats"] < TOLERANCE
        asked = requests()  # the same contexts, so that a prefix cache that outlives an update shows
        decisions = sample(policy, asked)
        assert largest_gap(loaded.model, asked, decisions) < TOLERANCE
        assert {decision.policy_version for decision in decisions} == {version}


def test_weights_that_the_engine_did_not_get_are_found(policy, loaded, step):
    policy.check()
    step(loaded.model, 0.002)
    with pytest.raises(ParityError, match=r"largest gap .* nats .* tolerance 0\.001"):
        policy.check()
    policy.updated(policy.version + 1)
    policy.check()


def test_equal_seeds_sample_equal_tokens_and_every_turn_has_a_seed_of_its_own(policy, requests, sample):
    first, again, other = (sample(policy, requests(turn=turn)) for turn in (0, 0, 1))
    for one, two, three in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(one.ids, two.ids)
        assert not np.array_equal(one.ids, three.ids)


def test_a_decision_ends_with_its_stop_id_or_at_its_limit(policy, requests, sample):
    stops = frozenset(range(0, 1024, 2))
    for decision in sample(policy, requests(stop_ids=stops)):
        assert all(token not in stops for token in decision.ids[:-1])
        assert decision.ids[-1] in stops or len(decision.ids) == 12
    assert [len(decision.ids) for decision in sample(policy, requests(limit=3, stop_ids=frozenset()))] == [3] * 4


@pytest.mark.parametrize("temperature", [0.0, 0.5, 2.0])
def test_logprobs_are_the_policys_at_temperature_1_whatever_the_sampler_has(
    policy, loaded, temperature, requests, sample, largest_gap
):
    asked = requests(temperature=temperature)
    assert largest_gap(loaded.model, asked, sample(policy, asked)) < TOLERANCE


def test_a_request_that_does_not_fit_is_an_error_of_its_own(policy, requests, sample):
    with pytest.raises(EngineError, match="512"):
        sample(policy, [*requests(1), *requests(1, limit=500, start=200)])
    sample(policy, requests(1))


def test_starting_an_engine_leaves_the_environment_as_it_was(started):
    _, before, after = started
    assert after == before


@pytest.mark.parametrize(
    "argument",
    [{"logprobs_mode": "processed_logprobs"}, {"generation_config": "auto"}, {"logits_processors": []}, {"dtype": "x"}],
)
def test_settings_that_make_another_policy_are_refused(loaded, argument):
    with pytest.raises(EngineError, match=next(iter(argument))):
        VLLMPolicy(loaded.model, VLLMOptions(engine_args=argument))


def test_a_lost_replica_leaves_its_episodes_to_the_others(requests, sample, largest_gap, step, untie):
    torch.manual_seed(2)
    model = untie(load_model("base").model)
    before = set(multiprocessing.active_children())
    policy = VLLMPolicy(model, VLLMOptions(context_tokens=512, replicas=2, request_s=120))
    try:
        cores = sorted(set(multiprocessing.active_children()) - before, key=lambda process: process.pid or 0)
        assert len(cores) == 2
        for version in range(1, 4):
            step(model)
            assert policy.updated(version)["engine/replicas"] == 2
            asked = requests()
            assert largest_gap(model, asked, sample(policy, asked)) < TOLERANCE
        assert {replica.name for replica in policy._routes.values()} == {"replica 0", "replica 1"}
        cores[0].kill()
        asked = requests(8)
        assert largest_gap(model, asked, sample(policy, asked)) < TOLERANCE
        step(model)
        assert policy.updated(4)["engine/replicas"] == 1
        cores[1].kill()
        began = time.monotonic()
        with pytest.raises(EngineError, match=r"died.*no replica is left"):
            sample(policy, requests())
        with pytest.raises(EngineError, match="no replica is left"):
            policy.updated(5)
        assert time.monotonic() - began < 60  # no wait for request_s
    finally:
        policy.close()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, whose memory is shared")
def test_weights_arrive_through_memory_of_the_gpu(requests, sample, largest_gap, step):
    model = load_model("base", device="cuda").model
    policy = VLLMPolicy(model, VLLMOptions(context_tokens=512, weights="ipc", gpu_memory=0.2))
    try:
        for version in range(1, 4):
            step(model)
            policy.updated(version)
            asked = requests()
            assert largest_gap(model, asked, sample(policy, asked)) < 1e-3  # attention kernels of the GPU
    finally:
        policy.close()
