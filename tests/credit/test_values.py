import numpy as np
import pytest

from accredit.credit.errors import CreditError
from accredit.credit.values import prefix_values


def test_values_are_read_with_the_reward_as_their_last_entry(record):
    trajectory = record(([1, 2], [7]), outcome=0.7)
    value_T1 = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.7, 0.7], dtype=np.float32).astype(np.float64)
    read = prefix_values(lambda t: value_T1, trajectory)
    assert read.dtype == np.float64 and float(value_T1[-1]) != 0.7
    assert read[-2:].tolist() == [0.7, 0.7]  # the rounded end is no move of the last token
    assert read[:-2].tolist() == value_T1[:-2].tolist()


@pytest.mark.parametrize(
    ("outcome", "values", "told"),
    [
        (None, lambda t: np.zeros(len(t) + 1), "an unscored trajectory has no reward"),
        (0.0, lambda t: np.zeros(len(t)), r"values have shape \(6,\) for 6 tokens, expected \(7,\)"),
        (0.0, lambda t: np.where(np.arange(7) == 3, np.nan, 0.0), "the value before token 3 is not finite"),
        (1.0, lambda t: np.full(7, 0.5), "values end in 0.5, expected the reward 1"),
    ],
)
def test_what_cannot_be_prefix_values_is_refused(outcome, values, told, record):
    with pytest.raises(CreditError, match=told):
        prefix_values(values, record(([1, 2], [7]), outcome=outcome))
