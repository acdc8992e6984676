from dataclasses import fields
from typing import Any, cast

import pytest

from accredit.credit import AccreditError, Group
from accredit.credit.errors import CreditError
from accredit.credit.functions import CREDIT_FUNCTIONS, Anchored, credit_function, option_names

NAMES = [
    *("broadcast", "reinforce", "grpo", "dr_grpo", "rloo", "anchored", "gae", "vineppo", "gigpo", "mt_grpo"),
    *("turn_verifier", "prm_broadcast", "process", "counterfactual", "exact"),
]


def test_the_names_are_these():
    assert list(CREDIT_FUNCTIONS) == NAMES


def test_every_name_makes_a_function(price):
    assert price(Group(()), charge_scale=0.5) == ()


def test_what_a_function_cannot_do_without_is_named():
    needed = {name: option_names(name, required=True) for name in CREDIT_FUNCTIONS}
    assert {name: options for name, options in needed.items() if options} == {
        "prm_broadcast": ("scores",),
        "exact": ("values",),
    }


@pytest.mark.parametrize("name", NAMES)
def test_values_come_first_where_they_are_an_option(name):
    assert option_names(name).index("values") == 0 if "values" in option_names(name) else True
    assert option_names(name)[-1] == "charge_scale"


def test_options_reach_the_function():
    assert credit_function("anchored", kappa=2.0, lam=0.5) == Anchored(kappa=2.0, lam=0.5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("anchord", {}, "no credit function 'anchord': did you mean 'anchored'"),
        ("zzz", {}, "expected one of broadcast, reinforce, grpo, dr_grpo, rloo, anchored"),
        ("anchored", {"kapa": 1}, "no option 'kapa': did you mean 'kappa'"),
        ("rloo", {"kappa": 1}, "no option 'kappa': expected one of charge_scale"),
        ("anchored", {"kappa": -1.0}, "kappa=-1.0: expected a number of visits of at least 0"),
        ("anchored", {"lam": 1.5}, "lam=1.5: expected lambda between 0"),
        ("anchored", {"scale": "std"}, "scale='std': expected 'none' or 'spread'"),
        ("gae", {"feedback": "drop"}, "feedback='drop': expected one of 'two_masks', 'skipped', 'zeroed'"),
        ("gae", {"lam": -0.1}, "lam=-0.1: expected a number between 0 and 1"),
        ("gae", {"values": "states"}, "A configuration file cannot hold a function: name one of your own as"),
        ("reinforce", {"baseline": "median"}, "baseline='median': expected one of 'none', 'mean', 'value'"),
        ("gigpo", {"gamma": 2.0}, "gamma=2.0: expected a number between 0 and 1"),
        ("mt_grpo", {"weight": float("nan")}, "weight=nan: expected a number of at least 0"),
        ("turn_verifier", {"baseline": "turn"}, "baseline='turn': expected one of 'group', 'position'"),
        (
            "exact",
            {},
            "'exact' needs values: a function of a trajectory, passed in Python",
        ),
        ("exact", {"values": None}, "values=None: expected a function from a trajectory to float64 [T+1]"),
        ("prm_broadcast", {}, "'prm_broadcast' needs scores: a function of a trajectory"),
        ("prm_broadcast", {"scores": "model.pt"}, "scores='model.pt': expected a function from a trajectory"),
    ],
)
def test_a_wrong_name_or_option_is_explained(name, options, message):
    with pytest.raises(CreditError) as caught:
        credit_function(name, **options)
    assert message in str(caught.value)
    assert isinstance(caught.value, AccreditError) and isinstance(caught.value, ValueError)


NUMBERS = [
    (name, field.name)
    for name in NAMES
    for field in fields(cast(Any, CREDIT_FUNCTIONS[name]))
    if isinstance(field.default, (int, float)) and not isinstance(field.default, bool)
]


@pytest.mark.parametrize("wrong", ["2", "two", [1.0], {}, True, float("nan"), float("inf")])
@pytest.mark.parametrize(("name", "option"), NUMBERS)
def test_a_number_that_is_none_is_refused_by_its_name(name, option, wrong):
    needed = {"exact": {"values": len}, "prm_broadcast": {"scores": len}}.get(name, {})
    with pytest.raises(CreditError, match=f"^{option}="):
        credit_function(name, **needed, **{option: wrong})


@pytest.mark.parametrize(
    "options",
    [
        {"rules": None},
        {"rules": "format"},
        {"rules": [["format"]]},
        {"scorers": ["a.b:c"]},
        {"scorers": 5},
        {"reference": "base"},
        {"charged": "no"},
        {"steps": "line", "token_bytes": 5},
    ],
)
def test_what_a_configuration_file_cannot_hold_is_refused_before_anything_is_priced(options):
    with pytest.raises(CreditError, match=next(reversed(options))):
        credit_function("process", **options)
