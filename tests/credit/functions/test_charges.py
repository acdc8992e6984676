import numpy as np
import pytest

from accredit.credit import Call, CallStatus, Group, Recorder, StopReason
from accredit.credit.errors import CreditError


def charged_group(record):
    turns = [([1, 2, 3], [7], 0.0, "a"), ([4, 5], [8], 0.0, "b")]
    charges = [(3, 5, 0.1, "invalid_arguments"), (7, 8, 0.2, "timeout"), (3, 4, 0.3, "invalid_arguments")]
    return [record(*turns, outcome=r, charges=charges if r else ()) for r in (1.0, 0.0, 0.0)]


def test_a_charge_stays_on_its_tokens_and_costs_its_amount_once(price, record):
    members = charged_group(record)
    credit = price(Group(tuple(members)))[0]
    arguments_T, timeout_T = np.zeros(11), np.zeros(11)
    arguments_T[3:5], arguments_T[3] = -0.05, -0.05 - 0.3
    timeout_T[7] = -0.2
    assert credit.credit.terms["charge:invalid_arguments"] == pytest.approx(arguments_T)
    assert credit.credit.terms["charge:timeout"] == pytest.approx(timeout_T)
    assert sum(t.sum() for n, t in credit.credit.terms.items() if n.startswith("charge:")) == pytest.approx(-0.6)
    arguments_T[3:5] = -0.4, -0.1
    assert credit.advantage.terms["charge:invalid_arguments"] == pytest.approx(arguments_T)
    assert credit.advantage.terms["charge:timeout"] == pytest.approx(timeout_T)


def test_a_charge_moves_no_other_number(price, record):
    members = charged_group(record)
    plain = record(([1, 2, 3], [7], 0.0, "a"), ([4, 5], [8], 0.0, "b"), outcome=1.0)
    with_charges = price(Group(tuple(members)))
    without = price(Group((plain, *members[1:])))
    for one, other in zip(with_charges, without, strict=True):
        for term, term_T in other.credit.terms.items():
            assert one.credit.terms[term].tobytes() == term_T.tobytes()
        for term, term_T in other.advantage.terms.items():
            assert one.advantage.terms[term].tobytes() == term_T.tobytes()


def test_charges_are_annealed_by_their_scale(price, record):
    group = Group(tuple(charged_group(record)))
    full, half, off = (price(group, charge_scale=scale)[0] for scale in (1.0, 0.5, 0.0))
    assert half.advantage.terms["charge:timeout"] == pytest.approx(full.advantage.terms["charge:timeout"] / 2)
    assert not any(term.startswith("charge:") for term in off.advantage.terms)


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf")])
def test_a_charge_scale_that_is_no_amount_is_refused(price, scale):
    with pytest.raises(CreditError, match="charge_scale"):
        price(Group(()), charge_scale=scale)


def test_a_charge_that_arrived_on_feedback_reaches_the_call_that_caused_it(price):
    recorder = Recorder()
    recorder.prompt([1])
    recorder.decision([2, 3, 4], [-1.0] * 3)
    index = recorder.call(Call(0, 2, 4, "c", "price", None, CallStatus.INVALID_JSON, "not JSON"))
    recorder.feedback([5, 6])
    recorder.charge(4, 6, 0.1, "invalid_json", index)
    recorder.decision([7], [-1.0])
    credit = price(Group((recorder.finish(1.0, StopReason.DONE),)))[0]
    assert credit.advantage.total.tolist() == pytest.approx([0, 0, -0.1, -0.1, 0, 0, 0])
