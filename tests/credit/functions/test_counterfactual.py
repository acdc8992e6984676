import dataclasses

import pytest

from accredit.credit import Group
from accredit.credit.errors import CreditError
from accredit.credit.functions import Counterfactual


def member(record, pair, fork_turn, outcome, *turns):
    trajectory = record(*(turns or (([1, 2], [7]), ([3, 4], [8]), ([5],))), outcome=outcome)
    return dataclasses.replace(trajectory, seeds={"sampler": 3, "pair": pair, "fork_turn": fork_turn})


def price(*members):
    return Counterfactual()(Group(members))


def test_the_resampled_turn_gets_the_difference_and_every_other_turn_nothing(record):
    members = [member(record, pair, 1, outcome) for pair, outcome in ((5, 1.0), (6, 0.3), (6, 0.5), (5, 0.25))]
    tokens = [6, 7]  # two of prompt, two decisions, feedback, template, then the decision of turn 1
    for credit, changed in zip(price(*members), (0.75, -0.2, 0.2, -0.75), strict=True):
        expected = [changed if token in tokens else 0.0 for token in range(len(members[0]))]
        assert credit.advantage.total.tolist() == pytest.approx(expected)
        assert credit.credit.total.sum() == pytest.approx(changed)


@pytest.mark.parametrize("luck", [0.0, 0.5, -16.0])
def test_luck_that_both_members_share_changes_no_bit(luck, record):
    plain = price(member(record, 0, 0, 1.0), member(record, 0, 0, 0.25))
    lucky = price(member(record, 0, 0, 1.0 + luck), member(record, 0, 0, 0.25 + luck))
    for one, other in zip(plain, lucky, strict=True):
        assert one.advantage.total.tobytes() == other.advantage.total.tobytes()


def test_members_of_a_pair_may_differ_in_length_after_the_fork(record):
    short = member(record, 0, 0, 0.0, ([9], []))
    long = member(record, 0, 0, 1.0)
    one, other = price(short, long)
    assert one.advantage.total.tolist() == pytest.approx([0, 0, -1, 0])
    assert other.advantage.total[2:4].tolist() == [1.0, 1.0]


def test_a_turn_reward_is_told_apart_from_the_outcome(record):
    one, _ = price(member(record, 0, 0, 1.0, ([1], [7], 0.5)), member(record, 0, 0, 1.0, ([2], [7], 0.0)))
    assert one.credit.terms["turn"].sum() == pytest.approx(0.5) and not one.credit.terms["outcome"].any()


def test_half_a_pair_teaches_nothing_and_changes_no_other_pair(record):
    whole = [member(record, 0, 0, 1.0), member(record, 0, 0, 0.0)]
    alone = price(*whole)
    among = price(member(record, 1, 0, 1.0), whole[0], member(record, 1, 0, None), whole[1], member(record, 2, 1, 1.0))
    for index in (0, 2, 4):
        assert not among[index].credit.total.any() and not among[index].advantage.total.any()
    for one, other in zip(alone, (among[1], among[3]), strict=True):
        assert one.advantage.total.tobytes() == other.advantage.total.tobytes()


def test_a_turn_without_tokens_gets_nothing(record):
    empty = member(record, 0, 1, 1.0, ([1], [7]), ([], [8]))
    beyond = member(record, 0, 1, 0.0, ([1], [7]))
    assert all(not credit.advantage.total.any() for credit in price(empty, beyond))


def test_rollouts_without_pairs_are_refused_with_what_is_needed(record):
    with pytest.raises(CreditError, match=r"none of the 2 trajectories .* carry the seeds 'pair' and 'fork_turn'"):
        price(record(([1],)), record(([2],)))


@pytest.mark.parametrize(("turns", "told"), [((0, 0, 0), "has 3 members"), ((0, 1), r"forked at turns \[0, 1\]")])
def test_a_pair_that_is_none_is_refused(turns, told, record):
    with pytest.raises(CreditError, match=told):
        price(*(member(record, 4, turn, 0.5) for turn in turns))
