"""ToolEnv: episodes, rewards, limits, options, splits, forks and state keys."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pydantic import BaseModel

from accredit.credit import StopReason
from accredit.envs import EnvError, InfrastructureError, Message, Task, ToolEnv, make, register, tool
from accredit.envs.forking import fork_of


class Prices(ToolEnv):
    def tasks(self, rng):
        return [Task("What do 3 apples cost?", answer=6.0)]

    @tool
    def price(self, item: str) -> float:
        """Unit price of an item, in euros."""
        return {"apple": 2.0}[item]

    def reward(self) -> float:
        return float(str(self.task.answer) in self.answer)


@dataclass
class Purse:
    coins: list[int] = field(default_factory=list)
    total: float = 0


class Coins(ToolEnv):
    """Draw coins until ten are reached."""

    system = "Draw coins."
    max_turns = 5
    levels = ("easy", "hard")
    option_names = ("bonus",)

    def tasks(self, rng):
        return [Task(f"Reach {n}", answer=n, id=f"t{n}") for n in range(10, 30)]

    def setup(self) -> None:
        self.state = Purse([int(self.rng.integers(100))])

    @tool
    def draw(self) -> int:
        """Draw a coin."""
        coin = int(self.rng.integers(1_000_000))
        self.state.coins.append(coin)
        self.state.total += coin
        return coin

    @tool
    def stop_now(self) -> str:
        """End the episode."""
        self.finished = True
        return "bye"

    def reward(self) -> float:
        return float(len(self.state.coins) > 2) + self.options.get("bonus", 0)


class Sums(ToolEnv):
    """Procedural."""

    def draw_task(self, rng):
        a, b = (int(x) for x in rng.integers(0, 50, 2))
        return Task(f"{a}+{b}", answer=a + b)

    def reward(self) -> float:
        return float(self.answer == str(self.task.answer))


DRAW = '<tool_call>{"name": "draw"}</tool_call>'
STOP = '<tool_call>{"name": "stop_now"}</tool_call>'
ASK = '<tool_call>{"name": "price", "arguments": {"item": "apple"}}</tool_call>'


def test_the_ten_line_example_works_as_written():
    register("Prices-v0", Prices)
    env = make("Prices-v0")
    first, info = env.reset(seed=1)
    assert first == (Message("user", "What do 3 apples cost?"),)
    assert info["split_shared"] is True
    messages, reward, terminated, truncated, _ = env.step(ASK)
    assert messages == (Message("tool", "2.0", "price", "call_0"),)
    assert (reward, terminated, truncated) == (0.0, False, False)
    messages, reward, terminated, truncated, info = env.step("They cost 6.0 euros.")
    assert (messages, reward, terminated, truncated, info["stop"]) == ((), 1.0, True, False, "done")
    assert (env.outcome, env.stop, env.answer) == (1.0, StopReason.DONE, "They cost 6.0 euros.")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("cls", [Prices, Coins, Sums])
def test_gymnasiums_own_checker_is_content(cls):
    register(f"Checked{cls.__name__}-v0", cls)
    check_env(gymnasium.make(f"accredit/Checked{cls.__name__}-v0"))


def test_gymnasiums_own_wrappers_are_content():
    register("WrappedCoins-v0", Coins)
    env = gymnasium.wrappers.PassiveEnvChecker(gymnasium.wrappers.OrderEnforcing(make("WrappedCoins-v0")))
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space
    observation, reward, terminated, truncated, _ = env.step(DRAW)
    assert observation in env.observation_space
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_the_system_message_comes_first():
    first, _ = Coins().reset(seed=0)
    assert [m.role for m in first] == ["system", "user"]


def play(env: ToolEnv, **reset: Any) -> list[Any]:
    first, info = env.reset(**reset)
    return [first, info, *(env.step(DRAW) for _ in range(3)), env.state_key()]


def test_a_seed_fixes_task_and_luck_in_every_instance_and_thread():
    expected = play(Coins(), seed=11)
    with ThreadPoolExecutor(4) as pool:
        assert all(found == expected for found in pool.map(lambda _: play(Coins(), seed=11), range(8)))
    assert play(Coins(), seed=12) != expected


def test_a_used_instance_starts_the_same_as_a_fresh_one():
    env = Coins()
    expected = play(env, seed=3)
    play(env, seed=4)
    assert play(env, seed=3) == expected


def test_reset_without_seed_goes_on_with_the_own_stream():
    one, other = Coins(), Coins()
    for env in (one, other):
        env.reset(seed=5)
    runs = [play(one), play(one)]
    assert runs == [play(other), play(other)]
    assert runs[0] != runs[1]


def test_the_stream_between_episodes_does_not_depend_on_luck_used_up():
    one, other = Coins(), Coins()
    one.reset(seed=5)
    other.reset(seed=5)
    other.step(DRAW)
    assert play(one) == play(other)


def test_luck_changes_results_but_neither_task_nor_beginning():
    one, other = Coins(), Coins()
    first = one.reset(seed=5, options={"luck": 1})
    assert first == other.reset(seed=5, options={"luck": 2})
    assert one.state == other.state
    assert one.step(DRAW) != other.step(DRAW)


def test_global_random_state_is_never_touched():
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    play(Coins(), seed=0)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[index,union-attr]


def test_a_turn_limit_cuts_off_and_scores():
    env = Coins()
    env.reset(seed=0)
    for _ in range(4):
        assert env.step(DRAW)[2:4] == (False, False)
    _, reward, terminated, truncated, info = env.step(DRAW)
    assert (reward, terminated, truncated, info["stop"]) == (1.0, False, True, "turn_limit")


def test_calls_past_the_limit_are_refused_uncharged_and_end_the_episode():
    env = Coins(max_calls=2)
    env.reset(seed=0)
    env.step(DRAW)
    messages, _, terminated, truncated, info = env.step(DRAW + DRAW)
    assert (terminated, truncated, info["stop"]) == (False, True, "call_limit")
    assert messages[1].content == "Error: the limit of 2 calls is reached"
    assert env.last_turn is not None and not env.last_turn.results[1].charges
    assert len(env.state.coins) == 3


def test_an_answer_after_the_last_allowed_call_is_still_taken():
    env = Coins(max_calls=1)
    env.reset(seed=0)
    assert env.step(DRAW)[2:4] == (False, False)
    assert env.step("done")[2] is True


def test_a_tool_may_end_the_episode():
    env = Coins()
    env.reset(seed=0)
    messages, _, terminated, _, _ = env.step(STOP + DRAW)
    assert terminated and len(messages) == 2


def test_a_message_whose_calls_all_fail_goes_on():
    env = Prices()
    env.reset(seed=0)
    assert env.step("<tool_call>{broken</tool_call>")[2:4] == (False, False)
    assert env.answer == ""


def test_an_ending_from_outside_is_scored():
    env = Coins()
    env.reset(seed=0)
    assert env.end(StopReason.TOKEN_LIMIT) == 0.0
    with pytest.raises(EnvError, match=r"after the episode ended \(token_limit\)"):
        env.step(DRAW)


def test_step_needs_a_running_episode_and_text():
    env = Prices()
    with pytest.raises(EnvError, match=r"Prices.step\(\) before reset\(\): call reset"):
        env.step("x")
    env.reset(seed=0)
    with pytest.raises(EnvError, match="takes the assistant's message as text, found a int"):
        env.step(3)  # type: ignore[arg-type]
    env.step("x")
    with pytest.raises(EnvError, match=r"after the episode ended \(done\): call reset"):
        env.step("x")


class Asking(Prices):
    def reply(self) -> str | None:
        return "Are you sure?" if self.turn == 1 else None


def test_a_user_may_reply_to_an_answer():
    env = Asking()
    env.reset(seed=0)
    messages, _, terminated, _, _ = env.step("7.0")
    assert (messages, terminated) == ((Message("user", "Are you sure?"),), False)
    assert env.step("6.0")[1:3] == (1.0, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"split": "heldot"}, "unknown split 'heldot', did you mean 'heldout'?"),
        ({"level": "esay"}, "unknown level 'esay', did you mean 'easy'?"),
        ({"lvl": 1}, "unknown option 'lvl'"),
        ({"luck": -1}, "option luck is -1"),
        ({"index": 99}, "option index is 99, the train split has 16 tasks"),
        ({"task": "x"}, "option task gave 'x', expected a Task"),
    ],
)
def test_wrong_options_are_refused_with_the_nearest(options, said):
    with pytest.raises(EnvError, match="Coins") as raised:
        Coins().reset(seed=0, options=options)
    assert said in str(raised.value)


def test_options_reach_the_hooks():
    env = Coins()
    task = Task("mine", id="mine")
    env.reset(seed=0, options={"level": "hard", "bonus": 2, "task": task})
    assert (env.level, env.task, env.step("x")[1]) == ("hard", task, 2.0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"charge": -1.0}, "the amount of 'charge' is -1.0"),
        ({"charges": {"time_out": 1.0}}, "did you mean 'timeout'?"),
        ({"max_turns": 0}, "max_turns is 0, expected at least 1"),
        ({"level": "x"}, "unknown level 'x'"),
        ({"split": "test"}, "unknown split 'test'"),
    ],
)
def test_wrong_settings_are_refused(settings, said):
    with pytest.raises(EnvError) as raised:
        Coins(**settings)
    assert said in str(raised.value)


def test_settings_belong_to_the_instance():
    assert (Coins(max_turns=2).max_turns, Coins(level="hard").level, Coins().max_turns) == (2, "hard", 5)


def test_a_subclass_may_forget_to_call_our_constructor():
    class Forgetful(Prices):
        def __init__(self) -> None:
            self.mine = 1

    env = Forgetful()
    env.reset(seed=0)
    assert env.step(ASK)[0][0].content == "2.0"


def drawn(cls: type[ToolEnv], split: str, count: int = 60) -> set[str]:
    env = cls()
    return {env.reset(seed=seed, options={"split": split})[1]["task_id"] for seed in range(count)}


@pytest.mark.parametrize("cls", [Coins, Sums])
def test_train_and_heldout_tasks_never_meet(cls):
    train, heldout = drawn(cls, "train"), drawn(cls, "heldout")
    assert train and heldout and not train & heldout


def test_a_list_is_split_four_to_one():
    env = Coins()
    sizes = []
    for split in ("train", "heldout"):
        env.reset(seed=0, options={"split": split})
        sizes.append(len(env.task_lists[f"{split}/easy"].tasks))
    assert sizes == [16, 4]


def test_a_list_of_fewer_than_five_tasks_is_shared_and_says_so():
    assert Prices().reset(seed=0, options={"split": "heldout"})[1]["split_shared"] is True
    assert Coins().reset(seed=0)[1]["split_shared"] is False


def test_equal_tasks_stay_on_one_side():
    class Twice(Coins):
        def tasks(self, rng):
            return [*super().tasks(rng), *super().tasks(rng)]

    assert not drawn(Twice, "train") & drawn(Twice, "heldout")


def test_a_generated_list_is_one_list_for_all_seeds():
    class Generated(Coins):
        def tasks(self, rng):
            return [Task(str(n)) for n in rng.integers(0, 10**9, 10)]

    assert len(drawn(Generated, "train", 100)) == 8


def test_a_hook_named_task_is_told_its_right_name():
    with pytest.raises(EnvError, match="name it draw_task"):

        class Named(Sums):
            def task(self, rng):  # pyright: ignore
                return Task("x")


def broken(**members: Any) -> ToolEnv:
    return type("Broken", (Prices,), members)()


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"reward": lambda self: None}, "Broken.reward() gave None (NoneType), expected a number"),
        ({"reward": lambda self: float("nan")}, "Broken.reward() gave nan, expected a finite number"),
        ({"reward": lambda self: "1"}, "Broken.reward() gave '1' (str), expected a number"),
        ({"reward": lambda self: 1 / 0}, "Broken.reward() failed: ZeroDivisionError: division by zero"),
        ({"tasks": lambda self, rng: []}, "Broken.tasks() is empty (split train): return at least one Task"),
        ({"tasks": lambda self, rng: ["x"]}, "Broken: tasks() gave 'x', expected a Task with a text prompt"),
        ({"tasks": lambda self, rng: 1 / 0}, "Broken.setup() failed: ZeroDivisionError"),
        ({"tasks": ToolEnv.tasks}, "Broken has no tasks: write `def tasks(self, rng)`"),
        ({"reward": ToolEnv.reward}, "Broken has no reward: write `def reward(self) -> float`"),
        ({"reply": lambda self: 1 / 0}, "Broken.reply() failed: ZeroDivisionError"),
        ({"draw_task": lambda self, rng: Task("one")}, "Broken.draw_task() gave no task of the"),
    ],
)
def test_a_broken_hook_is_the_authors_fault_and_named(members, said):
    env = broken(**members)
    split = "train" if "draw_task" not in members else ("heldout", "train")
    with pytest.raises(EnvError) as raised:
        for each in [split] if isinstance(split, str) else split:
            env.reset(seed=0, options={"split": each})
        env.step("6.0")
    assert said in str(raised.value)


@pytest.mark.parametrize("value", [2, True, np.float32(0.5), -3.5])
def test_any_finite_number_is_a_reward(value):
    env = broken(reward=lambda self: value)
    env.reset(seed=0)
    assert env.step("x")[1] == float(value)


def test_infrastructure_that_fails_in_scoring_leaves_the_episode_unscored():
    def reward(self):
        raise InfrastructureError("gone")

    env = broken(reward=reward)
    env.reset(seed=0)
    _, reward_, terminated, truncated, info = env.step("x")
    assert (reward_, terminated, truncated, info) == (
        0.0,
        False,
        True,
        {"turn": 1, "stop": "infrastructure", "unscored": True},
    )
    assert env.outcome is None


def test_a_zero_reward_is_scored():
    env = Prices()
    env.reset(seed=0)
    assert env.step("nothing")[4]["unscored"] is False
    assert env.outcome == 0.0


def test_a_fork_lives_on_its_own_and_replays_exactly():
    env = Coins()
    env.reset(seed=9)
    env.step(DRAW)
    fork = env.fork()
    assert (fork.state, fork.state_key(), fork.turn) == (env.state, env.state_key(), 1)
    ahead = [fork.step(DRAW), fork.step(DRAW)]
    assert len(env.state.coins) == 2
    assert [env.step(DRAW), env.step(DRAW)] == ahead
    assert fork.state is not env.state and fork.rng is not env.rng


def test_a_fork_with_a_seed_has_other_luck_from_here_on():
    env = Coins()
    env.reset(seed=9)
    env.step(DRAW)
    one, same, other = env.fork(1), env.fork(1), env.fork(2)
    assert one.step(DRAW) == same.step(DRAW) != other.step(DRAW)


def test_a_fork_with_a_seed_has_other_luck_in_every_generator_that_its_state_reaches():
    class Keeps(Prices):
        def setup(self) -> None:
            own = np.random.default_rng(3)
            self.state = {"task stream": self.rng, "own": own, "again": own, "plain": random.Random(3)}

        def draws(self) -> list[float]:
            state = self.state
            return [float(state[name].random()) for name in state] + [float(self.rng.random())]

    env = Keeps()
    env.reset(seed=0)
    alike, one, same, other = env.fork(), env.fork(1), env.fork(1), env.fork(2)
    assert one.state["task stream"] is one.np_random and one.state["own"] is one.state["again"]
    drawn = one.draws()
    assert drawn == same.draws()
    assert not set(drawn) & set(other.draws()) and len(set(drawn)) == 5
    assert alike.draws() == env.draws()


@pytest.mark.parametrize("made", [np.random.RandomState, np.random.PCG64, random.Random, np.random.default_rng])
def test_other_luck_is_other_luck_in_every_kind_of_generator(made):
    class Keeps:
        def __init__(self):
            self.rng, self.state = np.random.default_rng(0), {"generator": made(1)}

    def drawn(seed):
        kept = fork_of(env, (), seed).state["generator"]
        draw = getattr(kept, "random_raw", None) or kept.random
        return draw(), draw()

    env = Keeps()
    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(None) == drawn(None) != drawn(1)


def test_a_fork_takes_no_negative_seed():
    env = Coins()
    env.reset(seed=9)
    with pytest.raises(EnvError, match="seed is -1, expected an integer of at least 0"):
        env.fork(-1)


def test_a_fork_follows_references_back_to_the_environment():
    class Linked(Prices):
        def setup(self) -> None:
            self.state = {"owner": self}

    env = Linked()
    env.reset(seed=0)
    fork = env.fork()
    assert fork.state["owner"] is fork


def test_what_is_named_shared_is_shared_by_forks():
    class Library(Prices):
        shared = ("books",)

        def setup(self) -> None:
            self.books = {"a": 1}

    env = Library()
    env.reset(seed=0)
    assert env.fork().books is env.books


def test_a_fork_that_cannot_be_copied_names_the_attribute():
    import sqlite3

    class Database(Prices):
        def setup(self) -> None:
            self.db = sqlite3.connect(":memory:", check_same_thread=False)

    env = Database()
    env.reset(seed=0)
    with pytest.raises(EnvError, match=r"Database.fork\(\) cannot copy self.db \(Connection"):
        env.fork()


def test_a_fork_inside_a_tool_is_refused():
    class Inside(Prices):
        @tool
        def split_off(self) -> str:
            """Fork."""
            self.fork()
            return ""

    env = Inside()
    env.reset(seed=0)
    with pytest.raises(EnvError, match="inside a tool: fork between turns"):
        env.step('<tool_call>{"name": "split_off"}</tool_call>')


def key_of(state: Any) -> str | None:
    env = Prices()
    env.reset(seed=0)
    env.state = state
    return env.state_key()


class Model(BaseModel):
    n: float
    names: set[str]


def test_equal_states_have_equal_keys():
    assert key_of(None) is None
    assert key_of({"a": 25, "b": 1}) == key_of({"b": 1.0, "a": 25.0})
    assert key_of(Model(n=2, names={"x", "y"})) == key_of(Model(n=2.0, names={"y", "x"}))
    assert key_of(Purse([1], 3)) == key_of(Purse([1], 3.0)) == key_of({"coins": [1], "total": 3})
    assert key_of(np.array([1, 2])) == key_of([1.0, 2.0])
    assert key_of({"x": -0.0}) == key_of({"x": 0})


def test_different_states_have_different_keys():
    states = [
        {},
        [],
        "",
        0,
        1,
        1.5,
        True,
        "1",
        [1],
        {"a": 1},
        {1: 1},
        {"1": 1},
        {True: 1},
        float("nan"),
        {1},
        b"a",
        "a",
    ]
    keys = [key_of(state) for state in states]
    assert len(set(keys)) == len(states)


def test_a_state_without_comparable_content_is_refused():
    with pytest.raises(EnvError, match=r"Prices.state\[0\]\['db'\] holds a object, which cannot be hashed"):
        key_of({"db": object()})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(EnvError, match="nested too deeply, or holds itself"):
        key_of(loop)


def test_a_finished_episode_is_another_state():
    env = Coins()
    env.reset(seed=0)
    before = env.state_key()
    env.step(STOP)
    assert env.state_key() != before
