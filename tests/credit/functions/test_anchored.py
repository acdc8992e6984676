import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import Group
from accredit.credit.exact import ChainProcess
from accredit.credit.functions import credit_function


def price(group, **options):
    return credit_function("anchored", **options)(group)


def by_turn(trajectory, ledger):
    """The value that all decision tokens of each turn share."""
    found = []
    for span in trajectory.decisions:
        (value,) = set(ledger.total[span.start : span.end].tolist())
        found.append(value)
    return found


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kappa", [0.0, 1.0])
def test_without_anchors_it_is_reinforce_with_the_mean_of_the_others(lam, kappa, record):
    rewards = [1.0, 0.0, 0.3, 0.7]
    group = Group(tuple(record(([i, 9], [7]), ([8],), outcome=r) for i, r in enumerate(rewards)))
    baseline = credit_function("rloo")(group)
    for ours, theirs in zip(price(group, lam=lam, kappa=kappa), baseline, strict=True):
        assert ours.advantage.total == pytest.approx(theirs.advantage.total, abs=1e-12)


def test_states_tell_the_turns_apart(record):
    """Two rollouts reach the good state, one of them wins; two reach the bad state and lose."""
    members = [([1], "good", [3], 1.0), ([2], "good", [4], 0.0), ([5], "bad", [3], 0.0), ([6], "bad", [4], 0.0)]
    group = Group(tuple(record((d, [7], 0.0, key), (e,), outcome=r) for d, key, e, r in members))
    credits = price(group, kappa=0.0)
    assert by_turn(group.trajectories[0], credits[0].credit) == pytest.approx([0.25, 0.5])
    assert by_turn(group.trajectories[1], credits[1].credit) == pytest.approx([0.25, -0.5])
    assert by_turn(group.trajectories[2], credits[2].credit) == pytest.approx([-0.25, 0.0])
    # the value a turn is compared against leaves out what the rollout itself reached
    assert by_turn(group.trajectories[0], credits[0].advantage) == pytest.approx([0.5 - (0.5 + 0 + 0) / 3, 1.0 - 0.0])


def test_few_visits_are_shrunk_toward_the_previous_anchor(record):
    members = [([1], "good", 1.0), ([2], "good", 1.0), ([5], "bad", 0.0), ([6], "bad", 0.0)]
    group = Group(tuple(record((d, [7], 0.0, key), ([i],), outcome=r) for i, (d, key, r) in enumerate(members)))
    for kappa in (0.0, 1.0, 6.0):
        good = (2 * 1.0 + kappa * 0.5) / (2 + kappa)
        assert by_turn(group.trajectories[0], price(group, kappa=kappa)[0].credit) == pytest.approx(
            [good - 0.5, 1 - good]
        )


def test_a_state_that_one_rollout_visited_is_no_anchor(record):
    group = Group(tuple(record(([i], [7], 0.0, f"own{i}"), ([8],), outcome=float(i == 0)) for i in range(4)))
    first, second = by_turn(group.trajectories[0], price(group)[0].advantage)
    assert first == second == pytest.approx(1.0)


def test_the_branching_token_gets_the_credit_of_a_shared_prefix(record):
    runs = [([1, 2, 3, 4], 1.0), ([1, 2, 3, 4], 1.0), ([1, 2, 5, 4], 0.0), ([1, 2, 5, 4], 0.0)]
    group = Group(tuple(record((decision,), outcome=r) for decision, r in runs))
    credit = price(group)[0]
    assert credit.credit.total.tolist() == pytest.approx([0, 0, 0, 0, 0.5, 0, 0])
    assert credit.advantage.total.tolist() == pytest.approx([0, 0, 0, 0, 2 / 3, 0, 0])


