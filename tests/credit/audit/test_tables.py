"""The two known tables, measured again: public estimators on two turns and a coin, and gradients on chains."""

import numpy as np
import pytest

from accredit.credit.audit import chain_table, literature_table, make_for, measure_signals, probe, two_turn_figures
from accredit.credit.audit.two_turn import LITERATURE, ordering
from accredit.credit.exact import branching, random_tree, two_turn

TABLE = literature_table()
DEVIATION = {"GRPO with std": np.sqrt(64 / 63), "MT-GRPO": np.sqrt(64 / 63)}  # of a population against a sample of 64


@pytest.mark.parametrize(("row", "ours"), TABLE, ids=[row.name for row, _ in TABLE])
def test_two_turn_figures_are_the_known_ones(row, ours):
    residual, null, luck, balance = row.known
    # a standardised advantage A is larger by the ratio d, so |A - skill| by at most (d - 1) |A|
    assert ours.residual == pytest.approx(residual, rel=DEVIATION.get(row.name, 1.0) - 1 + 1e-3, abs=0.0055)
    for known, found, digits in ((null, ours.null_ratio, 2), (luck, ours.luck_share, 3), (balance, ours.balance, 2)):
        assert (found is None) == (known is None)
        if known is not None:
            assert found == pytest.approx(known, abs=0.6 * 10**-digits)


def test_the_ordering_of_the_estimators_is_the_known_one():
    known = sorted(LITERATURE, key=lambda row: row.known[0])
    assert ordering({row.name: ours for row, ours in TABLE}) == [row.name for row in known]


def test_a_missing_turn_shows_in_direction_and_an_unbiased_estimator_points_right():
    cosines = {row.name: ours.cosine for row, ours in TABLE}
    assert cosines["GAE, V = 0 on feedback"] == pytest.approx(0.6)
    assert cosines["MT-GRPO"] < 0.95
    assert min(cosines[name] for name in cosines if name not in ("GAE, V = 0 on feedback", "MT-GRPO")) > 1 - 1e-9


def test_two_masks_make_gae_exact():
    assert two_turn_figures(make_for("gae", lam=0.0)).residual == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("process", [two_turn(), branching(), random_tree(1, depth=4)], ids=lambda p: p.name)
def test_flipping_a_decision_moves_exact_credit_rightly_and_deleting_a_null_turn_moves_nothing(process):
    found = probe(process, make_for("exact"), groups=10)
    assert found.flips > 10 and found.right >= 0.95
    assert found.moved_by_deletion < 1e-9


def test_broadcast_credit_moves_when_a_null_turn_is_deleted():
    assert probe(two_turn(), make_for("broadcast"), groups=10).moved_by_deletion > 0.05


def test_chain_table_orders_group_mean_anchored_and_exact():
    """The small version; the audit measures it with more groups. Bounds leave the error of few groups."""
    rows = chain_table(groups=12)
    assert [(row.process.turns, row.size) for row, _ in rows] == [(8, 8), (20, 8), (20, 16), (40, 8)]
    for row, ours in rows:
        group_mean, anchored, exact = (one.signal_to_noise for one in ours)
        assert group_mean < anchored < exact
        assert exact == pytest.approx(row.known[2], rel=0.35)


def test_a_function_needs_more_episodes_the_longer_the_task():
    signals = measure_signals({"mean": make_for("dr_grpo"), "exact": make_for("exact")}, groups=25)
    assert list(signals["exact"].episodes.values()) == pytest.approx([1, 1, 1])
    assert 1 < signals["mean"].episodes[4] < signals["mean"].episodes[16]
    assert all(share < 0.6 for share in signals["mean"].relative.values())
