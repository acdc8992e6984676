"""Chain: the environment lives the exact process, no more and no less."""

import numpy as np
import pytest

from accredit.credit import CallStatus
from accredit.credit.exact import ChainProcess
from accredit.envs.catalogue.chain import Chain
from accredit.envs.catalogue.scripted import format_call


@pytest.mark.parametrize(
    ("level", "process"),
    [
        ("easy", ChainProcess(8, 4, luck=0.03)),
        ("medium", ChainProcess(20, 5, luck=0.02)),
        ("hard", ChainProcess(40, 10, luck=0.01)),
    ],
)
def test_a_level_is_a_process(level, process):
    env = Chain()
    env.reset(seed=0, options={"level": level})
    assert env.process == process


def test_settings_override_the_level():
    env = Chain(turns=5, relevant=5, luck=0.0)
    env.reset(seed=0, options={"level": "hard"})
    assert env.process == ChainProcess(5, 5, luck=0.0)
    assert env.max_turns > 5


def test_the_expert_wins_as_often_as_luck_lets_it(play):
    env = Chain(luck=0.1)
    wins = []
    for seed in range(400):
        env.reset(seed=seed)
        wins.append(play(env, env.expert())[0])
    expected = 0.9**8
    tolerance = 4 * np.sqrt(expected * (1 - expected) / 400)  # four standard errors
    assert abs(np.mean(wins) - expected) < tolerance


def test_a_wrong_choice_loses_only_on_a_named_turn(play):
    env = Chain(luck=0.0)
    for turn in range(8):
        env.reset(seed=3)
        relevant = env.process.right_action(turn) is not None

        def texts(turn=turn):
            for at, text in enumerate(env.expert()):
                right = int(text.split(": ")[-1][0])
                yield format_call("act", choice=(right + 1) % 4) if at == turn else text

        assert play(env, texts())[0] == float(not relevant)


def test_results_never_tell_whether_the_episode_is_lost():
    won, lost = Chain(luck=0.0), Chain(luck=0.99)
    won.reset(seed=1)
    lost.reset(seed=1)
    for text in won.expert():
        assert won.step(text)[0] == lost.step(text)[0]
        if won.stop:
            break
    assert (won.outcome, lost.outcome) == (1.0, 0.0)


def test_the_state_key_is_the_process_own():
    env = Chain(luck=0.0)
    env.reset(seed=0)
    for turn, text in enumerate(env.expert()):
        assert env.state_key() == ChainProcess.state_key(turn, True)
        env.step(text)
        if env.stop:
            break
    assert env.state_key() == ChainProcess.state_key(8, True)


def test_other_luck_keeps_the_task_and_changes_the_fate(play):
    env, prompts, rewards = Chain(luck=0.1), set(), set()
    for luck in range(20):
        messages, _ = env.reset(seed=5, options={"luck": luck})
        prompts.add(messages)
        rewards.add(play(env, env.expert())[0])
    assert len(prompts) == 1
    assert rewards == {0.0, 1.0}


def test_a_choice_out_of_range_is_charged_and_takes_no_turn_of_the_process():
    env = Chain()
    env.reset(seed=0)
    text = format_call("act", choice=4)
    env.step(text)
    assert env.last_turn is not None
    (result,) = env.last_turn.results
    assert result.status is CallStatus.TOOL_ERROR
    assert result.charge is not None and text[result.charge.start : result.charge.end] == "4"
    assert env.state_key() == ChainProcess.state_key(0, True)
