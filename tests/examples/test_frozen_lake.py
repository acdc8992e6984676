"""The FrozenLake example: its exact figure is right, and credit functions teach a policy of moves."""

import importlib.util
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from accredit.credit import SpanKind

PATH = Path(__file__).parents[2] / "examples" / "frozen_lake.py"
SAFE_PATH = {0: 1, 4: 1, 8: 2, 9: 2, 10: 1, 14: 2}  # down, down, right, right, down, right


@pytest.fixture(scope="module")
def lake():
    spec = importlib.util.spec_from_file_location("frozen_lake", PATH)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def safe_policy():
    policy_SA = np.full((16, 4), 0.25)
    for field, move in SAFE_PATH.items():
        policy_SA[field] = np.eye(4)[move]
    return policy_SA


def test_the_safe_path_reaches_the_goal_surely_on_a_dry_lake_and_not_in_five_moves(lake):
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    assert lake.goal_probability(env, safe_policy(), 6) == 1.0
    assert lake.goal_probability(env, safe_policy(), 5) == 0.0


def test_the_exact_probability_agrees_with_episodes_lived_on_a_slippery_lake(lake):
    env = gymnasium.make("FrozenLake-v1", is_slippery=True, max_episode_steps=30)
    rng = np.random.default_rng(0)
    lived = [lake.walk(env, safe_policy(), rng) for _ in range(400)]
    exact = lake.goal_probability(env, safe_policy(), 30)
    assert 0.02 < exact < 0.5
    assert np.mean([t.reward for t in lived]) == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 400))


def test_moves_are_decisions_and_fields_are_feedback(lake):
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    walked = lake.walk(env, safe_policy(), np.random.default_rng(0))
    assert walked.reward == 1.0
    assert walked.token_ids[walked.credit_mask].tolist() == [1 + move for move in SAFE_PATH.values()]
    feedback = [span for span in walked.spans if span.kind is SpanKind.FEEDBACK]
    assert [str(walked.token_ids[span.start] - lake.FIRST_FIELD) for span in feedback] == list(walked.state_keys[1:])


def test_anchored_credit_teaches_the_dry_lake_within_a_thousand_episodes(lake, capsys):
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    untaught = lake.goal_probability(env, np.full((16, 4), 0.25), 50)
    curves = [
        lake.learn("anchored", seed, slippery=False, updates=60, size=16, rate=0.5, moves=50) for seed in range(3)
    ]
    assert untaught < 0.05
    assert min(curve[-1] for curve in curves) > 0.7


def test_the_command_prints_a_row_for_every_lake_and_function(lake, capsys):
    found = lake.main(["--seeds", "1", "--updates", "10", "--size", "4", "--credit", "anchored", "rloo"])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| dry", "| slippery"))]
    assert len(rows) == len(found) == 4
    assert all(curves.shape == (1, 10) for curves in found.values())


def test_the_last_column_is_the_end_whatever_the_number_of_updates(lake, capsys):
    found = lake.main(["--seeds", "1", "--updates", "13", "--size", "2", "--moves", "5", "--credit", "rloo"])
    assert {curves.shape for curves in found.values()} == {(1, 10)}
    assert "| 26 episodes |" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--updates", "5"], ["--seeds", "0"], ["--size", "0"], ["--moves", "0"]])
def test_numbers_that_leave_nothing_to_show_are_refused(lake, words, capsys):
    with pytest.raises(SystemExit):
        lake.main(words)
    assert f"{words[0]} is {words[1]}, expected at least" in capsys.readouterr().err
