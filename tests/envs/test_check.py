"""The checker: a sound environment passes every check, and for each check a broken one is caught."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from accredit.envs import EnvError, Message, Task, ToolEnv, ToolError, check_env, tool
from accredit.envs.check import check_names
from accredit.envs.results import CharCharge
from accredit.envs.subject import example_of, write_call
from accredit.envs.tools import Tool

STORE: dict[str, int] = {}
SHARED: dict[str, list[int]] = {"log": []}


class Sound(ToolEnv):
    """Ask for a secret number and say it."""

    levels = ("low", "high")
    max_turns = 4

    def draw_task(self, rng):
        return Task(f"Find number {int(rng.integers(10**6))}.")

    def setup(self) -> None:
        self.state = {"secret": int(self.rng.integers(10, 10 ** (3 if self.level == "low" else 6))), "log": []}

    @tool(output_limit=200)
    def look(self, where: str = "here", near: int = 1) -> dict[str, Any]:
        """Look for the number."""
        self.state["log"].append(near)
        return {"number": self.state["secret"], "luck": int(self.rng.integers(1000)), "where": where[:20]}

    def reward(self) -> float:
        return float(bool(self.state["log"]) and self.answer == str(self.state["secret"]))

    def expert(self) -> Iterator[str]:
        yield '<tool_call>{"name": "look", "arguments": {"where": "here"}}</tool_call>'
        yield str(self.state["secret"])


def failed(env: Any, **options: Any) -> dict[str, str]:
    return {result.name: result.evidence for result in check_env(env, **options) if result.passed is False}


def test_a_sound_environment_passes_every_check():
    results = check_env(Sound)
    assert [(r.name, r.evidence) for r in results if r.passed is False] == []
    assert [r.name for r in results if r.passed is None] in ([], ["processes"])
    assert tuple(r.name for r in results) == check_names()
    assert all(r.evidence for r in results)


class ClockSeeded(Sound):
    def setup(self) -> None:
        super().setup()
        self.state["secret"] = int(np.random.default_rng().integers(10**9))


class ClassCounter(Sound):
    episodes = 0

    def setup(self) -> None:
        super().setup()
        type(self).episodes += 1
        self.state["secret"] = type(self).episodes


class GlobalStore(Sound):
    def setup(self) -> None:
        super().setup()
        STORE.clear()

    @tool
    def look(self, where: str = "here", near: int = 1) -> dict[str, Any]:
        """Look, and remember in a module's global."""
        STORE["seen"] = STORE.get("seen", 0) + 1
        self.state["log"].append(near)
        return {"number": self.state["secret"], "seen": STORE["seen"]}


class AliasedState(Sound):
    def setup(self) -> None:
        super().setup()
        self.state["log"] = SHARED["log"]


class ReadsGlobalRandom(Sound):
    @tool
    def look(self, where: str = "here", near: int = 1) -> dict[str, Any]:
        """Look with the process's randomness."""
        self.state["log"].append(near)
        return {"number": self.state["secret"], "luck": random.getstate()[1][5]}


class WritesGlobalRandom(Sound):
    def setup(self) -> None:
        np.random.seed(0)
        super().setup()


class NoKey(Sound):
    def state_key(self) -> None:
        return None


class CountingKey(Sound):
    asked = 0

    def state_key(self) -> str:
        self.asked += 1
        return str(self.asked)


class DrawingKey(Sound):
    def state_key(self) -> str | None:
        self.rng.integers(10)
        return super().state_key()


class ShallowFork(Sound):
    shared = ("state",)


class ForgetfulFork(Sound):
    def fork(self, seed: int | None = None) -> Any:
        clone = super().fork(seed)
        clone.rng = np.random.default_rng(seed)
        return clone


class UnsafeFork(Sound):
    def setup(self) -> None:
        super().setup()
        self.steps = iter(range(100))
        self.handle = (step for step in self.steps)


class OneSplit(Sound):
    own_splits = True

    def draw_task(self, rng):
        return Task(f"Find number {int(rng.integers(3))}.")


class RenamedTasks(Sound):
    """The same tasks under ever new ids."""

    def draw_task(self, rng):
        return Task(f"Find number {int(rng.integers(3))}.", id=str(rng.integers(10**9)))


class Generous(Sound):
    def reward(self) -> float:
        return 1.0


class BadExpert(Sound):
    def expert(self) -> Iterator[str]:
        yield "I guess."


class CarelessExpert(Sound):
    def expert(self) -> Iterator[str]:
        yield '<tool_call>{"name": "lok", "arguments": {}}</tool_call>'
        yield from super().expert()


