"""Symbols: skill and luck in one reward, the same luck whatever is chosen, and sums that are exact."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_by_gymnasium

from accredit.credit import CallStatus
from accredit.envs import EnvError, check_env, make, registered
from accredit.envs.catalogue.scripted import format_call
from accredit.envs.catalogue.symbols import SYMBOLS, Symbols, choice_reward, luck_reward

LEVELS = ("easy", "medium", "hard")


@pytest.mark.parametrize(("level", "turns", "sigma"), [("easy", 6, 0.0), ("medium", 6, 0.5), ("hard", 12, 0.5)])
def test_a_level_is_a_number_of_turns_and_a_sigma(level, turns, sigma):
    env = Symbols()
    env.reset(seed=0, options={"level": level})
    assert (env.turns, env.sigma, len(env.task.data["symbols"])) == (turns, sigma, turns)


def test_settings_override_the_level():
    env = Symbols(turns=3, sigma=2.0)
    env.reset(seed=0, options={"level": "hard"})
    assert (env.turns, env.sigma, env.max_turns > 3) == (3, 2.0, True)
    with pytest.raises(EnvError, match="sigma is -1"):
        Symbols(sigma=-1.0)
    wrong: dict[str, Any]
    for wrong in ({"turns": 2.5}, {"turns": "3"}, {"turns": True}, {"sigma": "big"}):
        with pytest.raises(EnvError, match="expected a"):
            Symbols(**wrong)


@pytest.mark.parametrize(("level", "split"), [*product(LEVELS, ("train", "heldout"))])
def test_the_expert_scores_one_plus_its_luck(level, split, play):
    env = Symbols()
    for seed in range(20):
        env.reset(seed=seed, options={"level": level, "split": split})
        reward, turns = play(env, env.expert())
        assert reward - env.luck_reward() == 1.0
        assert turns == env.turns


def test_luck_has_mean_zero_and_deviation_sigma(play):
    env, lucks = Symbols(level="medium"), []
    for luck in range(2000):
        env.reset(seed=1, options={"luck": luck})
        lucks.append(play(env, env.expert())[0] - 1)
    assert abs(np.mean(lucks)) < 4 * 0.5 / np.sqrt(2000)  # four standard errors
    assert abs(np.std(lucks) - 0.5) < 0.05  # the deviation of a deviation over 2000 is about .008
    assert min(lucks) < -1 < 1 < max(lucks)  # the reward leaves [0, 1]


def test_the_coins_are_the_same_whatever_is_chosen(play):
    env = Symbols(level="medium")
    for seed in range(20):
        env.reset(seed=seed, options={"luck": 3})
        play(env, env.expert())
        luck = env.luck_reward()
        env.reset(seed=seed, options={"luck": 3})
        reward, _ = play(env, env.sloppy(np.random.default_rng(seed), 0.7))
        assert env.luck_reward() == luck
        assert reward - luck == choice_reward(env.state.right, 6)


def test_equal_luck_cancels_to_the_last_bit():
    for turns, sigma in ((6, 0.5), (12, 0.5), (7, 0.3)):
        plain = [choice_reward(right, turns) for right in range(turns + 1)]
        for heads in range(turns + 1):
            luck = luck_reward(heads, turns, turns, sigma)
            assert all((one + luck) - (other + luck) == one - other for one, other in product(plain, plain))


def test_a_failed_call_throws_no_coin_and_is_charged_on_its_argument():
    env = Symbols(level="medium")
    env.reset(seed=0)
    before, text = env.state_key(), format_call("choose", symbol="Z")
    env.step(text)
    assert env.last_turn is not None
    (result,) = env.last_turn.results
    assert result.status is CallStatus.TOOL_ERROR
    assert result.charge is not None and text[result.charge.start : result.charge.end] == '"Z"'
    assert env.state_key() == before


def test_other_luck_keeps_the_beginning():
    env = Symbols(level="medium")
    assert len({env.reset(seed=5, options={"luck": luck})[0] for luck in range(10)}) == 1


def test_train_and_heldout_tasks_are_disjoint_and_rows_use_every_symbol():
    env = Symbols()
    rows = {
        split: {env.reset(seed=seed, options={"split": split})[1]["task_id"] for seed in range(400)}
        for split in ("train", "heldout")
    }
    assert not rows["train"] & rows["heldout"]
    assert set("".join(rows["train"])) == set(SYMBOLS)


def test_success_falls_with_the_error_rate(play):
    env, means = Symbols(), []
    for rate in (0.0, 0.3, 0.8):
        rng, rewards = np.random.default_rng(0), []
        for seed in range(60):
            env.reset(seed=seed)
            rewards.append(play(env, env.sloppy(rng, rate))[0])
        means.append(np.mean(rewards))
    assert means[0] == 1.0
    np.testing.assert_allclose(means, [1.0, 0.7, 0.2], atol=0.08)  # four standard errors of 360 choices


def test_both_checkers_pass():
    check_by_gymnasium(make("Symbols-v0"))
    assert [found for found in check_env("Symbols-v0", seeds=(0, 1)) if found.passed is False] == []
    assert any(entry.id == "accredit/Symbols-v0" and entry.description for entry in registered())
