"""What every environment of the catalogue keeps to: experts, splits, seeds, errors, registration."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_by_gymnasium

from accredit.credit import CallStatus
from accredit.envs import check_env, make, registered

TURNS = {
    ("Shop-v0", "easy"): (3, 5),
    ("Shop-v0", "medium"): (6, 12),
    ("Shop-v0", "hard"): (12, 30),
    ("Arithmetic-v0", "easy"): (3, 3),
    ("Arithmetic-v0", "medium"): (5, 6),
    ("Arithmetic-v0", "hard"): (4, 13),
    ("Chain-v0", "easy"): (8, 8),
    ("Chain-v0", "medium"): (20, 20),
    ("Chain-v0", "hard"): (40, 40),
}
NAMES = sorted({name for name, _ in TURNS})
PROCEDURAL = ("Arithmetic-v0", "Shop-v0")
LEVELS = ("easy", "medium", "hard")


def make_fair(name: str, **settings) -> Any:
    """Chain without luck: an expert cannot help luck."""
    return make(name, **settings, **({"luck": 0.0} if name == "Chain-v0" else {}))


@pytest.mark.parametrize("split", ["train", "heldout"])
@pytest.mark.parametrize(("name", "level"), TURNS)
def test_the_expert_gets_full_marks_within_the_levels_turns(name, level, split, play):
    env, (fewest, most) = make_fair(name), TURNS[name, level]
    for seed in range(50):
        env.reset(seed=seed, options={"level": level, "split": split})
        reward, turns = play(env, env.expert())
        assert reward == 1.0, env.task
        assert fewest <= turns <= most, env.task
        assert turns < env.max_turns


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_a_sloppy_player_without_errors_is_the_expert(name, level):
    def transcript(env, texts):
        said = []
        for text in texts:
            said.append(text)
            _, _, terminated, truncated, _ = env.step(text)
            if terminated or truncated:
                return said
        raise AssertionError("the episode did not end")

    env = make_fair(name, level=level)
    for seed in range(10):
        env.reset(seed=seed)
        by_expert = transcript(env, env.expert())
        env.reset(seed=seed)
        assert transcript(env, env.sloppy(np.random.default_rng(seed), 0.0)) == by_expert


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_success_falls_with_the_error_rate(name, level, play):
    env, success = make_fair(name, level=level), []
    for rate in (0.0, 0.15, 0.5):
        rng = np.random.default_rng(0)
        rewards = []
        for seed in range(60):
            env.reset(seed=seed)
            rewards.append(play(env, env.sloppy(rng, rate))[0])
        success.append(np.mean(rewards))
    assert success[0] == 1.0 > success[1] > success[2]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_doing_nothing_scores_nothing(name, level):
    env = make_fair(name, level=level)
    for seed in range(20):
        env.reset(seed=seed)
        assert env.step("Done.")[1] == 0.0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", PROCEDURAL)
def test_train_and_heldout_tasks_are_disjoint(name, level, monkeypatch):
    env, ids = make(name, level=level), {}
    monkeypatch.setattr(type(env), "setup", lambda self: None)  # only the tasks matter here
    for split in ("train", "heldout"):
        ids[split] = set()
        for seed in range(2000):
            env.reset(seed=seed, options={"split": split})
            ids[split].add(env.task.key)
    assert not ids["train"] & ids["heldout"]


def test_chains_train_and_heldout_tasks_are_disjoint():
    env = make("Chain-v0")
    ids = {
        split: {env.reset(seed=seed, options={"split": split})[1]["task_id"] for seed in range(2000)}
        for split in ("train", "heldout")
    }
    assert not ids["train"] & ids["heldout"]
    assert len(ids["train"] | ids["heldout"]) == 24


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_one_episode_in_two_instances(name, level, play):
    first, second = make(name, level=level), make(name, level=level)
    for seed in range(10):
        assert first.reset(seed=seed) == second.reset(seed=seed)
        for message in first.expert():
            assert first.step(message) == second.step(message)
            assert first.state_key() == second.state_key()
            if first.stop:
                break


def test_a_seed_gives_the_same_task_in_another_process():
    code = (
        "import json, sys; from accredit.envs import make\n"
        "print(json.dumps([[str(make(name, level=level).reset(seed=seed)[0]) for seed in range(3)]"
        f" for name in {NAMES!r} for level in {LEVELS!r}]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    here = [
        [str(make(name, level=level).reset(seed=seed)[0]) for seed in range(3)] for name in NAMES for level in LEVELS
    ]
    assert json.loads(run.stdout) == here


@pytest.mark.parametrize("name", PROCEDURAL)
def test_different_tasks_share_no_state(name):
    env, keys = make(name), {}
    for seed in range(50):
        env.reset(seed=seed)
        keys.setdefault(env.state_key(), set()).add(env.task.key)
    assert all(len(tasks) == 1 for tasks in keys.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_is_independent_of_its_original(name, play):
    env = make_fair(name)
    for seed in range(5):
        env.reset(seed=seed)
        texts = env.expert()
        env.step(next(texts))
        before = env.state_key()
        fork = env.fork()
        assert fork.state_key() == before
        assert play(env, texts)[0] == 1.0
        assert fork.state_key() == before
        assert fork.step("Done.")[1] == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_tool_and_broken_json_are_charged_and_go_on(name):
    env = make(name)
    env.reset(seed=0)
    for text, status in (
        ('<tool_call>{"name": "steal", "arguments": {}}</tool_call>', CallStatus.UNKNOWN_TOOL),
        ('<tool_call>{"name": </tool_call>', CallStatus.INVALID_JSON),
    ):
        before = env.state_key()
        _, _, terminated, truncated, _ = env.step(text)
        assert not terminated and not truncated
        assert env.last_turn is not None
        (result,) = env.last_turn.results
        assert result.status is status
        assert result.charge is not None and result.charge.amount == 0.1
        assert env.state_key() == before


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_checker_passes(name):
    check_by_gymnasium(make(name))


def test_all_are_registered_with_a_description():
    described = {entry.id.removeprefix("accredit/"): entry.description for entry in registered()}
    assert all(described[name] for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_projects_own_checker_passes(name):
    settings: dict[str, Any] = {"luck": 0.0} if name == "Chain-v0" else {}
    failed = [found for found in check_env(name, seeds=(0, 1), **settings) if found.passed is False]
    assert failed == []
