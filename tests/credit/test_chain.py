import itertools

import numpy as np
import pytest

from accredit.credit.errors import CreditError
from accredit.credit.exact import ACTIONS, ChainProcess, exact_function, measure_signal
from accredit.credit.functions import credit_function


@pytest.mark.parametrize(("turns", "relevant"), [(1, 1), (8, 4), (20, 5), (7, 0), (5, 5)])
def test_relevant_turns_are_evenly_spaced(turns, relevant):
    found = ChainProcess(turns, relevant).relevant_turns
    assert len(set(found)) == relevant and all(0 <= turn < turns for turn in found)
    assert len(set(np.diff(found))) <= 1


def test_values_and_gradient_equal_full_enumeration():
    process = ChainProcess(turns=3, relevant=2, p=0.6, luck=0.1)
    policy_KA = process.policy
    expected, gradient_KA = 0.0, np.zeros((3, ACTIONS))
    for actions in itertools.product(range(ACTIONS), repeat=3):
        right = all(process.right_action(k) in (None, a) for k, a in enumerate(actions))
        chance = np.prod([policy_KA[k, a] for k, a in enumerate(actions)]) * 0.9**3 * right
        expected += chance
        for k, a in enumerate(actions):
            gradient_KA[k] += chance * (np.eye(ACTIONS)[a] - policy_KA[k])
    assert process.value(0, True) == pytest.approx(expected)
    assert process.policy_gradient() == pytest.approx(gradient_KA)


@pytest.mark.parametrize("turn", range(4))
def test_a_value_is_the_mean_of_the_values_after_it(turn):
    process = ChainProcess(turns=4, relevant=2, p=0.7, luck=0.2)
    decided = [process.value(turn, True, action) for action in range(ACTIONS)]
    assert process.value(turn, True) == pytest.approx(process.policy[turn] @ decided)
    for action, value in enumerate(decided):
        right = process.right_action(turn) in (None, action)
        assert value == pytest.approx(right * (1 - process.luck) * process.value(turn + 1, True))
    assert process.value(turn, False) == 0.0


def test_sampled_rewards_have_the_exact_mean():
    process, rng = ChainProcess(turns=6, relevant=3, p=0.8, luck=0.05), np.random.default_rng(0)
    rewards = process.sample_group(rng, 1500).rewards
    assert rewards.mean() == pytest.approx(process.value(0, True), abs=4 * 0.5 / 1500**0.5)  # four standard errors


def test_one_seed_gives_one_group():
    process = ChainProcess()
    one, other = (process.sample_group(np.random.default_rng(5), 4) for _ in range(2))
    assert [t.token_ids.tolist() for t in one.trajectories] == [t.token_ids.tolist() for t in other.trajectories]
    assert [t.state_keys for t in one.trajectories] == [t.state_keys for t in other.trajectories]


def test_exact_credit_is_complete_and_keeps_luck_off_the_advantage():
    process, rng = ChainProcess(turns=10, relevant=5, p=0.8, luck=0.1), np.random.default_rng(1)
    group = process.sample_group(rng, 50)
    for trajectory, reward in zip(group.trajectories, group.rewards, strict=True):
        credit = process.exact_credit(trajectory)
        assert credit.credit.total.sum() == pytest.approx(reward - process.value(0, True), abs=1e-12)
        assert not credit.advantage.total[~trajectory.credit_mask].any()


@pytest.mark.parametrize("options", [{"relevant": 9}, {"p": 0.0}, {"p": 1.0}, {"luck": 1.0}, {"luck": -0.1}])
def test_a_process_that_cannot_be_is_refused(options):
    with pytest.raises(CreditError, match="expected"):
        ChainProcess(**options)


def test_anchored_credit_carries_more_signal_than_the_group_baseline():
    """The small version of benchmarks/chain_signal.py; bounds leave the sampling error of few groups."""
    for process, size, groups, ratio in (
        (ChainProcess(8, 4, 0.8, 0.03), 8, 120, 1.4),
        (ChainProcess(20, 5, 0.8, 0.02), 16, 40, 3.0),
    ):
        functions = {
            "group": credit_function("dr_grpo"),
            "anchored": credit_function("anchored"),
            "exact": exact_function(process),
        }
        measured = measure_signal(process, functions, size, groups, np.random.default_rng(0))
        assert measured["anchored"].signal_to_noise > ratio * measured["group"].signal_to_noise
        assert measured["exact"].signal_to_noise > measured["anchored"].signal_to_noise
        assert measured["anchored"].cosine > 0.97
