"""VinePPO, GiGPO, MT-GRPO, verified turns and process scores, by hand-computed figures."""

import numpy as np
import pytest

from accredit.credit import Group
from accredit.credit.errors import CreditError
from accredit.credit.functions import MTGRPO, GiGPO, PRMBroadcast, Reinforce, StepScores, TurnVerifier, VinePPO
from accredit.credit.functions.turns import decided_turns


def by_turn(trajectory, values_T):
    """The value that all decision tokens of each turn share."""
    found = []
    for span in trajectory.decisions:
        (value,) = set(values_T[span.start : span.end].tolist())
        found.append(value)
    return found


def advantages(function, group):
    return [by_turn(t, c.advantage.total) for t, c in zip(group.trajectories, function(group), strict=True)]


def test_what_an_empty_turn_was_paid_goes_to_the_turn_before_it_else_after_it(record):
    trajectory = record(([], [7], 0.1), ([1, 2], [7], 0.2), ([], [7], 0.4), ([3], [], 0.8))
    turns = decided_turns(trajectory)
    assert [span.turn for span in turns.spans] == [1, 3]
    assert turns.paid_N == pytest.approx([0.1 + 0.2 + 0.4, 0.8])
    assert turns.split(np.array([1.0, 2.0])).sum() == 3.0
    assert len(decided_turns(record(([], [7], 0.1)))) == 0


def test_reinforce_takes_the_baseline_that_it_is_told(record):
    group = Group(tuple(record(([i, 1], [7]), ([2],), outcome=r) for i, r in enumerate([1.0, 0.0, 0.5])))
    assert advantages(Reinforce(baseline="none"), group) == [[1.0, 1.0], [0.0, 0.0], [0.5, 0.5]]
    assert advantages(Reinforce(), group) == [[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]]

    def values(trajectory):
        return np.append(np.linspace(0.2, 0.4, len(trajectory)), trajectory.reward)

    first = group.trajectories[0]
    credit = Reinforce(values, "value")(group)[0]
    assert credit.advantage.total == pytest.approx(np.where(first.credit_mask, 1.0 - values(first)[:-1], 0.0))
    assert credit.credit.total.sum() == pytest.approx(1.0 - 0.2)


def test_vineppo_pays_a_turn_what_the_next_start_is_worth_more_than_its_own(record):
    trajectory = record(([1, 2], [7]), ([3], [8]), ([4, 5],), outcome=1.0)
    starts = [span.start for span in trajectory.decisions]
    value_T1 = np.full(len(trajectory) + 1, 77.0)
    value_T1[[*starts, -1]] = 0.2, 0.5, 0.1, 1.0
    (credit,) = VinePPO(lambda t: value_T1)(Group((trajectory,)))
    assert by_turn(trajectory, credit.advantage.total) == pytest.approx([0.3, -0.4, 0.9])
    assert by_turn(trajectory, credit.credit.total) == pytest.approx([0.15, -0.4, 0.45])


def test_gigpo_adds_the_comparison_among_visits_of_a_state(record):
    keys = ["a", "a", "b", "c"]
    group = Group(
        tuple(
            record(([i], [7], 0.0, key), ([9],), outcome=r)
            for i, (key, r) in enumerate(zip(keys, [1.0, 0.0, 1.0, 0.0], strict=True))
        )
    )
    found = advantages(GiGPO(weight=2.0, gamma=0.5), group)
    # episode: R - .5; at the start the returns are half of R, less their mean .25; state a: R - .5; b and c: alone
    assert np.ravel(found) == pytest.approx([0.5 + 0.5, 0.5 + 1.0, -1.0, -1.5, 1.0, 0.5, -1.0, -0.5])
    credits = GiGPO(weight=2.0, gamma=0.5)(group)
    assert [c.credit.terms["outcome"].sum() for c in credits] == pytest.approx([0.5, -0.5, 0.5, -0.5])
    assert [c.credit.terms["step"].sum() for c in credits] == pytest.approx([1.5, -1.5, 0.5, -0.5])


def test_gigpo_counts_every_visit_of_a_state_and_the_start_as_one(record):
    looping = record(([1], [7], 0.0, "start"), ([2], [7], 0.4, "start"), ([3],), outcome=0.6, start_key="start")
    other = record(([1],), outcome=0.0, start_key="start")
    found = advantages(GiGPO(gamma=1.0), Group((looping, other)))
    # returns from the start: 1, 1, .6 and 0; their mean is .65
    assert found[0] == pytest.approx([0.5 + 0.35, 0.5 + 0.35, 0.5 - 0.05])
    assert found[1] == pytest.approx([-0.5 - 0.65])