def test_luck_is_booked_on_feedback_and_never_reaches_the_advantage(record):
    """All take the same decision; a coin of the environment decides."""
    members = [([7], "heads", 1.0), ([8], "tails", 0.0)] * 2
    for lam in (0.0, 0.5, 1.0):
        group = Group(tuple(record(([1, 2], feedback, 0.0, key), ([3],), outcome=r) for feedback, key, r in members))
        for credit, reward in zip(price(group, kappa=0.0, lam=lam), (1.0, 0.0, 1.0, 0.0), strict=True):
            assert not credit.advantage.total.any()
            assert credit.credit.total.tolist() == pytest.approx([0, 0, 0, 0, reward - 0.5, 0, 0, 0])
            assert credit.credit.terms["luck"].sum() == pytest.approx(reward - 0.5)


def test_luck_without_a_feedback_token_is_booked_on_the_decision_as_luck(record):
    group = Group(tuple(record(([1, 2],), outcome=r) for r in (1.0, 0.0)))
    for credit, luck in zip(price(group), (0.5, -0.5), strict=True):
        assert credit.credit.terms["luck"].tolist() == pytest.approx([0, 0, luck / 2, luck / 2, 0])
        assert not credit.credit.terms["outcome"].any() and not credit.advantage.total.any()


def test_hidden_luck_of_a_turn_is_booked_on_its_feedback(record):
    members = [([1], "whole", 1.0), ([1], "broken", 0.0), ([2], "whole", 1.0), ([2], "broken", 0.0)]
    group = Group(tuple(record((d, [7], 0.0, key), ([3],), outcome=r) for d, key, r in members))
    for credit, (_, _, reward) in zip(price(group, kappa=0.0), members, strict=True):
        assert credit.credit.total.tolist() == pytest.approx([0, 0, 0, reward - 0.5, 0, 0, 0])
        assert not credit.advantage.total.any()


def test_a_turn_reward_is_paid_to_its_turn(record):
    members = [([1], 0.4, [3]), ([2], 0.0, [4]), ([5], 0.4, [3]), ([6], 0.0, [4])]
    group = Group(tuple(record((d, [7], r, "s"), (e,), outcome=0.0) for d, r, e in members))
    credits = price(group)
    assert by_turn(group.trajectories[0], credits[0].credit) == pytest.approx([0.2, 0.0])
    assert by_turn(group.trajectories[1], credits[1].credit) == pytest.approx([-0.2, 0.0])
    assert credits[0].credit.terms["turn"].sum() == pytest.approx(0.2)


def test_lambda_one_mixes_all_later_skill_in(record):
    members = [([1], "good", [3], 1.0), ([2], "good", [4], 0.0), ([5], "bad", [3], 0.2), ([6], "bad", [4], 0.4)]
    group = Group(tuple(record((d, [7], 0.0, key), (e,), outcome=r) for d, key, e, r in members))
    credits = price(group, lam=1.0)
    for index, (trajectory, credit) in enumerate(zip(group.trajectories, credits, strict=True)):
        others = [r for i, (_, _, _, r) in enumerate(members) if i != index]
        assert by_turn(trajectory, credit.advantage)[0] == pytest.approx(members[index][3] - np.mean(others))


