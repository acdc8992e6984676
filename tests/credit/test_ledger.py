import numpy as np
import pytest

from accredit.credit import Ledger, SpanError


def test_the_total_is_the_sum_of_the_terms_exactly():
    rng = np.random.default_rng(0)
    terms = {name: rng.normal(size=50) for name in ("outcome", "turn", "luck", "charge:timeout")}
    expected_T = ((terms["outcome"] + terms["turn"]) + terms["luck"]) + terms["charge:timeout"]
    assert Ledger(50, terms).total.tobytes() == expected_T.tobytes()


def test_a_ledger_without_terms_is_zero():
    assert Ledger(3, {}).total.tolist() == [0.0, 0.0, 0.0]


def test_terms_cannot_be_written_to():
    ledger = Ledger(2, {"outcome": np.zeros(2)})
    with pytest.raises(ValueError, match="read-only"):
        ledger.terms["outcome"][0] = 1.0


@pytest.mark.parametrize(
    ("term_T", "message"), [(np.zeros(3), "shape"), (np.array([0.0, np.nan]), "not finite at token 1")]
)
def test_a_term_that_does_not_fit_is_refused(term_T, message):
    with pytest.raises(SpanError, match=message):
        Ledger(2, {"outcome": term_T})
