"""Pairs: a branch is its base up to one decision, lives under the same luck, and says so when it could not."""

import time

import numpy as np
import pytest

from accredit.agents.branch import Branch, fork_pairs, live_branches
from accredit.agents.policy import Request
from accredit.agents.replaying import decisions_of
from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.transformers import TransformersPolicy
from accredit.credit import StopReason
from accredit.envs import Task, ToolEnv


class Talk(ToolEnv):
    """Answers every message with its length and a coin; five turns."""

    max_turns = 5

    def tasks(self, rng):
        return [Task(f"talk about {n}", answer=n) for n in range(10)]

    def setup(self):
        self.state = {"said": [], "coins": []}

    def reply(self):
        self.state["said"].append(len(self.answer) % 16)
        self.state["coins"].append(int(self.rng.integers(2)))
        return f"{self.state['said'][-1]} {self.state['coins'][-1]}"

    def reward(self):
        return sum(self.state["said"]) / 16 + sum(self.state["coins"])


class Clock(Talk):
    """Says what no seed decides."""

    def reply(self):
        return f"{super().reply()} {time.perf_counter_ns()}"


LIMITS = Limits(6, 900)


def episodes(count, group_size=2):
    return [
        Episode(f"ep-{i}", f"g-{i // group_size}", seeds_of(0, i // group_size), seeds_of(1, i), seeds_of(2, i))
        for i in range(count)
    ]


def coins(trajectory, renderer):
    said = [renderer.text(trajectory.token_ids[s.start : s.end]) for s in trajectory.spans if s.kind == "feedback"]
    return [text.split()[-1] for text in said]


@pytest.fixture
def pairs(renderer, model):
    return fork_pairs(episodes(6), TransformersPolicy(model), Talk, renderer, LIMITS)


def test_a_branch_is_its_base_up_to_the_forked_turn_and_decides_that_turn_anew(pairs):
    for base, fork in pairs:
        turn = base.seeds["fork_turn"]
        start = next(span.start for span in base.decisions if span.turn == turn)
        assert np.array_equal(base.token_ids[:start], fork.token_ids[:start])
        assert not np.array_equal(decisions_of(base)[turn].ids, decisions_of(fork)[turn].ids)
        assert np.array_equal(base.logprobs[:start], fork.logprobs[:start], equal_nan=True)


def test_both_members_note_the_turn_and_the_number_of_their_pair(pairs):
    for index, (base, fork) in enumerate(pairs):
        for name in ("fork_turn", "pair", "environment", "luck", "sampler"):
            assert base.seeds[name] == fork.seeds[name]
        assert base.group == fork.group == f"g-{index // 2}"
        assert base.seeds["pair"] == index % 2
        assert (base.episode_id, fork.episode_id) == (f"ep-{index}", f"ep-{index}-fork")
        assert 0 <= base.seeds["fork_turn"] < base.turns
        assert fork.outcome is not None
    assert len({base.seeds["fork_turn"] for base, _ in pairs}) > 1


def test_both_members_of_a_pair_have_the_same_luck(pairs, renderer):
    for base, fork in pairs:
        assert coins(base, renderer) == coins(fork, renderer)
    assert len({tuple(coins(base, renderer)) for base, _ in pairs}) > 1


def test_every_other_turn_keeps_its_sampling_noise(renderer, model):
    class Spy(TransformersPolicy):
        async def sample(self, requests):
            self.asked += requests
            return await super().sample(requests)

        asked: list[Request]

    spy = Spy(model)
    spy.asked = []
    ((base, fork),) = fork_pairs(episodes(1), spy, Talk, renderer, LIMITS)
    turn = base.seeds["fork_turn"]
    of_fork = {request.turn: request.seed for request in spy.asked if request.episode_id == fork.episode_id}
    assert of_fork[turn] == fork.seeds["fork_sampler"] != base.seeds["sampler"]
    assert {of_fork[later] for later in of_fork if later != turn} <= {base.seeds["sampler"]}
    assert min(of_fork) == turn  # what came before was not sampled again


def test_a_branch_with_the_bases_own_seed_is_the_base(renderer, model):
    (base,) = live(episodes(1), TransformersPolicy(model), Talk, renderer, LIMITS)
    for turn in range(base.turns):
        branch = Branch(episodes(1)[0], base, turn, base.seeds["sampler"])
        (fork,) = live_branches([branch], TransformersPolicy(model), Talk, renderer, LIMITS)
        assert np.array_equal(base.token_ids, fork.token_ids)
        assert base.outcome == fork.outcome


def test_a_branch_of_a_branch_keeps_the_noise_of_the_turn_that_was_decided_anew_before(renderer, model):
    (base,) = live(episodes(1), TransformersPolicy(model), Talk, renderer, LIMITS)
    branch = Branch(episodes(1)[0], base, 3, 77)
    (fork,) = live_branches([branch], TransformersPolicy(model), Talk, renderer, LIMITS)
    assert not np.array_equal(base.token_ids, fork.token_ids)
    again = Branch(episodes(1)[0], fork, 1, base.seeds["sampler"])  # turn 1 as it was: nothing changes
    (same,) = live_branches([again], TransformersPolicy(model), Talk, renderer, LIMITS)
    assert np.array_equal(fork.token_ids, same.token_ids)


def test_an_environment_that_cannot_be_replayed_gives_an_unscored_branch_that_says_where(renderer, model):
    for base, fork in fork_pairs(episodes(4), TransformersPolicy(model), Clock, renderer, LIMITS):
        turn = base.seeds["fork_turn"]
        if turn == 0:
            assert fork.outcome is not None  # nothing had to be repeated
            continue
        assert fork.outcome is None and fork.stop is StopReason.ENVIRONMENT_ERROR
        assert f"the decisions of episode '{base.episode_id}' otherwise before turn 1" in (fork.error or "")


def test_an_episode_that_could_not_start_has_an_unscored_branch(renderer, model):
    class Broken(Talk):
        def setup(self):
            raise RuntimeError("no setup today")

    ((base, fork),) = fork_pairs(episodes(1), TransformersPolicy(model), Broken, renderer, LIMITS)
    assert base.outcome is None and fork.outcome is None
    assert base.seeds["fork_turn"] == fork.seeds["fork_turn"] == 0
    assert base.seeds["pair"] == fork.seeds["pair"] == 0


def test_hidden_randomness_makes_a_branch_unscored_though_no_word_differs(renderer, model):
    class Hidden(Talk):
        def reply(self):
            said = super().reply()
            self.state["coins"].append(time.perf_counter_ns())
            return said

        def reward(self):
            return sum(self.state["said"]) / 16

    for base, fork in fork_pairs(episodes(4), TransformersPolicy(model), Hidden, renderer, LIMITS):
        assert (fork.outcome is None) == (base.seeds["fork_turn"] > 0)
        assert fork.outcome is not None or "otherwise before turn 1" in (fork.error or "")


@pytest.mark.parametrize("turn", [-1, 5])
def test_a_turn_that_the_base_does_not_have_is_refused(renderer, model, turn):
    (base,) = live(episodes(1), TransformersPolicy(model), Talk, renderer, LIMITS)
    with pytest.raises(ValueError, match=f"turn {turn} anew, but its base 'ep-0' has 5 turns"):
        live_branches([Branch(episodes(1)[0], base, turn, 1)], TransformersPolicy(model), Talk, renderer, LIMITS)
