import numpy as np
import pytest

from accredit.credit import Group
from accredit.credit.errors import CreditError
from accredit.credit.functions import Exact, credit_function, state_values

MEMBERS = [([1], "good", [3], 1.0), ([2], "good", [4], 0.0), ([5], "bad", [3], 0.0), ([6], "bad", [4], 0.0)]


def two_states(record):
    return Group(tuple(record((d, [7], 0.0, key), (e,), outcome=r) for d, key, e, r in MEMBERS))


def test_a_state_is_worth_the_mean_of_what_came_after_it(record):
    group = two_states(record)
    values = state_values(group, kappa=0.0)
    # prompt, prompt | decision | feedback, template | decision | template
    assert values(group.trajectories[0]).tolist() == pytest.approx([0.25] * 3 + [0.5] * 3 + [1.0] * 2)
    assert values(group.trajectories[2]).tolist() == pytest.approx([0.25] * 3 + [0.0] * 5)


def test_the_value_moves_evenly_over_the_decision_tokens_of_an_interval(record):
    group = Group(tuple(record(([i, 2], [7]), ([3, 4],), outcome=float(i == 0)) for i in range(4)))
    value_T1 = state_values(group)(group.trajectories[0])
    # prompt, prompt | decision, decision | feedback, template | decision, decision | template
    assert value_T1 == pytest.approx(0.25 + 0.75 * np.array([0, 0, 0, 1, 2, 2, 2, 3, 4, 4]) / 4)


def test_doob_on_state_values_is_the_credit_of_anchored(record):
    group = two_states(record)
    pairs = zip(Exact(state_values(group))(group), credit_function("anchored")(group), strict=True)
    for exact, anchored in pairs:
        assert exact.credit.total == pytest.approx(anchored.credit.total, abs=1e-12)


@pytest.mark.parametrize("rewards", [[0.7], [0.7, 0.7, 0.7], [0.7, None]])
def test_a_group_that_teaches_nothing_has_its_reward_as_its_value(rewards, record):
    group = Group(tuple(record(([i], [7], 0.0, "s"), ([2],), outcome=r) for i, r in enumerate(rewards)))
    assert set(state_values(group)(group.trajectories[0]).tolist()) == {0.7}


def test_only_scored_members_of_the_group_have_values(record):
    group = Group((record(([1],), outcome=1.0), record(([2],), outcome=0.0), record(([3],), outcome=None)))
    values = state_values(group)
    for stranger in (record(([1],), outcome=1.0), group.trajectories[2]):
        with pytest.raises(CreditError, match="is no scored member of the group whose states were compared"):
            values(stranger)
    assert state_values(Group(())) is not None


def test_what_is_done_with_a_value_changes_no_other_reading_of_it(record):
    group = two_states(record)
    values = state_values(group)
    values(group.trajectories[0])[:] = 9.0
    assert values(group.trajectories[0]).max() == 1.0
