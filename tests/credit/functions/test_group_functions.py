import numpy as np
import pytest

from accredit.credit import Group
from accredit.credit.functions import credit_function


def advantages(name, rewards, record):
    group = Group(tuple(record(([i, 1], [7]), ([2],), outcome=r) for i, r in enumerate(rewards)))
    found = []
    for trajectory, credit in zip(group.trajectories, credit_function(name)(group), strict=True):
        (value,) = set(credit.advantage.total[trajectory.credit_mask].tolist())
        found.append(value)
    return found


@pytest.mark.parametrize(
    ("name", "rewards", "expected"),
    [
        ("grpo", [1, 0, 0, 0], [3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)]),
        ("grpo", [1, 0, 1, 0], [1, -1, 1, -1]),
        ("grpo", [0.2, 0.4, 0.9], [-1.0190493307301363, -0.33968311024337877, 1.3587324409735149]),
        ("dr_grpo", [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("broadcast", [0.2, 0.4, 0.9], [-0.3, -0.1, 0.4]),
        ("rloo", [1, 0, 0, 0], [1, -1 / 3, -1 / 3, -1 / 3]),
        ("rloo", [0.2, 0.4, 0.9], [0.2 - 0.65, 0.4 - 0.55, 0.9 - 0.3]),
    ],
)
def test_every_decision_token_gets_the_published_advantage(name, rewards, expected, record):
    assert advantages(name, rewards, record) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["broadcast", "dr_grpo", "grpo"])
def test_advantages_of_a_group_sum_to_zero(name, record):
    assert sum(advantages(name, [0.1, 0.5, 0.2, 1.0], record)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("gap", [1.0, 1e-3, 1e-6, 1e-9])
def test_a_tiny_spread_never_explodes(gap, record):
    found = advantages("grpo", [0.5 + gap, *[0.5] * 7], record)
    assert max(np.abs(found)) <= 7**0.5 * (1 + 1e-6)  # the bound sqrt(G - 1); rounding of 0.5 + gap
    assert max(np.abs(advantages("rloo", [0.5 + gap, *[0.5] * 7], record))) <= gap * (1 + 1e-6)


def test_the_spread_of_grpo_never_touches_the_credit(record):
    group = Group(tuple(record(([i, 1],), outcome=r) for i, r in enumerate([1.0, 0.0, 0.0, 0.0])))
    assert credit_function("grpo")(group)[0].credit.total.sum() == pytest.approx(0.75)


def test_outcome_and_turn_rewards_are_told_apart(record):
    group = Group((record(([1], [7], 0.5), outcome=1.0), record(([2], [7], 0.0), outcome=0.0)))
    credit = credit_function("broadcast")(group)[0].credit
    assert credit.terms["outcome"].sum() == pytest.approx(0.5)
    assert credit.terms["turn"].sum() == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grpo", {}),
        ("mt_grpo", {}),
        ("gigpo", {"scale": "spread", "gamma": 1.0}),
        ("turn_verifier", {"scale": "spread"}),
        ("anchored", {"scale": "spread"}),
        ("process", {"normalise": "group"}),
    ],
)
@pytest.mark.filterwarnings("ignore::accredit.credit.process.UnsafeChoiceWarning")
def test_equal_sums_that_were_added_in_another_order_teach_nothing(name, options, record):
    rng, paid = np.random.default_rng(0), [0.1] * 12 + [-0.1] * 12 + [0.3] * 3 + [-0.2, -0.5, -0.3]
    members = [record(*(([1], [7], r) for r in rng.permutation(paid).tolist()), outcome=0.0) for _ in range(8)]
    assert len({trajectory.reward for trajectory in members}) > 1  # rounding tells them apart
    for credit in credit_function(name, **options)(Group(tuple(members))):
        assert not credit.advantage.total.any()
        assert not credit.credit.total.any()


@pytest.mark.parametrize("gap", [1e-200, 1e200])
def test_the_spread_of_rewards_far_from_1_is_their_spread(gap, record):
    assert advantages("grpo", [gap, 0.0, 0.0, 0.0], record) == pytest.approx([3**0.5, *[-(3**-0.5)] * 3])
