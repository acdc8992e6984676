"""A rollout that goes on after a kill: ended episodes are not lived again, and the others come out to the same bits."""

import numpy as np
import pytest

from accredit.agents.branch import fork_pairs
from accredit.agents.models import load_model
from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.transformers import TransformersPolicy
from accredit.envs import load_env


@pytest.fixture(scope="module")
def base():
    return load_model("base")


@pytest.fixture
def rollout(base):
    made = []

    def make_env():
        made.append(1)
        return load_env("Shop-v0")

    options = {"level": "easy", "split": "train"}
    episodes = [Episode(f"e{i}", f"g{i // 3}", seeds_of(0, i // 3), i, seeds_of(1, i), options) for i in range(6)]
    limits = Limits(32, 1500)

    def run(way=live, **more):
        made.clear()
        policy = TransformersPolicy(base.model)
        return way(episodes, policy, make_env, base.renderer, limits, **more), len(made)

    return run


def same(one, other):
    return (
        np.array_equal(one.token_ids, other.token_ids)
        and one.logprobs.tobytes() == other.logprobs.tobytes()
        and one.reward == other.reward
    )


@pytest.mark.parametrize("kept", [(0,), (5, 2), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5)])
def test_the_others_come_out_to_the_same_bits_and_only_they_are_lived(rollout, kept):
    whole, _ = rollout()
    heard = []
    again, lived = rollout(ended={f"e{i}": whole[i] for i in kept}, on_done=heard.append)
    assert all(same(one, other) for one, other in zip(whole, again, strict=True))
    assert lived == len(heard) == 6 - len(kept)
    assert all(again[i] is whole[i] for i in kept)


def test_every_batch_has_the_rows_that_it_had(rollout, monkeypatch):
    """Whether a row's last bits depend on its neighbours is the machine's; that it has the same ones is ours."""
    batches = []
    sample = TransformersPolicy.sample

    def noted(self, requests):
        batches.append([(one.episode_id, one.turn, one.token_ids.tolist()) for one in requests])
        return sample(self, requests)

    monkeypatch.setattr(TransformersPolicy, "sample", noted)
    whole, _ = rollout()
    first, batches[:] = list(batches), []
    rollout(ended={f"e{i}": whole[i] for i in range(5)})
    assert batches == first


def test_pairs_go_on_in_either_half(rollout):
    ended = {}
    whole, lived = rollout(fork_pairs, on_done=lambda t: ended.__setitem__(t.episode_id, t))
    assert lived == 12
    for kept in (["e1", "e4"], ["e0", "e1", "e2", "e3", "e4", "e5", "e3-fork"]):
        again, lived = rollout(fork_pairs, ended={name: ended[name] for name in kept})
        assert lived == 12 - len(kept)
        for pair, other in zip(whole, again, strict=True):
            assert all(same(one, two) and one.seeds == two.seeds for one, two in zip(pair, other, strict=True))