def test_mt_grpo_compares_turns_by_position_and_outcomes_whole(record):
    group = Group(
        tuple(
            record(([i], [7], r, None), ([9], [8], s), ([5],), outcome=o)
            for i, (r, s, o) in enumerate([(0.2, 0.0, 1.0), (0.0, 0.4, 0.0), (0.4, 0.2, 0.5)])
        )
    )
    plain = np.array(advantages(MTGRPO(weight=0.5, scale="none"), group))
    assert plain[:, 0] == pytest.approx([0.0 + 0.25, -0.2 - 0.25, 0.2 + 0.0])
    assert plain[:, 1] == pytest.approx([-0.2 + 0.25, 0.2 - 0.25, 0.0 + 0.0])
    assert plain[:, 2] == pytest.approx([0.5, -0.5, 0.0])
    scaled = np.array(advantages(MTGRPO(weight=0.0), group))
    assert scaled[:, 0] == pytest.approx(np.array([0.0, -0.2, 0.2]) / np.std([0.0, -0.2, 0.2]))
    credits = MTGRPO()(group)
    mean = group.rewards.mean()
    assert [c.credit.total.sum() for c in credits] == pytest.approx(group.rewards - mean)


def test_a_turn_that_one_member_reached_is_compared_with_nobody(record):
    long, short = record(([1], [7], 0.0), ([2], [7], 0.9), ([3],), outcome=0.0), record(([1], [7], 0.0), ([2],))
    assert advantages(MTGRPO(weight=0.0), Group((long, short)))[0][:2] == [0.0, 0.0]


def test_verified_turns_are_paid_their_own_reward_and_later_ones_less(record):
    group = Group(
        tuple(record(([i], [7], r), ([9], [8], s), outcome=o) for i, (r, s, o) in enumerate([(0.4, 0.2, 1), (0, 0, 0)]))
    )
    own = advantages(TurnVerifier(gamma=0.0), group)
    assert np.ravel(own) == pytest.approx(np.array([0.4, 1.2, 0, 0]) - 0.4)
    halved = advantages(TurnVerifier(gamma=0.5), group)
    assert np.ravel(halved) == pytest.approx(np.array([1.0, 1.2, 0, 0]) - 0.55)
    placed = advantages(TurnVerifier(gamma=0.5, baseline="position"), group)
    assert np.ravel(placed) == pytest.approx([0.5, 0.6, -0.5, -0.6])
    scaled = advantages(TurnVerifier(gamma=0.5, scale="spread"), group)
    assert np.ravel(scaled) == pytest.approx((np.array([1.0, 1.2, 0, 0]) - 0.55) / np.std([1.0, 1.2, 0, 0]))
    credits = TurnVerifier()(group)
    assert credits[0].credit.terms["turn"].sum() == pytest.approx(0.6 - 0.3)
    assert credits[0].credit.terms["outcome"].sum() == pytest.approx(1.0 - 0.5)


def scored(table):
    """Scores by trajectory: (step ids, scores)."""
    return lambda trajectory: StepScores(*(np.array(column) for column in table[int(trajectory.token_ids[0])]))


def test_a_process_score_stays_on_the_decision_tokens_of_its_step(record):
    one, other = record(([1, 2, 3], [7]), outcome=1.0, prompt=(0,)), record(([4], [7]), outcome=0.0, prompt=(1,))
    # step 1 of the first holds a feedback token only: it is dropped before any mean
    table = {0: ([-1, 0, 0, 2, 1, -1], [1.0, 50.0, 0.0]), 1: ([0, 0, 0, 0], [0.5])}
    own, single = PRMBroadcast(scored(table))(Group((one, other)))
    assert own.advantage.total == pytest.approx([0, 0.5, 0.5, -0.5, 0, 0])
    assert own.credit.total == pytest.approx([0, 0.25, 0.25, -0.5, 0, 0])
    assert single.advantage.total == pytest.approx([0, 0, 0, 0])
    raw, _ = PRMBroadcast(scored(table), baseline="none")(Group((one, other)))
    assert raw.advantage.total == pytest.approx([0, 1, 1, 0, 0, 0])
    following, _ = PRMBroadcast(scored(table), scale="spread", reach="following")(Group((one, other)))
    assert following.advantage.total == pytest.approx(np.array([0, 0.0, 0.0, -0.5, 0, 0]) / np.std([1.0, 0.0, 0.5]))


@pytest.mark.parametrize(
    ("steps", "scores", "told"),
    [
        ([0, 0], [1.0], r"step ids have shape \(2,\) and scores \(1,\), expected \(4,\) and \(S,\)"),
        ([-1, 0, 1, -1], [1.0], "step ids run from -1 to 1 for 1 scores, expected -1"),
        ([-2, 0, 0, 0], [1.0], "step ids run from -2 to 0 for 1 scores"),
        ([-1, 0, 0, -1], [np.nan], "the score of step 0 is not finite"),
    ],
)
def test_step_scores_that_do_not_fit_are_refused(steps, scores, told, record):
    group = Group((record(([1], [7]), prompt=(0,)),))
    with pytest.raises(CreditError, match=told):
        PRMBroadcast(scored({0: (steps, scores)}))(group)
