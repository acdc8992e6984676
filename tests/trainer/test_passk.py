"""pass@k against counting all subsets, and the coverage of the interval against the nominal 95 %."""

from itertools import combinations

import numpy as np
import pytest

from accredit.trainer.evaluation import wilson
from accredit.trainer.passk import clustered, pass_at_k


@pytest.mark.parametrize(("n", "c", "k"), [(5, 0, 1), (5, 2, 1), (5, 2, 2), (6, 1, 4), (6, 5, 2), (4, 4, 3), (7, 3, 7)])
def test_pass_at_k_is_the_share_of_subsets_with_a_success(n, c, k):
    samples = [1] * c + [0] * (n - c)
    subsets = [max(subset) for subset in combinations(samples, k)]
    assert pass_at_k([n], [c], k)[0] == pytest.approx(sum(subsets) / len(subsets), abs=1e-12)


def test_pass_at_k_is_unbiased_where_the_plug_in_is_not():
    rng = np.random.default_rng(0)
    chance, n, k = 0.2, 5, 3
    c = rng.binomial(n, chance, 40_000)
    true = 1 - (1 - chance) ** k
    assert pass_at_k([n] * len(c), c.tolist(), k).mean() == pytest.approx(true, abs=0.005)  # 3 standard errors
    assert abs(np.mean(1 - (1 - c / n) ** k) - true) > 0.02


def test_tasks_with_fewer_samples_than_k_are_left_out():
    assert len(pass_at_k([1, 4], [1, 1], 2)) == 1
    with pytest.raises(ValueError, match="5 successes in 4 samples"):
        pass_at_k([4], [5], 1)


def test_one_sample_a_task_gives_wilsons_interval():
    found = clustered([1.0] * 7 + [0.0] * 13)
    assert (found.low, found.high) == pytest.approx(wilson(7, 20))


def test_samples_that_agree_are_worth_one_and_certainty_is_not_claimed():
    agreeing = clustered([1.0, 0.0] * 10, samples=16)
    assert (agreeing.low, agreeing.high) == pytest.approx(wilson(10, 20))
    assert clustered([1.0] * 20, samples=16).low == pytest.approx(wilson(20, 20)[0])


def test_the_interval_covers_where_independent_samples_would_not():
    rng = np.random.default_rng(1)
    tasks, samples, runs = 40, 8, 600
    ours = naive = 0
    for _ in range(runs):
        chances = rng.beta(0.5, 0.5, tasks)  # some tasks nearly always, others nearly never: mean 0.5
        c = rng.binomial(samples, chances)
        found = clustered(c / samples, samples)
        ours += found.low <= 0.5 <= found.high
        low, high = wilson(c.sum(), tasks * samples)
        naive += low <= 0.5 <= high
    assert 0.93 <= ours / runs <= 0.975  # 3 standard errors of 0.95 are 0.027
    assert naive / runs < 0.7