class StepShouts(Sound):
    def step(self, action: str):  # pyright: ignore
        messages, *rest = super().step(action)
        return (tuple(Message(m.role, m.content + "!" * 5000, m.name, m.call_id) for m in messages), *rest)


class StepRaises(Sound):
    def step(self, action: str):
        if "no_such_argument" in action:
            raise KeyError("no_such_argument")
        return super().step(action)


class Traces(Sound):
    @tool
    def look(self, where: str = "here", near: int = 1) -> str:  # pyright: ignore
        """Fail with a trace."""
        if where != "here":
            raise ToolError('Traceback (most recent call last):\n  File "/x.py", line 3')
        self.state["log"].append(near)
        return str(self.state["secret"])


class FirstCallOnly(Sound):
    def step(self, action: str):
        cut = action.find("</tool_call>")
        return super().step(action if cut < 0 else action[: cut + len("</tool_call>")])


class LooseSchema(Sound):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        told = self.tools["look"]
        self.tools["look"] = Tool(told.schema, told.run, dict, told.options)


class NoDescription(Sound):
    @tool
    def bare(self) -> str:
        return ""


class OtherSignature(Sound):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        told = self.tools["look"]

        def run(env: Any, where: str = "", distance: int = 0) -> str:
            return where

        self.tools["look"] = Tool(told.schema, run, told.bind, told.options)


class Unreachable(Sound):
    @tool(timeout_s=0.01)
    def hang(self) -> str:
        """Hang."""
        import time

        time.sleep(0.2)
        return ""


class ListObservations(Sound):
    def reset(self, **options: Any):  # pyright: ignore
        first, info = super().reset(**options)
        return list(first), info


class SmallActions(Sound):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.action_space.max_length = 10  # type: ignore[attr-defined]


class NoisyInfo(Sound):
    def step(self, action: str):  # pyright: ignore
        *rest, info = super().step(action)
        return (*rest, {**info, "at": object()})


class StrayCharge(Sound):
    """Charges what lies outside of the call."""

    def step(self, action: str):
        told = super().step(action)
        import dataclasses

        if self.last_turn is not None and self.last_turn.results:
            charge = CharCharge(0, 1, 0.1, "stray")
            results = tuple(dataclasses.replace(r, charges=(charge,)) for r in self.last_turn.results)
            self.last_turn = dataclasses.replace(self.last_turn, results=results)
        return told

    def expert(self) -> Iterator[str]:
        for message in super().expert():
            yield f"I say: {message}"


@pytest.mark.parametrize(
    ("env", "name", "said"),
    [
        (ClockSeeded, "seeds", "differs from a fresh one"),
        (ClassCounter, "seeds", "differs from a fresh one"),
        (GlobalStore, "isolation", "an episode changed another one"),
        (AliasedState, "isolation", ""),
        (ReadsGlobalRandom, "global randomness", "depends on the global random state"),
        (WritesGlobalRandom, "global randomness", "changed the global random state"),
        (NoKey, "state key", "state_key() is None though there is state"),
        (CountingKey, "state key", "and then something else"),
        (DrawingKey, "state key", "asking for the state's key changed the episode"),
        (ShallowFork, "fork", ""),
        (ForgetfulFork, "fork", "differ"),
        (UnsafeFork, "fork", "cannot copy self."),
        (OneSplit, "splits", "tasks are in both splits"),
        (RenamedTasks, "splits", "tasks are in both splits"),
        (Generous, "no-op", "answering '' scores 1.0, the expert 1.0"),
        (BadExpert, "gold", "the expert scores 0.0 after 1 messages"),
        (CarelessExpert, "gold", "lok unknown_tool"),
        (LooseSchema, "schemas", "tool look takes an unknown argument"),
        (NoDescription, "schemas", "tool bare: it needs a docstring"),
        (OtherSignature, "schemas", "told ['where', 'near'] (needed []), takes ['where', 'distance']"),
        (Unreachable, "tools", "never reached: hang (timeout)"),
        (StepRaises, "errors", "raised KeyError"),
        (Traces, "errors", "shows the model a trace or a link"),
        (FirstCallOnly, "errors", "a bad call hid its neighbours"),
        (StepShouts, "output limits", "its limit is 200"),
        (ListObservations, "spaces", "is not in MessagesSpace()"),
        (SmallActions, "spaces", "is not in MessageSpace(10)"),
        (NoisyInfo, "gymnasium", "check_env"),
        (StrayCharge, "masks", "leaves its call's tokens"),
    ],
)
def test_a_broken_environment_is_caught_by_its_check(env, name, said):
    SHARED["log"] = []
    evidence = failed(env, only=[name], seeds=(0, 1))
    assert set(evidence) == {name}
    assert said in evidence[name]


