"""What is refused before a run, and what is let through."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from accredit.credit import Credit, Ledger
from accredit.credit.functions import CREDIT_FUNCTIONS, credit_function
from accredit.trainer.config import CreditConfig
from accredit.trainer.preflight import PreflightError, check_credit

OUTSIDE = "accredit_preflight_example"


@dataclass(frozen=True)
class Backwards:
    """Group-mean credit with the wrong sign."""

    sign: float = -1.0

    def __call__(self, group, /):
        return tuple(
            Credit(one.credit, Ledger(one.advantage.length, {"outcome": self.sign * one.advantage.total}))
            for one in credit_function("dr_grpo")(group)
        )


def raw_reward(group, /):
    """The reward itself on every decision: right on average, and never silent."""
    priced = []
    for trajectory in group.trajectories:
        paid_T = np.where(trajectory.credit_mask, trajectory.reward or 0.0, 0.0)
        ledger = Ledger(len(trajectory), {"outcome": paid_T})
        priced.append(Credit(ledger, replace(ledger)))
    return tuple(priced)


def raising(group, /):
    """No credit at all."""
    raise ZeroDivisionError("no spread")


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    import sys
    import types

    module = types.ModuleType(OUTSIDE)
    vars(module).update(Backwards=Backwards, raw_reward=raw_reward, raising=raising)
    monkeypatch.setitem(sys.modules, OUTSIDE, module)


@pytest.mark.parametrize("name", sorted(set(CREDIT_FUNCTIONS) - {"exact", "gae", "vineppo", "prm_broadcast"}))
def test_every_function_that_a_configuration_can_name_passes(name):
    assert check_credit(CreditConfig(function=name)) is None


def test_a_gradient_in_the_wrong_direction_is_refused_with_its_cosine():
    with pytest.raises(PreflightError, match=r"cosine -1\.000 with the exact one") as told:
        check_credit(CreditConfig(function=f"{OUTSIDE}:Backwards"))
    assert told.value.exit_code == 2
    assert "credit.check=false" in str(told.value)


def test_credit_where_there_is_nothing_to_learn_is_refused_by_the_name_of_the_case():
    with pytest.raises(PreflightError, match=r"reward constant: all rewards are 0\.7"):
        check_credit(CreditConfig(function=f"{OUTSIDE}:raw_reward"))


def test_whoever_says_so_trains_with_it_all_the_same():
    assert check_credit(CreditConfig(function=f"{OUTSIDE}:raw_reward", check=False)) is None


def test_options_are_part_of_what_is_checked():
    assert check_credit(CreditConfig(function=f"{OUTSIDE}:Backwards", options={"sign": 1.0})) is None


def test_a_function_that_raises_is_refused_with_what_it_raised_on_every_check():
    with pytest.raises(PreflightError, match="length 1: ZeroDivisionError: no spread") as told:
        check_credit(CreditConfig(function=f"{OUTSIDE}:raising"))
    assert "on RandomTree(1): ZeroDivisionError: no spread" in str(told.value)


def test_a_learned_process_reward_is_checked_without_its_scores(tmp_path, make_tiny_llama):
    import torch

    from accredit.trainer.prm import ProcessRewardModel

    model = ProcessRewardModel(make_tiny_llama())
    torch.nn.init.normal_(model.head.weight)
    model.save(tmp_path)
    learned = {"function": "accredit.trainer.prm:prm_credit", "options": {"model": str(tmp_path)}}
    assert check_credit(CreditConfig(**learned)) is None
    with pytest.raises(PreflightError, match="cosine"):
        check_credit(CreditConfig(function=learned["function"], options={**learned["options"], "w_outcome": 0.0}))
