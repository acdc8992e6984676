"""pass@k, and intervals that know that several samples of one task are not independent.

No logging and no files. Words: a task has `n` scored samples, `c` of which succeed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .evaluation import wilson

__all__ = ["Proportion", "clustered", "pass_at_k"]


class Proportion(NamedTuple):
    """A share with its 95 % interval, over `tasks` tasks."""

    value: float
    low: float
    high: float
    tasks: int


def pass_at_k(n_K: Sequence[int], c_K: Sequence[int], k: int) -> NDArray[np.float64]:
    """Return, for each task with n >= k, the unbiased estimate of the chance that one of k samples succeeds.

    1 - C(n - c, k) / C(n, k), as the product of 1 - k / i for i in (n - c, n] (Chen et al. 2021, Evaluating Large
    Language Models Trained on Code, equation 1).

    Args:
        n_K: scored samples of each of K tasks.
        c_K: successes among them, 0 <= c <= n.
        k: samples, at least 1.

    Returns:
        float64, one value a task with n >= k; tasks with fewer samples say nothing of k and are left out.

    Raises:
        ValueError: k is below 1, or a task has more successes than samples.

    """
    if k < 1:
        raise ValueError(f"k is {k}, expected at least 1")
    wrong = [(n, c) for n, c in zip(n_K, c_K, strict=True) if not 0 <= c <= n]
    if wrong:
        raise ValueError(f"a task has {wrong[0][1]} successes in {wrong[0][0]} samples")
    chances = [
        1.0 if n - c < k else 1.0 - float(np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))
        for n, c in zip(n_K, c_K, strict=True)
        if n >= k
    ]
    return np.array(chances, dtype=np.float64)


def clustered(values_K: Sequence[float] | NDArray[np.float64], samples: int = 1) -> Proportion:
    """Return the mean of one value in [0, 1] a task, and its 95 % interval.

    Tasks are drawn, samples only within them, so the variance is that between tasks. Wilson's interval is taken at the
    effective number of trials, p (1 - p) / variance of the mean (Kish 1965, section 8.2: the design effect), which is
    the number of tasks where samples of a task agree or there is one of each, and at most tasks x `samples`.

    Args:
        values_K: float64 [K], such as each task's share of successes.
        samples: samples of a task.

    """
    found_K = np.asarray(values_K, dtype=np.float64)
    tasks = len(found_K)
    if not tasks:
        return Proportion(float("nan"), 0.0, 1.0, 0)
    mean = float(found_K.mean())
    variance = float(found_K.var()) / tasks
    trials = float(tasks)
    if variance > 0:
        trials = min(max(mean * (1 - mean) / variance, trials), tasks * max(samples, 1))
    low, high = wilson(mean * trials, trials)
    return Proportion(mean, low, high, tasks)
