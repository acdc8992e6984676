"""What every exact process promises: probabilities, values, gradients and scores that agree with each other."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import Group
from accredit.credit.errors import CreditError
from accredit.credit.exact import (
    ChainProcess,
    Script,
    TreeProcess,
    branching,
    choice,
    coin,
    exact_function,
    random_tree,
    symbols,
    two_turn,
)
from accredit.credit.exact.process import enumerate_or_raise, is_choice, prefix_ids

random_trees = st.builds(random_tree, seed=st.integers(0, 2**32 - 1), depth=st.integers(2, 5))

PROCESSES = [
    two_turn(),
    two_turn(turn_rewards=True, stretch=2),
    symbols(),
    branching(),
    branching().stretched(2),
    random_tree(7, depth=4),
    ChainProcess(2, 1, 0.7, 0.1),
]
every_process = pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)


def assert_exact(process):
    chance_N, trajectories = enumerate_or_raise(process)
    assert chance_N.sum() == pytest.approx(1)
    reward_N = np.array([trajectory.reward for trajectory in trajectories])
    gradient_P = np.zeros(process.policy_gradient().size)
    for chance, trajectory in zip(chance_N, trajectories, strict=True):
        values = process.values(trajectory)
        assert len(values) == len(trajectory) + 1
        assert values[-1] == pytest.approx(trajectory.reward, abs=1e-12)
        assert values[0] == pytest.approx(chance_N @ reward_N, abs=1e-12)
        gradient_P += chance * trajectory.reward * process.score(trajectory).sum(axis=0)
    assert process.policy_gradient().ravel() == pytest.approx(gradient_P, abs=1e-12)
    return chance_N, trajectories


@every_process
def test_values_and_gradient_equal_full_enumeration(process):
    assert_exact(process)


@settings(deadline=None, max_examples=15)
@given(process=random_trees)
def test_values_and_gradient_of_random_trees_equal_full_enumeration(process):
    assert_exact(process)


@every_process
def test_a_value_is_the_mean_of_the_values_after_it(process):
    chance_N, trajectories = enumerate_or_raise(process)
    known = prefix_ids(trajectories)
    ahead: dict[int, list[tuple[float, float, float]]] = {}
    for chance, trajectory, ids in zip(chance_N, trajectories, known, strict=True):
        values = process.values(trajectory)
        for t in range(len(trajectory)):
            ahead.setdefault(int(ids[t]), []).append((chance, values[t], values[t + 1]))
    for rows in ahead.values():
        weight, now, after = np.array(rows).T
        assert np.ptp(now) < 1e-12
        assert weight @ after / weight.sum() == pytest.approx(now[0], abs=1e-12)


@every_process
def test_scores_stand_on_decision_tokens_only_and_have_mean_zero(process):
    chance_N, trajectories = enumerate_or_raise(process)
    total = 0.0
    for chance, trajectory in zip(chance_N, trajectories, strict=True):
        assert not process.score(trajectory)[~trajectory.credit_mask].any()
        assert is_choice(process, trajectory).any()
        total = total + chance * process.score(trajectory).sum(axis=0)
    assert total == pytest.approx(np.zeros_like(total), abs=1e-12)


@every_process
def test_one_seed_gives_one_group_of_trajectories_that_are_enumerated(process):
    one, other = (process.sample_group(np.random.default_rng(3), 5) for _ in range(2))
    listed = {t.token_ids.tobytes() for t in enumerate_or_raise(process)[1]}
    assert [t.token_ids.tobytes() for t in one.trajectories] == [t.token_ids.tobytes() for t in other.trajectories]
    assert {t.token_ids.tobytes() for t in one.trajectories} <= listed


def test_two_turn_pays_what_it_says():
    chance_N, trajectories = enumerate_or_raise(two_turn())
    assert chance_N == pytest.approx(np.full(8, 1 / 8))
    assert sorted(Group(trajectories).rewards) == pytest.approx([0, 0.3, 0.3, 0.4, 0.6, 0.7, 0.7, 1])
    assert two_turn().policy_gradient() == pytest.approx([-0.1, 0.1, -0.075, 0.075])


def test_turn_rewards_move_part_of_the_same_reward():
    plain, paid = (enumerate_or_raise(two_turn(turn_rewards=given))[1] for given in (False, True))
    assert [t.reward for t in plain] == pytest.approx([t.reward for t in paid])
    assert {float(t.turn_rewards[0]) for t in paid} == {0.0, 0.4}
    stretched = enumerate_or_raise(two_turn(turn_rewards=True, stretch=3))[1]
    assert [t.turn_rewards.sum() for t in stretched] == pytest.approx([t.turn_rewards.sum() for t in paid])


def test_an_observation_key_hides_the_decision_and_a_state_key_tells_it():
    states, observed = (
        {t.state_keys[1] for t in enumerate_or_raise(two_turn(keys=k))[1]} for k in ("state", "observation")
    )
    assert len(states) == 4 and len(observed) == 2
    with pytest.raises(CreditError, match="expected 'state'"):
        two_turn(keys="observed")


@pytest.mark.parametrize("process", [two_turn(), symbols(), branching(), random_tree(3, depth=4)], ids=lambda p: p.name)
@pytest.mark.parametrize("factor", [1, 2, 5])
def test_a_stretched_process_keeps_choices_luck_and_gradient(process, factor):
    longer = process.stretched(factor)
    (chance_N, plain), (longer_N, long) = enumerate_or_raise(process), enumerate_or_raise(longer)
    assert longer_N == pytest.approx(chance_N)
    assert longer.policy_gradient() == pytest.approx(process.policy_gradient())
    for short_one, long_one in zip(plain, long, strict=True):
        assert long_one.reward == short_one.reward
        assert len(long_one) >= len(short_one)
        assert is_choice(longer, long_one).sum() == is_choice(process, short_one).sum()


def test_stretching_adds_null_turns_and_longer_fillers():
    (plain, *_), (long, *_) = (enumerate_or_raise(two_turn(stretch=k))[1] for k in (1, 4))
    assert (plain.turns, long.turns) == (2, 5)
    assert (len(plain), len(long)) == (7, 1 + 3 * 4 + 3 + 3 * 2)
    assert long.state_keys[1] == long.state_keys[4] != long.state_keys[5]


def test_flipping_a_choice_keeps_everything_else():
    process = two_turn()
    trajectory = enumerate_or_raise(process)[1][0]
    flipped = process.flipped(trajectory, 2, 1)
    assert np.flatnonzero(flipped.token_ids != trajectory.token_ids).tolist() == [2]
    assert np.diff(Group((trajectory, flipped)).rewards) == pytest.approx([0.4])
    assert process.options(trajectory, 2) == 2 and process.options(trajectory, 1) == 1


def test_symbols_pays_the_share_of_right_answers_plus_luck():
    process = symbols(turns=2, count=2, sigma=0.5, p=0.5)
    chance_N, trajectories = enumerate_or_raise(process)
    assert chance_N @ Group(trajectories).rewards == pytest.approx(0.5)
    assert Group(trajectories).rewards.max() == pytest.approx(1 + 2 * 0.5 * 1 / 2**0.5)


def test_an_unscored_trajectory_gets_no_exact_credit():
    process = TreeProcess(Script("lost", (choice(), coin()), lambda picks: float(sum(picks))))
    group = process.sample_group(np.random.default_rng(0), 2)
    lost = replace(group.trajectories[0], outcome=None)
    (credit, _) = exact_function(process)(Group((lost, group.trajectories[1])))
    assert not credit.credit.total.any() and not credit.advantage.total.any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: symbols(turns=0),
        lambda: symbols(p=1.0),
        lambda: branching(take=0.0),
        lambda: branching(bust=1.0),
        lambda: random_tree(0, depth=9),
        lambda: two_turn(stretch=0),
        lambda: enumerate_or_raise(ChainProcess(20, 5)),
    ],
)
def test_a_process_that_cannot_be_is_refused(make):
    with pytest.raises(CreditError, match=r"expected|cannot be enumerated"):
        make()


def test_tokens_of_another_process_are_refused():
    with pytest.raises(CreditError, match=r"no trajectory of 'Branching"):
        branching().values(enumerate_or_raise(two_turn())[1][0])
