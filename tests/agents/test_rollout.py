import asyncio
import time

import numpy as np
import pytest

from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.scripted import ScriptedPolicy
from accredit.agents.transformers import TransformersPolicy
from accredit.credit import CallStatus, StopReason
from accredit.envs import InfrastructureError, Task, ToolEnv, load_env, tool


class Counter(ToolEnv):
    """Counts to a number; each member of the rollout can be told to fail in its own way."""

    max_turns = 5
    fault = ""

    def tasks(self, rng):
        return [Task(f"count to {n}", answer=n) for n in range(1, 11)]

    def setup(self):
        if self.fault == "setup":
            raise RuntimeError("no setup today")
        self.state = {"count": 0}

    @tool
    def up(self) -> int:
        """Count one up."""
        if self.fault == "slow":
            time.sleep(float(self.rng.random()) * 0.05)
        if self.fault == "machine":
            raise InfrastructureError("the counter's machine is down")
        self.state["count"] += 1
        return self.state["count"]

    def reward(self) -> float:
        if self.fault == "reward":
            raise RuntimeError("no reward today")
        return float(self.state["count"] >= 2)

    def expert(self):
        for _ in range(2):
            yield '<tool_call>{"name": "up", "arguments": {}}</tool_call>'
        yield "done"


def episodes(count, group_size=1):
    return [
        Episode(f"ep-{i}", f"g-{i // group_size}", seeds_of(0, i // group_size), seeds_of(1, i), seeds_of(2, i))
        for i in range(count)
    ]


def with_fault(fault):
    def make():
        env = Counter()
        env.fault = fault
        return env

    return make


def talk(env):
    while True:
        yield '<tool_call>{"name": "up", "arguments": {}}</tool_call>'


def test_the_expert_reaches_full_reward(renderer):
    lived = live(episodes(4), ScriptedPolicy(renderer), Counter, renderer)
    assert [t.reward for t in lived] == [1.0] * 4
    assert [t.episode_id for t in lived] == ["ep-0", "ep-1", "ep-2", "ep-3"]
    assert all(t.stop is StopReason.DONE and t.turns == 3 for t in lived)
    assert all(len(t.policy_versions) == 3 and t.turn_seconds is not None for t in lived)


def test_a_rollout_runs_where_an_event_loop_runs_already_as_in_a_notebook(renderer):
    async def cell():
        return live(episodes(4), ScriptedPolicy(renderer), Counter, renderer)

    assert [t.reward for t in asyncio.run(cell())] == [1.0] * 4


def test_members_of_a_group_get_one_task_and_their_own_noise(renderer, model):
    lived = live(episodes(6, group_size=3), TransformersPolicy(model), Counter, renderer, Limits(8, 400))
    assert len({t.task_id for t in lived[:3]}) == 1
    assert len({t.token_ids.tobytes() for t in lived[:3]}) == 3
    assert lived[0].seeds["environment"] == lived[1].seeds["environment"]
    assert lived[0].seeds["sampler"] != lived[1].seeds["sampler"]


def test_the_order_of_completion_changes_no_result(renderer, model):
    calm = live(episodes(6), TransformersPolicy(model), Counter, renderer, Limits(8, 400))
    hurried = live(episodes(6), TransformersPolicy(model), with_fault("slow"), renderer, Limits(8, 400), workers=3)
    for one, other in zip(calm, hurried, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        np.testing.assert_array_equal(one.logprobs, other.logprobs)


@pytest.mark.parametrize(
    ("fault", "stop"),
    [
        ("setup", StopReason.ENVIRONMENT_ERROR),
        ("reward", StopReason.ENVIRONMENT_ERROR),
        ("machine", StopReason.INFRASTRUCTURE),
    ],
)
def test_a_failing_episode_is_data_and_its_neighbours_go_on(renderer, fault, stop):
    made = []

    def make():
        made.append(with_fault(fault if len(made) in (1, 3) else "")())  # the fourth is the second's second attempt
        return made[-1]

    lived = live(episodes(3), ScriptedPolicy(renderer), make, renderer, workers=1)
    assert len(made) == (4 if stop is StopReason.INFRASTRUCTURE else 3)
    failed = [t for t in lived if t.stop is stop]
    assert len(failed) == 1
    assert failed[0].outcome is None
    assert not failed[0].charges
    if stop is StopReason.ENVIRONMENT_ERROR:
        assert "no " + fault in (failed[0].error or "")
    else:
        assert failed[0].calls[-1].status is CallStatus.INFRASTRUCTURE
    assert sorted(t.reward for t in lived if t.reward is not None) == [1.0, 1.0]


def test_an_episode_under_which_a_machine_failed_is_lived_again_from_its_seeds(renderer, model):
    made, faults = [], []

    def make():
        made.append(with_fault("machine" if len(made) == 1 else "")())
        return made[-1]

    how = {"workers": 1, "on_fault": faults.append}
    (expert,) = live(episodes(1), ScriptedPolicy(renderer), lambda: with_fault("machine")(), renderer, **how)
    assert (len(faults), expert.outcome, expert.stop) == (2, None, StopReason.INFRASTRUCTURE)
    faults.clear()
    again = live(episodes(3), ScriptedPolicy(renderer), make, renderer, **how)
    calm = live(episodes(3), ScriptedPolicy(renderer), Counter, renderer)
    assert [fault.episode_id for fault in faults] == ["ep-1"]
    for one, other in zip(calm, again, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
        assert (one.reward, one.stop, one.charges) == (other.reward, other.stop, other.charges)


def test_limits_end_an_episode_with_their_name_and_it_is_scored(renderer):
    policy = ScriptedPolicy(renderer, talk)
    for limits, stop in [
        (Limits(turns=2), StopReason.TURN_LIMIT),
        (Limits(calls=3), StopReason.CALL_LIMIT),
        (Limits(episode_tokens=150), StopReason.TOKEN_LIMIT),
        (Limits(seconds=0.0), StopReason.TIME_LIMIT),
    ]:
        (lived,) = live(episodes(1), policy, Counter, renderer, limits)
        assert lived.stop is stop
        assert lived.outcome is not None
    (own,) = live(episodes(1), policy, Counter, renderer)
    assert own.stop is StopReason.TURN_LIMIT
    assert own.turns == 5


def test_seconds_are_those_of_the_environment_and_a_slow_engine_cuts_nothing(renderer):
    """Else what an episode earns would hang on the machine, and nobody would hear of it."""

    class Slow(ScriptedPolicy):
        async def sample(self, requests):
            await asyncio.sleep(0.3)
            return await super().sample(requests)

    class SlowCounter(Counter):
        def setup(self):
            super().setup()
            time.sleep(0.3)

    (patient,) = live(episodes(1), Slow(renderer, talk), Counter, renderer, Limits(seconds=0.25))
    assert patient.stop is StopReason.TURN_LIMIT
    (cut,) = live(episodes(1), ScriptedPolicy(renderer, talk), SlowCounter, renderer, Limits(seconds=0.25))
    assert cut.stop is StopReason.TIME_LIMIT


def test_an_engine_that_fails_raises(renderer):
    class Broken(ScriptedPolicy):
        async def sample(self, requests):
            raise MemoryError("no room for the batch")

    with pytest.raises(MemoryError, match="no room"):
        live(episodes(3), Broken(renderer), Counter, renderer)


def test_episode_ids_must_differ(renderer):
    with pytest.raises(ValueError, match="must differ"):
        live([episodes(1)[0]] * 2, ScriptedPolicy(renderer), Counter, renderer)


def test_rollouts_in_parts_are_the_rollouts_at_once(renderer):
    at_once = live(episodes(5), ScriptedPolicy(renderer), lambda: load_env("Arithmetic-v0"), renderer)
    in_parts = live(episodes(5), ScriptedPolicy(renderer), lambda: load_env("Arithmetic-v0"), renderer, at_once=2)
    for one, other in zip(at_once, in_parts, strict=True):
        np.testing.assert_array_equal(one.token_ids, other.token_ids)
