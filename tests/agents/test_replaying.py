"""Exact replay: the stored episode again to the byte, or the turn and the character where it parts."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from accredit.agents.replaying import Part, ReplayError, decisions_of, replay, text_of_turn
from accredit.agents.rollout import Episode, Limits, live, seeds_of
from accredit.agents.scripted import ScriptedPolicy
from accredit.agents.transformers import TransformersPolicy
from accredit.credit import Group, StopReason
from accredit.credit.traces import TraceReader, TraceWriter
from accredit.envs import Decision, Task, ToolEnv, load_env, tool


class Dice(ToolEnv):
    """Rolls a die on request."""

    max_turns = 4
    option_names = ("faces",)
    wrong = ""

    def tasks(self, rng):
        return [Task(f"roll {n}") for n in range(10)]

    def setup(self):
        self.state = {"sum": 0}

    @tool
    def roll(self) -> str:
        """Roll once."""
        self.state["sum"] += int(self.rng.integers(1, self.options.get("faces", 6) + 1))
        if self.wrong == "state":
            self.state["sum"] += 100
            return f"the die shows {self.state['sum'] - 100}"
        return f"the {'pie' if self.wrong == 'text' else 'die'} shows {self.state['sum']}"

    def reward(self):
        return self.state["sum"] / 4 + (self.wrong == "reward")

    def expert(self) -> Iterator[str]:
        while True:
            yield '<tool_call>{"name": "roll", "arguments": {}}</tool_call>'


class Wrong(Dice):
    pass


Wrong.__name__ = "Dice"  # the same environment by name, changed since


def lived(renderer, env=Dice, options=None, policy=None, limits=None):
    episode = Episode("ep-1", "g", seeds_of(7), seeds_of(8), seeds_of(9), options or {})
    return live([episode], policy or ScriptedPolicy(renderer), env, renderer, limits)[0]


def changed(fault):
    env = Wrong()
    env.wrong = fault
    return lambda: env


def test_a_stored_episode_lives_again_to_the_byte(renderer, tmp_path):
    trajectory = lived(renderer, options={"faces": 1000})
    TraceWriter(tmp_path).write(1, [Group((trajectory,))], None, renderer.token_bytes)
    stored = TraceReader(tmp_path).episode("ep-1").trajectory
    assert stored.options == {"faces": 1000}
    again = replay(stored, Dice, renderer)
    assert again.parting is None
    assert np.array_equal(again.trajectory.token_ids, trajectory.token_ids)
    assert again.trajectory.state_keys == trajectory.state_keys
    assert (again.trajectory.outcome, again.trajectory.stop) == (trajectory.outcome, trajectory.stop)


@pytest.mark.parametrize("name", ["Shop-v0", "Arithmetic-v0", "Chain-v0", "Symbols-v0"])
def test_the_catalogues_episodes_replay_exactly(name, renderer):
    for seed in range(3):
        episode = Episode(f"{name}-{seed}", "g", seed, seed + 1, seed + 2, {"split": "train"})
        (trajectory,) = live([episode], ScriptedPolicy(renderer), lambda: load_env(name), renderer)
        assert replay(trajectory, lambda: load_env(name), renderer).parting is None


def test_a_sampled_episode_that_was_cut_replays_exactly(renderer, model):
    for limits in (Limits(6, 900, turns=2), Limits(6, 250), Limits(6, 900, seconds=0.0)):
        trajectory = lived(renderer, policy=TransformersPolicy(model), limits=limits)
        assert replay(trajectory, Dice, renderer).parting is None


def test_the_turn_and_the_character_of_other_feedback_are_named_with_both_texts(renderer):
    parting = replay(lived(renderer), changed("text"), renderer).parting
    assert parting is not None
    assert (parting.turn, parting.part) == (0, Part.FEEDBACK)
    assert parting.stored[parting.character :].startswith("die shows")
    assert parting.found[parting.character :].startswith("pie shows")
    assert "turn 0" in parting.line() and "die shows" in parting.line() and "pie shows" in parting.line()


@pytest.mark.parametrize(("fault", "part", "turn"), [("state", Part.STATE, 0), ("reward", Part.REWARD, 3)])
def test_what_no_text_shows_is_compared_too(fault, part, turn, renderer):
    parting = replay(lived(renderer), changed(fault), renderer).parting
    assert parting is not None
    assert (parting.part, parting.turn) == (part, turn)


def test_other_luck_parts_where_it_first_speaks(renderer):
    trajectory = lived(renderer, options={"faces": 10**9})
    other = replace(trajectory, seeds={**trajectory.seeds, "luck": 1})
    parting = replay(other, Dice, renderer).parting
    assert parting is not None and parting.turn == 0
    assert "the die shows " in parting.stored[: parting.character]


def test_a_prompt_that_changed_is_found_before_anything_else(renderer):
    class Told(Dice):
        system = "Roll well."

    Told.__name__ = "Dice"
    parting = replay(lived(renderer), Told, renderer).parting
    assert parting is not None and (parting.turn, parting.part) == (-1, Part.PROMPT)


def test_what_was_not_stored_is_asked_for(renderer):
    trajectory = lived(renderer)
    with pytest.raises(ReplayError, match="the options of its reset was not stored"):
        replay(replace(trajectory, options=None), Dice, renderer)
    assert replay(replace(trajectory, options=None), Dice, renderer, options={}).parting is None
    with pytest.raises(ReplayError, match="the environment's seed was not stored"):
        replay(replace(trajectory, seeds={}), Dice, renderer)
    with pytest.raises(ReplayError, match="was lived in Dice, not in accredit/Chain-v0"):
        replay(trajectory, lambda: load_env("Chain-v0"), renderer)


def test_other_decisions_change_what_follows_and_nothing_before(renderer):
    trajectory = lived(renderer)
    decisions = decisions_of(trajectory)
    decisions[2] = Decision(np.array(renderer.encode("no more"), dtype=np.int32))
    again = replay(trajectory, Dice, renderer, decisions=decisions).trajectory
    assert again.turns == 3
    assert again.outcome is not None and trajectory.outcome is not None and again.outcome < trajectory.outcome
    assert text_of_turn(again, 1, renderer) == text_of_turn(trajectory, 1, renderer)
    assert text_of_turn(again, 2, renderer, decided=True).startswith("no more")


def test_what_once_failed_does_not_fail_without_the_decision_that_failed(renderer):
    class Fragile(Dice):
        @tool
        def roll(self) -> str:
            """Roll once."""
            self.state["sum"] += 1
            return "rolled"

        def reward(self):
            return float(self.state["sum"])

        def reply(self):
            raise RuntimeError("the environment broke")

        def expert(self):
            yield '<tool_call>{"name": "roll", "arguments": {}}</tool_call>'
            yield "words"

    trajectory = lived(renderer, Fragile)
    assert trajectory.outcome is None and trajectory.stop is StopReason.ENVIRONMENT_ERROR
    assert replay(trajectory, Fragile, renderer).parting is None
    again = replay(trajectory, Fragile, renderer, decisions=decisions_of(trajectory)[:1]).trajectory
    assert (again.outcome, again.stop, again.error) == (1.0, StopReason.TURN_LIMIT, None)