def test_an_order_that_hangs_on_the_hash_seed_is_caught_by_another_process(tmp_path):
    path = tmp_path / "hashy.py"
    path.write_text(
        "from accredit.envs import Task, ToolEnv, tool\n"
        "class Hashy(ToolEnv):\n"
        "    def tasks(self, rng):\n        return [Task('go')]\n"
        "    @tool\n"
        "    def names(self) -> list[str]:\n        '''List names.'''\n"
        "        return list({str(n) for n in range(50)})\n"
        "    def reward(self):\n        return 1.0\n"
    )
    assert "sort sets before use" in failed(f"{path}:Hashy", only=["processes"])["processes"]


class WrongIds:
    """A renderer that writes a prompt where the observation of feedback should be."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def token_spans(self, ids: Any) -> list[tuple[int, int]]:
        return [(start + 4, end + 4) for start, end in self._inner.token_spans(ids)]


def test_a_renderer_that_shifts_characters_is_caught_by_the_masks():
    from accredit.envs.check_tokens import built_in_renderers

    shifted: Any = WrongIds(built_in_renderers()["byte-level"])
    evidence = failed(Sound, only=["masks"], renderers={"shifted": shifted})
    assert "masks" in evidence


class Lucky(Sound):
    luck_spoils = True

    def reward(self) -> float:
        return float(super().reward() and self.state["secret"] % 3 != 0)


class Hopeless(Lucky):
    def reward(self) -> float:
        return 0.0


def test_luck_may_spoil_some_episodes_of_the_expert_but_not_all():
    assert failed(Lucky, only=["gold", "no-op"], seeds=range(6)) == {}
    assert set(failed(Hopeless, only=["gold", "no-op"], seeds=range(3))) == {"gold", "no-op"}


class Paying(Sound):
    def reward(self) -> float:
        return super().reward() + self.luck_reward()

    def luck_reward(self) -> float:
        return (self.state["secret"] % 5 - 2) / 4


class Overpaying(Paying):
    def luck_reward(self) -> float:
        return 0.0

    def reward(self) -> float:
        return super().reward() + 0.25


def test_what_luck_alone_paid_is_left_out_of_the_marks():
    assert failed(Paying, only=["gold", "no-op"], seeds=range(6)) == {}
    assert "scores 1.25" in failed(Overpaying, only=["gold"])["gold"]


class NoExpert(Sound):
    expert = ToolEnv.expert


def test_a_check_that_does_not_apply_is_neither_passed_nor_failed():
    results = {r.name: r for r in check_env(NoExpert, seeds=(0,), only=["gold", "no-op", "masks"])}
    assert [results["gold"].passed, results["no-op"].passed, results["masks"].passed] == [None, None, True]
    assert results["gold"].evidence == "the environment has no expert()"


class Crashing(Sound):
    def setup(self) -> None:
        raise ValueError("no data")


def test_an_environment_that_crashes_fails_every_check_and_stops_none():
    results = check_env(Crashing, seeds=(0,))
    assert len(results) == len(check_names())
    assert "no data" in {r.name: r for r in results}["seeds"].evidence
    assert not any(r.passed for r in results if r.name != "schemas")


def test_what_cannot_be_checked_at_all_raises():
    with pytest.raises(EnvError, match="unknown check 'mask'"):
        check_env(Sound, only=["mask"])
    with pytest.raises(EnvError, match="is no ToolEnv"):
        check_env(int)  # type: ignore[arg-type]
    with pytest.raises(EnvError, match="did you mean Shop-v0"):
        check_env("Shpo-v0")


@pytest.mark.parametrize("name", ["Shop-v0", "Arithmetic-v0"])
def test_the_catalogue_passes(name):
    assert failed(name, seeds=(0,)) == {}


def test_made_up_arguments_fit_their_schema():
    schema = {
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/A"},
            "b": {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 2},
            "c": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]},
            "d": {"type": "boolean"},
            "e": {"const": 4},
        },
        "required": ["a", "b", "c", "d", "e"],
        "$defs": {"A": {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}},
    }
    assert example_of(schema, schema) == {"a": {"n": 1}, "b": ["x", "x"], "c": 3, "d": True, "e": 4}
    assert write_call("f", {"a": 1}) == '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
