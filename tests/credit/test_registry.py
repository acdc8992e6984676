import pytest

from accredit.credit import AccreditError, Group
from accredit.credit.errors import CreditError
from accredit.credit.functions import CREDIT_FUNCTIONS, Anchored, credit_function


def test_the_names_are_these():
    assert list(CREDIT_FUNCTIONS) == ["broadcast", "grpo", "dr_grpo", "rloo", "anchored"]


@pytest.mark.parametrize("name", list(CREDIT_FUNCTIONS))
def test_every_name_makes_a_function(name):
    assert credit_function(name, charge_scale=0.5)(Group(())) == ()


def test_options_reach_the_function():
    assert credit_function("anchored", kappa=2.0, lam=0.5) == Anchored(kappa=2.0, lam=0.5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("anchord", {}, "no credit function 'anchord': did you mean 'anchored'"),
        ("zzz", {}, "expected one of broadcast, grpo, dr_grpo, rloo, anchored"),
        ("anchored", {"kapa": 1}, "no option 'kapa': did you mean 'kappa'"),
        ("rloo", {"kappa": 1}, "no option 'kappa': expected one of charge_scale"),
        ("anchored", {"kappa": -1.0}, "kappa=-1.0: expected a number of visits of at least 0"),
        ("anchored", {"lam": 1.5}, "lam=1.5: expected lambda between 0"),
        ("anchored", {"scale": "std"}, "scale='std': expected 'none' or 'spread'"),
    ],
)
def test_a_wrong_name_or_option_is_explained(name, options, message):
    with pytest.raises(CreditError) as caught:
        credit_function(name, **options)
    assert message in str(caught.value)
    assert isinstance(caught.value, AccreditError) and isinstance(caught.value, ValueError)
