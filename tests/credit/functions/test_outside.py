import sys

import pytest

from accredit.credit import Group
from accredit.credit.errors import CreditError
from accredit.credit.functions import credit_function

SOURCE = """
class Mine:
    def __init__(self, weight=1.0, charge_scale=1.0):
        if weight < 0:
            raise ValueError("weight is negative")
        self.weight, self.charge_scale = weight, charge_scale

    def __call__(self, group):
        return (self.weight, self.charge_scale, len(group))


def priced(group, weight=1.0):
    return (weight, len(group))


def strong(group, strength, *, hue):
    return (strength, hue)


def unlucky():
    raise FileNotFoundError("no model here")


def made(*, weight=1.0, **more):
    return lambda group: (weight, more, len(group))


ready = Mine(3.0)


def not_a_function(weight=1.0):
    return weight
"""


@pytest.fixture
def module(tmp_path, monkeypatch, request):
    name = f"outside_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    (tmp_path / "outside_broken.py").write_text("import no_such_package_at_all\n")
    (tmp_path / "outside_failing.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    return name


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("Mine", {"weight": 2.0, "charge_scale": 0.5}, (2.0, 0.5, 0)),
        ("priced", {}, (1.0, 0)),
        ("priced", {"weight": 2.0, "charge_scale": 1.0}, (2.0, 0)),
        ("made", {"weight": 2.0, "charge_scale": 0.5}, (2.0, {"charge_scale": 0.5}, 0)),
        ("ready", {"charge_scale": 1.0}, (3.0, 1.0, 0)),
    ],
)
def test_classes_functions_and_makers_are_told_apart(module, name, options, expected):
    assert credit_function(f"{module}:{name}", **options)(Group(())) == expected


def test_the_working_directory_is_searched_only_while_it_is_looked_for(module, tmp_path):
    before = list(sys.path)
    credit_function(f"{module}:priced")
    assert sys.path == before


def test_a_working_directory_that_was_on_the_path_keeps_its_place(module, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.path)
    credit_function(f"{module}:priced")
    assert sys.path == before


@pytest.mark.parametrize(
    ("path", "options", "told"),
    [
        ("no_such_place:x", {}, "there is no module 'no_such_place' on Python's path or in"),
        ("no_such_place.below:x", {}, "there is no module 'no_such_place'"),
        ("outside_broken:x", {}, "importing outside_broken failed: No module named 'no_such_package_at_all'"),
        ("outside_failing:x", {}, "importing outside_failing failed: ZeroDivisionError: division by zero"),
        ("MODULE:pricedd", {}, "has no 'pricedd': did you mean 'priced'?"),
        ("MODULE:SOURCE_", {}, "has no 'SOURCE_'"),
        ("math:pi", {}, "pi is a float, expected a class or a function"),
        ("MODULE:priced", {"wait": 1}, "has no option 'wait': did you mean 'weight'?"),
        ("MODULE:priced", {"charge_scale": 0.5}, "takes no charge_scale, so charges cannot be scaled to 0.5"),
        ("MODULE:Mine", {"weight": -1.0}, "cannot be made with {'weight': -1.0}: weight is negative"),
        ("MODULE:not_a_function", {}, "made a float, expected a function from a group to its credit"),
        ("MODULE:strong", {}, "needs the option 'strength' and 'hue'"),
        ("MODULE:strong", {"hue": 1}, "needs the option 'strength'"),
        ("MODULE:unlucky", {}, "cannot be made with {}: FileNotFoundError: no model here"),
        (":priced", {}, "expected package.module:name"),
        ("module.py:priced:", {}, "expected package.module:name"),
    ],
)
def test_what_is_wrong_with_a_path_is_told(module, path, options, told):
    with pytest.raises(CreditError) as caught:
        credit_function(path.replace("MODULE", module), **options)
    assert told in str(caught.value)