def test_spread_scaling_is_a_choice_and_off(record):
    group = Group(tuple(record(([i],), outcome=r) for i, r in enumerate([1.0, 0.0, 0.0, 0.0])))
    plain, scaled = price(group)[0], price(group, scale="spread")[0]
    assert plain.advantage.total.max() == pytest.approx(1.0)
    assert scaled.advantage.total.max() == pytest.approx(1.0 / np.std([1.0, 0.0, 0.0, 0.0]))
    assert scaled.credit.total.tolist() == plain.credit.total.tolist()


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    stretch=st.integers(2, 5),
    lam=st.sampled_from([0.0, 0.5, 1.0]),
    kappa=st.sampled_from([0.0, 1.0]),
    everyone=st.booleans(),
)
def test_null_turns_get_nothing_and_change_no_other_credit(seed, stretch, lam, kappa, everyone, record):
    """A turn that leaves the state as it was, in every rollout or in some, before any turn."""
    rng = np.random.default_rng(seed)
    plain, stretched, null_turns = [], [], []
    stretched_borders = set(rng.integers(0, 4, 2).tolist())
    for _ in range(6):
        keys = [f"{k}{rng.integers(0, 2)}" for k in range(3)]
        turns = [(rng.integers(0, 3, 2).tolist(), [7], 0.0, keys[k] if k < 3 else None) for k in range(4)]
        outcome = float(rng.random() < 0.5)
        here = stretched_borders if everyone or rng.random() < 0.5 else set()
        long, nulls = [], []
        for k, turn in enumerate(turns):
            for _ in range(stretch if k in here else 0):
                nulls.append(len(long))
                long.append((rng.integers(20, 30, 2).tolist(), [8], 0.0, keys[k - 1] if k else "start"))
            long.append(turn)
        plain.append(record(*turns, outcome=outcome, start_key="start"))
        stretched.append(record(*long, outcome=outcome, start_key="start"))
        null_turns.append(nulls)
    before, after = (
        price(Group(tuple(plain)), lam=lam, kappa=kappa),
        price(Group(tuple(stretched)), lam=lam, kappa=kappa),
    )
    for t, u, one, other, nulls in zip(plain, stretched, before, after, null_turns, strict=True):
        kept = [span for k, span in enumerate(u.decisions) if k not in nulls]
        for a, b in zip(t.decisions, kept, strict=True):
            for ours, theirs in ((one.credit, other.credit), (one.advantage, other.advantage)):
                assert theirs.total[b.start : b.end] == pytest.approx(ours.total[a.start : a.end], abs=1e-12)
        for span in (u.decisions[k] for k in nulls):
            assert not other.credit.total[span.start : span.end].any()
            assert not other.advantage.total[span.start : span.end].any()


@pytest.mark.parametrize(("kappa", "settled"), [(0.0, 12), (1.0, 11)])
def test_null_turns_of_a_chain_without_luck_get_exactly_nothing(kappa, settled):
    """The key names the turn here, so only the rollouts tell. What kappa held back is settled in the last turn."""
    process = ChainProcess(turns=12, relevant=4, p=0.7, luck=0.0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        group = process.sample_group(rng, 8)
        visits = Counter(key for trajectory in group.trajectories for key in trajectory.state_keys)
        for trajectory, credit in zip(group.trajectories, price(group, kappa=kappa), strict=True):
            shared = [k for k in range(settled) if visits[trajectory.state_keys[k]] > 1]
            null = [trajectory.decisions[k].start for k in shared if k not in process.relevant_turns]
            assert not credit.advantage.total[null].any()


def test_energy_does_not_grow_with_null_turns():
    """Axiom 5 on Chain without luck: the same four relevant turns among 4, 16 and 32."""
    energies = []
    for turns in (4, 16, 32):
        process = ChainProcess(turns=turns, relevant=4, p=0.7, luck=0.0)
        rng = np.random.default_rng(1)
        credits = itertools.chain.from_iterable(price(process.sample_group(rng, 8)) for _ in range(30))
        energies.append(np.mean([np.square(credit.credit.total).sum() for credit in credits]))
    assert max(energies) < 1.25 * min(energies)  # 240 rollouts a length: their sampling error is 8 %


def test_the_order_of_the_group_does_not_matter(record):
    process, rng = ChainProcess(turns=10, relevant=5, p=0.7, luck=0.1), np.random.default_rng(2)
    group = process.sample_group(rng, 8)
    order = rng.permutation(8)
    shuffled = price(Group(tuple(group.trajectories[i] for i in order)))
    for place, index in enumerate(order):
        assert shuffled[place].advantage.total == pytest.approx(price(group)[index].advantage.total, abs=1e-12)


def test_members_whose_start_has_another_key_or_none_may_stand_in_any_order(record):
    lives = [
        ("s", "s", 1.0),
        (None, "s", 0.0),
        ("s", "u", 0.5),
        (None, "u", 0.2),
    ]  # start, after the first turn, reward
    members = [record(([i], [7], 0.0, k), ([9], [7]), outcome=r, start_key=s) for i, (s, k, r) in enumerate(lives)]
    found = [
        {id(t): np.round(c.advantage.total, 9).tolist() for t, c in zip(order, price(Group(order)), strict=True)}
        for order in itertools.permutations(members)
    ]
    assert all(each == found[0] for each in found)
