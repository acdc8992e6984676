import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from accredit.credit.functions.trie import SharedPrefix, shared_prefixes


def arrays(*runs):
    return [np.array(run, dtype=np.int32) for run in runs]


def test_runs_part_at_the_branching_token():
    found = shared_prefixes(arrays([1, 2, 3, 4], [1, 2, 3, 5], [1, 9], [1, 2, 3, 4]))
    assert set(found) == {
        SharedPrefix((0, 1, 2, 3), 0, 1),
        SharedPrefix((0, 1, 3), 2, 3),
        SharedPrefix((0, 3), 4, 4),
    }


def test_a_run_that_ends_leaves_the_others_to_go_on():
    assert set(shared_prefixes(arrays([1], [1, 2], [1, 2]))) == {
        SharedPrefix((0, 1, 2), 0, 1),
        SharedPrefix((1, 2), 2, 2),
    }


def test_one_run_shares_nothing():
    assert shared_prefixes(arrays([1, 2])) == []


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=2, max_size=6))
def test_every_set_is_the_runs_with_one_prefix(runs):
    for members, first, last in shared_prefixes(arrays(*runs)):
        prefix = runs[members[0]][:last]
        assert 0 <= first <= last == len(prefix)
        assert members == tuple(i for i, run in enumerate(runs) if run[:first] == prefix[:first])
        assert all(runs[m][:last] == prefix for m in members)
        assert len({tuple(runs[m][: last + 1]) for m in members}) > 1 or any(len(runs[m]) == last for m in members)
