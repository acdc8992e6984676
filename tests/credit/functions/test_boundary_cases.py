"""The boundary cases that every credit function must pass."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import Group


def assert_no_signal(credits):
    for credit in credits:
        for ledger in (credit.credit, credit.advantage):
            for term_T in ledger.terms.values():
                assert not term_T.any()


def random_group(rng, members=6, unscored=0.0):
    from_key = lambda: None if rng.random() < 0.3 else f"s{rng.integers(3)}"  # noqa: E731
    trajectories = []
    for _ in range(members):
        turns = [
            (
                rng.integers(0, 3, rng.integers(0, 4)).tolist(),
                rng.integers(10, 12, rng.integers(0, 3)).tolist(),
                float(rng.integers(0, 3)) / 10,
                from_key(),
            )
            for _ in range(rng.integers(1, 6))
        ]
        turns[0] = ([1, *turns[0][0]], *turns[0][1:])
        outcome = None if rng.random() < unscored else float(rng.random())
        trajectories.append((turns, outcome))
    return trajectories


def test_one_token_a_trajectory(price, record):
    group = Group(tuple(record(([1 + int(r)],), outcome=r) for r in (0.0, 1.0, 1.0, 0.0)))
    for trajectory, credit in zip(group.trajectories, price(group), strict=True):
        (token,) = np.flatnonzero(trajectory.credit_mask)
        assert np.sign(credit.advantage.total[token]) == (1 if trajectory.reward else -1 if price.is_centred else 0)


@pytest.mark.parametrize("reward", [0.0, 0.7, 1.0, -0.3, 1e-9, 1e9])
def test_equal_rewards_teach_exactly_nothing(price, reward, record):
    turns = [[([i, 2, 3], [7], 0.0, f"s{i % 3}"), ([i % 2], [8])] for i in range(8)]
    assert_no_signal(price(Group(tuple(record(*t, outcome=reward) for t in turns))))


def test_equal_sums_of_unequal_parts_teach_exactly_nothing(price, record):
    rewards = [(0.3, 0.0), (0.2, 0.1), (0.1, 0.2), (0.0, 0.3)]
    assert_no_signal(price(Group(tuple(record(([i], [7], turn), outcome=o) for i, (o, turn) in enumerate(rewards)))))


def test_a_small_spread_is_still_a_signal(price, record):
    group = Group(tuple(record(([i],), outcome=0.7 + 1e-9 * (i % 2)) for i in range(8)))
    advantages = [credit.advantage.total.max() for credit in price(group)]
    if price.is_centred:
        assert min(advantages[1::2]) > 0 == max(advantages[::2])
    else:
        assert min(advantages[1::2]) > max(advantages[::2])


def test_a_group_of_one_teaches_nothing(price, record):
    assert_no_signal(price(Group((record(([1, 2], [7], 0.5, "s"), ([3],), outcome=1.0),))))


def test_one_scored_member_teaches_nothing(price, record):
    assert_no_signal(price(Group((record(([1],), outcome=1.0), record(([2],), outcome=None)))))


def test_an_empty_group_is_priced(price):
    assert price(Group(())) == ()


def test_a_trajectory_without_decision_token_gets_no_advantage_and_harms_nobody(price, record):
    group = Group(tuple(record(turn, outcome=r) for turn, r in ((([], [7, 8]), 0.0), (([1],), 1.0), (([], []), 0.0))))
    credits = price(group)
    assert not credits[0].advantage.total.any() and not credits[2].advantage.total.any()
    if price.compares_members:  # else the one turn of the group has nothing to be compared with
        assert credits[1].advantage.total[2] > 0


def test_turns_of_no_tokens_are_priced(price, record):
    turns = [([1, 2], [7], 0.0, "a"), ([], [], 0.5, "b"), ([], [8], 0.0, "a"), ([3], [], 0.0, None), ([], [])]
    group = Group((record(*turns, outcome=1.0), record(*turns[:2], outcome=0.0), record(*turns[::-1], outcome=0.3)))
    for index, (trajectory, credit) in enumerate(zip(group.trajectories, price(group), strict=True)):
        assert not credit.advantage.total[~trajectory.credit_mask].any()
        if price.is_complete:
            surprise = group.rewards[index] - price.start(group, index)
            assert credit.credit.total.sum() == pytest.approx(surprise, abs=1e-12)


def test_a_fresh_context_is_priced_like_any_other_token_sequence(price, record):
    turns = [([1, 2], [7], 0.0, "a"), ([3], [8], 0.0, "b"), ([4],)]
    group = Group(tuple(record(*turns, outcome=r, fresh_context=r > 0) for r in (0.0, 1.0, 0.0, 1.0)))
    for index, (trajectory, credit) in enumerate(zip(group.trajectories, price(group), strict=True)):
        assert not credit.advantage.total[~trajectory.credit_mask].any()
        if price.is_complete:
            assert credit.credit.total.sum() == pytest.approx(group.rewards[index] - price.start(group, index))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_unscored_members_change_nothing_bit_for_bit(price, seed, record):
    if price.name == "counterfactual":
        return  # compares pairs, not members: its own tests have this case
    rng = np.random.default_rng(seed)
    members = [record(*turns, outcome=outcome) for turns, outcome in random_group(rng, unscored=0.4)]
    scored = [t for t in members if t.reward is not None]
    alone = price(Group(tuple(scored)))
    among = [c for t, c in zip(members, price(Group(tuple(members))), strict=True) if t.reward is not None]
    for one, other in zip(alone, among, strict=True):
        for ours, theirs in ((one.credit, other.credit), (one.advantage, other.advantage)):
            assert ours.terms.keys() == theirs.terms.keys()
            assert all(ours.terms[name].tobytes() == theirs.terms[name].tobytes() for name in ours.terms)


def test_an_unscored_member_gets_no_credit_and_keeps_its_charge(price, record):
    broken = record(([1, 2], [7], 0.5), outcome=None, charges=[(2, 4, 0.1, "invalid_json")])
    group = Group((broken, record(([1],), outcome=1.0), record(([2],), outcome=0.0)))
    credit = price(group)[0]
    assert credit.credit.total.tolist() == pytest.approx([0, 0, -0.05, -0.05, 0, 0])
    assert credit.advantage.total.tolist() == pytest.approx([0, 0, -0.1, -0.1, 0, 0])
    assert not any(term_T.any() for name, term_T in credit.credit.terms.items() if not name.startswith("charge:"))


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_credit_is_complete_and_masked_tokens_get_no_advantage(price, seed, record):
    rng = np.random.default_rng(seed)
    group = Group(tuple(record(*turns, outcome=o) for turns, o in random_group(rng, unscored=0.2)))
    teaches = np.isfinite(group.rewards).sum() > 1
    for index, (trajectory, credit) in enumerate(zip(group.trajectories, price(group), strict=True)):
        assert not credit.advantage.total[~trajectory.credit_mask].any()
        assert not credit.credit.total[~trajectory.value_mask].any()
        if price.is_complete:
            scored = teaches and trajectory.reward is not None
            surprise = trajectory.reward - price.start(group, index) if scored else 0
            assert credit.credit.total.sum() == pytest.approx(surprise, abs=1e-12)
        for ledger in (credit.credit, credit.advantage):
            total_T = np.zeros(len(trajectory))
            for term_T in ledger.terms.values():
                total_T += term_T
            assert total_T.tobytes() == ledger.total.tobytes()


def test_pricing_twice_gives_the_same_bits_and_leaves_the_group_as_it_was(price, record):
    group = Group(tuple(record(*turns, outcome=o) for turns, o in random_group(np.random.default_rng(3))))
    before = [t.token_ids.tobytes() + t.turn_rewards.tobytes() for t in group.trajectories]
    first, second = price(group), price(group)
    assert [c.advantage.total.tobytes() for c in first] == [c.advantage.total.tobytes() for c in second]
    assert [t.token_ids.tobytes() + t.turn_rewards.tobytes() for t in group.trajectories] == before


def test_turn_returns_carry_over_feedback_to_earlier_decisions(price, record):
    group = Group(tuple(record(([i], [7, 8]), ([9], [8], float(i == 0)), outcome=0.0) for i in range(4)))
    credits = price(group)
    first_decision = group.trajectories[0].decisions[0]
    paid, unpaid = (credit.advantage.total[first_decision.start] for credit in credits[:2])
    assert paid > 0 > unpaid if price.is_centred else paid > unpaid
    assert not any(credit.credit.terms.get("outcome", np.zeros(1)).any() for credit in credits)
