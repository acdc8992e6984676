import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.envs.messages import ToolSchema
from accredit.shorthand import message_from, usage

PRICE = ToolSchema(
    "price",
    "Unit price of an item.\nIn euros.",
    {
        "type": "object",
        "properties": {"item": {"type": "string"}, "qty": {"type": "integer"}},
        "required": ["item"],
    },
)
TOOLS = {"price": PRICE}


def call_in(line: str) -> dict[str, object]:
    message = message_from(line, TOOLS)
    assert message.startswith("<tool_call>") and message.endswith("</tool_call>")
    return json.loads(message.removeprefix("<tool_call>").removesuffix("</tool_call>"))


def test_a_tool_with_named_values_is_a_call() -> None:
    assert call_in("price item=apple qty=3") == {"name": "price", "arguments": {"item": "apple", "qty": 3}}


def test_strings_stay_strings_and_quotes_keep_spaces() -> None:
    assert call_in('price item="3"')["arguments"] == {"item": "3"}
    assert call_in("price item='red apple'")["arguments"] == {"item": "red apple"}


def test_a_value_that_is_no_json_goes_as_it_is_for_the_environment_to_refuse() -> None:
    assert call_in("price item=apple qty=many")["arguments"] == {"item": "apple", "qty": "many"}


def test_a_tool_alone_is_a_call_without_arguments() -> None:
    assert call_in("price") == {"name": "price", "arguments": {}}


@pytest.mark.parametrize(
    "line", ["price is 3 euros", "weigh item=apple", "6.0", "it's 6", '<tool_call>{"name": "price"}</tool_call>', ""]
)
def test_anything_else_is_sent_as_it_is(line: str) -> None:
    assert message_from(line, TOOLS) == line


@given(st.text())
def test_no_line_is_refused(line: str) -> None:
    assert isinstance(message_from(line, TOOLS), str)


def test_usage_shows_types_and_brackets_what_may_be_left_out() -> None:
    assert usage(PRICE) == "price item=STRING [qty=INTEGER]  Unit price of an item."
