"""Arithmetic: the calculator's exactness and its faults, the tasks, and the answer's reading."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.credit import CallStatus
from accredit.envs import ToolError, make
from accredit.envs.catalogue.arithmetic.calculator import calculate, show
from accredit.envs.catalogue.scripted import format_call


def numbers():
    return st.integers(0, 99).map(str)


def expressions():
    def deeper(inner):
        return (
            st.tuples(inner, st.sampled_from("+-*"), inner).map(" ".join)
            | inner.map("({})".format)
            | inner.map("-{}".format)
        )

    return st.recursive(numbers(), deeper, max_leaves=12)


@given(expressions())
def test_the_calculator_agrees_with_python(expression):
    if len(expression) <= 200:
        assert calculate(expression) == eval(expression)


@given(st.text(alphabet="0123456789+-*/(). x", max_size=40))
def test_any_text_gives_a_number_or_a_fault_inside_the_text(text):
    try:
        value = calculate(text)
    except ToolError as error:
        assert error.argument == "expression"
        assert error.source_range is not None
        start, end = error.source_range
        assert 0 <= start <= end <= len(text)
    else:
        assert isinstance(value, Fraction)


@pytest.mark.parametrize(
    ("expression", "blamed"),
    [
        ("3 + x", "x"),
        ("3 / 0", "0"),
        ("4 / (2 - 2)", "(2 - 2)"),
        ("(3 + 4", "("),
        ("3 4", "4"),
        ("3 + * 4", "*"),
        ("1234567890123 + 1", "1234567890123"),
        ("٣ + 1", "٣"),
    ],
)
def test_a_fault_names_its_own_characters(expression, blamed):
    with pytest.raises(ToolError) as caught:
        calculate(expression)
    assert caught.value.source_range is not None
    start, end = caught.value.source_range
    assert expression[start:end] == blamed


def test_deep_brackets_and_long_text_are_refused():
    with pytest.raises(ToolError, match="nested brackets"):
        calculate("(" * 60 + "1" + ")" * 60)
    with pytest.raises(ToolError, match="at most 200"):
        calculate("1 + " * 60 + "1")


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(6), "6"), (Fraction(1, 3), "0.333333"), (Fraction(-5, 2), "-2.5"), (Fraction(-1, 10**9), "0")],
)
def test_numbers_are_written_short(value, text):
    assert show(value) == text


def test_a_second_operation_is_charged_on_its_sign_alone():
    env = make("Arithmetic-v0")
    env.reset(seed=0)
    text = format_call("calc", expression="3 + 4 * 2")
    env.step(text)
    assert env.last_turn is not None
    (result,) = env.last_turn.results
    assert result.status is CallStatus.TOOL_ERROR
    assert result.charge is not None
    assert text[result.charge.start : result.charge.end] == "*"


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("{}", 1.0), ("{}.0", 1.0), ("The answer is {}.", 1.0), ("1{}", 0.0), ("{} or 7", 0.0), ("", 0.0), ("none", 0.0)],
)
def test_one_right_number_is_the_answer(answer, reward):
    env = make("Arithmetic-v0")
    env.reset(seed=0)
    assert env.step(answer.format(env.task.answer))[1] == reward


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_answers_are_small_whole_numbers_of_their_expression(level):
    env = make("Arithmetic-v0", level=level)
    for seed in range(200):
        env.reset(seed=seed)
        assert eval(env.task.data["expression"]) == env.task.answer
        assert 0 <= env.task.answer <= 99


def test_the_state_is_what_the_calculator_gave():
    env = make("Arithmetic-v0")
    env.reset(seed=0)
    empty = env.state_key()
    env.step(format_call("calc", expression="3 + 4"))
    seven = env.state_key()
    env.step(format_call("calc", expression="8 - 1"))
    assert empty != seven == env.state_key()
