"""The assertions that a user's own tests call: they pass what is right and name what is wrong."""

import numpy as np
import pytest

from accredit.credit import Credit, CreditError, Group, Ledger
from accredit.credit.functions import CREDIT_FUNCTIONS, Exact, credit_function
from accredit.credit.testing import assert_boundary_cases, check_axioms


def raw_reward(group: Group, /) -> tuple[Credit, ...]:
    """The plain return on every decision token, unscored counted as 0."""
    priced = []
    for trajectory in group.trajectories:
        amount_T = np.where(trajectory.credit_mask, trajectory.reward or 0.0, 0.0)
        priced.append(Credit(*(Ledger(len(trajectory), {"outcome": amount_T.copy()}) for _ in range(2))))
    return tuple(priced)


def test_exact_credit_passes_everything_at_rounding():
    found = check_axioms(factory=lambda process: Exact(values=process.values), tolerance=1e-9, most_groups=60)
    assert len(found) == 3 * 6 and max(residual.value or 0.0 for residual in found) < 1e-9
    assert_boundary_cases(factory=lambda process: Exact(values=process.values))


@pytest.mark.parametrize("name", [n for n in CREDIT_FUNCTIONS if n not in ("exact", "prm_broadcast", "counterfactual")])
def test_registered_functions_pass_the_boundary_cases(name):
    assert_boundary_cases(credit_function(name))


def test_an_axiom_that_fails_is_named_with_its_residual_and_place():
    with pytest.raises(AssertionError, match=r"causality of the credit: .* on Branching") as caught:
        check_axioms(credit_function("grpo"), axioms=["causality"], most_groups=60)
    assert "worst at token" in str(caught.value) and "completeness" not in str(caught.value)


def test_axioms_that_are_not_asked_for_do_not_fail():
    check_axioms(credit_function("rloo"), axioms=["policy invariance", "completeness"], tolerance=1e-9)


def test_the_raw_reward_fails_the_boundary_cases_by_name():
    with pytest.raises(AssertionError) as caught:
        assert_boundary_cases(raw_reward)
    said = str(caught.value)
    assert "reward constant: all rewards are 0.7" in said and "a group of one: " in said and "length 1: " in said
    assert "reward always 0" not in said


def test_a_function_that_raises_fails_with_its_own_words():
    def broken(group: Group, /) -> tuple[Credit, ...]:
        raise KeyError("spread")

    with pytest.raises(AssertionError, match="KeyError: 'spread'"):
        assert_boundary_cases(broken)


def test_an_unknown_axiom_gets_the_nearest():
    with pytest.raises(CreditError, match="no axiom 'casuality': did you mean 'causality'"):
        check_axioms(raw_reward, axioms=["casuality"])


def test_exactly_one_of_function_and_factory_is_expected():
    for given in ({}, {"function": raw_reward, "factory": lambda process: raw_reward}):
        with pytest.raises(CreditError, match="exactly one of function and factory"):
            assert_boundary_cases(**given)
