"""The assertions that a user's own tests call: they pass what is right and name what is wrong."""

import numpy as np
import pytest

from accredit.credit import Credit, CreditError, Group, Ledger
from accredit.credit.exact import ChainProcess
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


def test_a_raw_reward_as_the_advantage_of_a_lone_trajectory_is_seen():
    def lone(group: Group, /) -> tuple[Credit, ...]:
        if len(group) > 1:
            return credit_function("rloo")(group)
        (found,) = raw_reward(group)
        nothing = Ledger(found.credit.length, {"outcome": np.zeros(found.credit.length)})
        return (Credit(nothing, found.advantage),)

    with pytest.raises(
        AssertionError, match="a group of one: the advantage of a lone trajectory moves by 1 when"
    ) as told:
        assert_boundary_cases(lone)
    assert str(told.value).startswith("1 of 6")


def test_a_group_in_which_nobody_is_scored_is_a_boundary_case():
    def careless(group: Group, /) -> tuple[Credit, ...]:
        assert np.isfinite(group.rewards).any(), "mean of nothing"
        return credit_function("rloo")(group)

    with pytest.raises(AssertionError, match="unscored members: AssertionError: mean of nothing"):
        assert_boundary_cases(careless)


@pytest.mark.parametrize("nothing", [{"axioms": []}, {"processes": []}])
def test_a_check_of_nothing_is_refused(nothing):
    with pytest.raises(CreditError, match=f"{next(iter(nothing))} is empty: nothing would be checked"):
        check_axioms(credit_function("rloo"), **nothing)


def test_an_axiom_that_no_process_can_measure_does_not_pass_in_silence():
    chain = ChainProcess(1, 1)
    with pytest.raises(CreditError, match=r"scale stability was measured on none of Chain"):
        check_axioms(credit_function("rloo"), axioms=["scale stability"], processes=[chain])
    assert len(check_axioms(credit_function("rloo"), axioms="completeness", processes=[chain])) == 6


def test_an_unknown_axiom_gets_the_nearest():
    with pytest.raises(CreditError, match="no axiom 'casuality': did you mean 'causality'"):
        check_axioms(raw_reward, axioms=["casuality"])


def test_exactly_one_of_function_and_factory_is_expected():
    for given in ({}, {"function": raw_reward, "factory": lambda process: raw_reward}):
        with pytest.raises(CreditError, match="exactly one of function and factory"):
            assert_boundary_cases(**given)
