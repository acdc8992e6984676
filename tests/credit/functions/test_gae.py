import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit import Group
from accredit.credit.functions import GAE, Reinforce
from accredit.credit.functions.discount import discounted_sums
from accredit.credit.functions.moves import book_luck, value_moves

FORMS = ["two_masks", "skipped", "zeroed"]


def random_trajectory(rng, record):
    turns = [
        (
            rng.integers(0, 9, rng.integers(1, 4)).tolist(),
            rng.integers(10, 19, rng.integers(0, 4)).tolist(),
            float(rng.random()),
        )
        for _ in range(rng.integers(1, 5))
    ]
    return record(*turns, outcome=float(rng.random()))


def random_values(rng):
    def values(trajectory):
        return np.append(rng.random(len(trajectory)), trajectory.reward)

    return values


def fixed(value_T1):
    return lambda trajectory: value_T1


def by_recursion(trajectory, value_T1, gamma, lam, feedback):
    """The textbook loop, last token first, one branch a form."""
    mask_T, length = trajectory.credit_mask, len(trajectory)
    last = {span.turn: span.end - 1 for span in trajectory.spans if feedback == "two_masks" or mask_T[span.start]}
    reward_T = np.zeros(length)
    for turn, paid in enumerate(trajectory.turn_rewards):
        reward_T[last[turn]] += paid
    reward_T[max(last.values())] += trajectory.outcome
    ahead_T1 = value_T1 - np.concatenate([[0.0], np.cumsum(reward_T)])  # what is still to come
    ahead_T1[max(last.values()) + 1 :] = 0.0
    if feedback == "two_masks":
        ahead_T1[max(last.values()) + 1 :] = value_T1[max(last.values()) + 1 :] - trajectory.reward
    advantage_T, trace, next_value = np.zeros(length), 0.0, 0.0
    for t in reversed(range(length)):
        if feedback == "zeroed" and not mask_T[t]:
            trace, next_value = reward_T[t] + gamma * next_value + gamma * lam * trace, 0.0
        if not mask_T[t]:
            continue
        after = ahead_T1[t + 1] if feedback == "two_masks" else next_value
        trace = reward_T[t] + gamma * after - ahead_T1[t] + gamma * lam * trace
        advantage_T[t], next_value = trace, ahead_T1[t]
    return advantage_T


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    gamma=st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    lam=st.sampled_from([0.0, 0.3, 0.95, 1.0]),
    feedback=st.sampled_from(FORMS),
)
def test_every_form_is_the_textbook_recursion(seed, gamma, lam, feedback, record):
    rng = np.random.default_rng(seed)
    trajectory = random_trajectory(rng, record)
    value_T1 = random_values(rng)(trajectory)
    (credit,) = GAE(fixed(value_T1), lam, gamma, feedback)(Group((trajectory,)))
    expected_T = by_recursion(trajectory, value_T1, gamma, lam, feedback)
    assert credit.advantage.total == pytest.approx(expected_T, abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), lam=st.sampled_from([0.0, 0.9]), feedback=st.sampled_from(FORMS))
def test_credit_sums_to_the_surprise_whatever_lambda(seed, lam, feedback, record):
    rng = np.random.default_rng(seed)
    trajectory = random_trajectory(rng, record)
    value_T1 = random_values(rng)(trajectory)
    (credit,) = GAE(fixed(value_T1), lam, feedback=feedback)(Group((trajectory,)))
    start = value_T1[0 if feedback == "two_masks" else trajectory.decisions[0].start]
    assert credit.credit.total.sum() == pytest.approx(trajectory.reward - start)
    assert not credit.credit.total[~trajectory.value_mask].any()


@pytest.mark.parametrize("feedback", FORMS)
def test_values_inside_feedback_and_template_move_no_advantage(feedback, record):
    rng = np.random.default_rng(0)
    trajectory = record(([1, 2], [7, 8, 9], 0.3), ([3], [7, 8, 9], 0.1), ([4, 5],), outcome=0.5)
    value_T1 = random_values(rng)(trajectory)
    noisy_T1 = value_T1.copy()
    mask_T = trajectory.credit_mask
    inside_T = ~mask_T & ~np.append(False, mask_T[:-1])  # neither before a decision token nor right after one
    assert inside_T.sum() > 6
    noisy_T1[:-1][inside_T] = rng.normal(size=inside_T.sum()) * 100
    plain, noisy = (GAE(fixed(v), 0.9, feedback=feedback)(Group((trajectory,)))[0] for v in (value_T1, noisy_T1))
    assert plain.advantage.total.tobytes() == noisy.advantage.total.tobytes()


def test_lambda_one_with_skipped_feedback_is_reinforce_with_a_state_value(record):
    rng = np.random.default_rng(1)
    trajectory = random_trajectory(rng, record)
    values = fixed(random_values(rng)(trajectory))
    one, other = (
        f(Group((trajectory,)))[0].advantage.total
        for f in (GAE(values, lam=1.0, feedback="skipped"), Reinforce(values, "value"))
    )
    assert one == pytest.approx(other, abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-10, 10), max_size=70), st.sampled_from([0.0, 1e-200, 0.5, 0.99, 1.0]))
def test_discounted_sums_are_those_of_the_loop(values, factor):
    expected, later = [], 0.0
    for value in reversed(values):
        later = value + factor * later
        expected.append(later)
    assert discounted_sums(np.array(values, dtype=np.float64), factor) == pytest.approx(expected[::-1], abs=1e-9)


def test_moves_on_prompt_and_template_are_booked_as_one_by_one(record):
    trajectory = record(([1, 2], [7]), ([3], [8, 9]), outcome=1.0)
    value_T1 = np.append(np.random.default_rng(0).normal(size=len(trajectory)), 1.0)
    moves, one_by_one_T = value_moves(trajectory, value_T1), np.zeros(len(trajectory))
    feedback_T = trajectory.value_mask & ~trajectory.credit_mask
    one_by_one_T[feedback_T] = np.diff(value_T1)[feedback_T]
    for token in np.flatnonzero(~trajectory.value_mask).tolist():
        book_luck(trajectory, token + 1, float(np.diff(value_T1)[token]), one_by_one_T)
    assert moves.luck == pytest.approx(one_by_one_T)
    assert moves.luck.sum() + moves.skill.sum() == pytest.approx(1.0 - value_T1[0])
