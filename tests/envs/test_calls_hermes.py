import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accredit.credit import CallStatus
from accredit.envs.calls import parse_calls, string_offsets
from accredit.envs.errors import ParseError

GOOD = '<tool_call>{"name": "price", "arguments": {"item": "apple"}}</tool_call>'
BROKEN = [
    '<tool_call>{"name": "price", "arguments": {"item": "apple}}</tool_call>',
    '<tool_call>{"name": "price", "arguments": {"item": }}</tool_call>',
    '<tool_call>{"name": "price", "arguments": {"item": "apple"}</tool_call>',
    "<tool_call>{'name': 'price'}</tool_call>",
    '<tool_call>{"name": "price", "arguments": {"item": "a\\d"}}</tool_call>',
    "<tool_call></tool_call>",
    "<tool_call>price(apple)</tool_call>",
    '<tool_call>{"name": "price"} and more</tool_call>',
    '<tool_call>{"name": "price"}}</tool_call>',
    '<tool_call>[{"name": "price"}]</tool_call>',
    '<tool_call>{"name": "price", "arguments": {"item": "apple"}}',
    "<tool_call>",
]
SURROUND = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=10)


def only(text):
    [call] = parse_calls(text).calls
    return call


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("between", ["", "\n", " then "])
def test_a_broken_call_never_hides_its_neighbours(broken, between):
    text = between.join([GOOD, broken, GOOD])
    first, middle, last = parse_calls(text).calls
    assert first.fault is last.fault is None
    assert text[first.start : first.end] == text[last.start : last.end] == GOOD
    assert middle.fault is not None
    assert middle.fault.status is CallStatus.INVALID_JSON
    assert (middle.fault.start, middle.fault.end) == (middle.start, middle.end)
    assert text[middle.start :].startswith(broken)
    assert text[middle.start : middle.end].strip() in (broken, broken + between.rstrip())
    assert [call.id for call in parse_calls(text).calls] == ["call_0", "call_1", "call_2"]


@pytest.mark.parametrize("broken", [BROKEN[0], BROKEN[-1], BROKEN[-2]])
def test_an_unclosed_last_call_runs_to_the_end_of_the_message(broken):
    text = GOOD + broken.removesuffix("</tool_call>") + " and so on"
    assert parse_calls(text).calls[1].end == len(text)
    assert parse_calls(text).calls[1].fault is not None


def test_a_closing_marker_inside_a_string_ends_nothing():
    call = only('<tool_call>{"name": "write", "arguments": {"text": "a</tool_call><tool_call>b"}}</tool_call>')
    assert call.fault is None
    assert call.arguments == {"text": "a</tool_call><tool_call>b"}


@pytest.mark.parametrize("space", ["", " ", "\n", "\r\n\t"])
def test_white_space_around_the_json_is_free(space):
    assert only(f'<tool_call>{space}{{"name": "price", "arguments": {{}}}}{space}</tool_call>').fault is None


def test_a_call_without_arguments_is_legal():
    for body in ('{"name": "stop"}', '{"name": "stop", "arguments": {}}'):
        call = only(f"<tool_call>{body}</tool_call>")
        assert (call.arguments, call.fault, call.repairs) == ({}, None, ())


@pytest.mark.parametrize("arguments", ['["apple"]', '"apple"', "3", '"[1]"', '"{\\"item\\": }"', "true"])
def test_arguments_that_are_no_object_are_invalid_and_never_bound(arguments):
    text = f'<tool_call>{{"name": "price", "arguments": {arguments}}}</tool_call>'
    call = only(text)
    assert call.arguments is None
    assert call.fault is not None
    assert call.fault.status is CallStatus.INVALID_ARGUMENTS
    assert text[call.fault.start : call.fault.end] == arguments


def test_double_encoded_arguments_are_repaired_and_their_ranges_are_raw_characters():
    inner = json.dumps({"item": "a\n🙂", "qty": [1, 22]})
    text = f'<tool_call>{{"name": "price", "arguments": {json.dumps(inner)}}}</tool_call>'
    call = only(text)
    assert (call.fault, call.repairs) == (None, ("double_encoded $",))
    assert call.arguments == {"item": "a\n🙂", "qty": [1, 22]}
    shown = {path: text[slice(*chars)] for path, chars in call.argument_ranges.items()}
    assert shown["$.qty"] == "[1, 22]"
    assert shown["$.qty[1]"] == "22"
    assert shown["$.item"].startswith('\\"a')
    assert len(string_offsets(text, call.argument_ranges["$.item"])) == 4


def test_repairs_of_every_kind_are_named_with_their_place():
    text = '<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2, "b": NaN, "c": "x\ny"}}</tool_call>'
    assert only(text).repairs == (
        "duplicate_key $.a",
        "not_finite $.b",
        "control_character $.c",
    )
    assert only('<tool_call>{"name": "f", "arguments": null}</tool_call>').repairs == ("null_arguments $",)


@pytest.mark.parametrize("name", ['"name": ""', '"name": 3', '"arguments": {}'])
def test_a_call_that_names_no_tool_asks_for_an_unknown_one(name):
    call = only(f"<tool_call>{{{name}}}</tool_call>")
    assert call.fault is not None
    assert (call.name, call.fault.status) == ("", CallStatus.UNKNOWN_TOOL)


def test_an_argument_outside_arguments_is_charged_itself():
    text = '<tool_call>{"name": "price", "item": "apple"}</tool_call>'
    fault = only(text).fault
    assert fault is not None
    assert fault.status is CallStatus.INVALID_ARGUMENTS
    assert text[fault.start : fault.end] == '"item": "apple"'


def test_content_is_the_text_outside_of_calls():
    message = parse_calls(f"  First. {GOOD}\n and {GOOD} done </tool_call> ")
    assert message.content == "First.\nand\ndone </tool_call>"
    assert parse_calls("42").content == "42"
    assert parse_calls("").calls == ()


def test_the_name_of_a_broken_call_is_kept_when_it_was_read():
    call = only(BROKEN[1])
    assert call.name == "price"
    assert call.name_range is not None


def test_an_unknown_format_names_the_nearest():
    with pytest.raises(ParseError, match="did you mean 'hermes'"):
        parse_calls("", "hermess")


@given(st.text(max_size=80) | st.lists(st.sampled_from([GOOD, *BROKEN, '"', "{", "</tool_call>", " x "])).map("".join))
@example("<tool_call><tool_call>")
def test_calls_of_any_text_lie_in_it_in_order_and_apart(text):
    message = parse_calls(text)
    at = 0
    for call in message.calls:
        assert at <= call.start < call.end <= len(text)
        assert text.startswith("<tool_call>", call.start)
        ranges = [*call.argument_ranges.values(), *([call.name_range] if call.name_range else [])]
        if call.fault is not None:
            ranges.append((call.fault.start, call.fault.end))
        assert all(call.start <= start <= end <= call.end for start, end in ranges)
        at = call.end


@given(SURROUND, SURROUND, st.text(max_size=20), st.booleans(), st.sampled_from(BROKEN[:9]))
def test_good_calls_around_a_broken_one_keep_their_arguments(before, between, value, ascii_only, broken):
    value = value.encode("utf-8", "replace").decode()
    body = json.dumps({"name": "note", "arguments": {"text": value}}, ensure_ascii=ascii_only)
    good = f"<tool_call>{body}</tool_call>"
    text = before + good + between + broken + between + good
    calls = parse_calls(text).calls
    assert [call.fault is None for call in calls] == [True, False, True]
    assert calls[0].arguments == calls[2].arguments == {"text": value}
    for call in (calls[0], calls[2]):
        assert json.loads(text[slice(*call.argument_ranges["$.text"])]) == value


def test_thousands_of_calls_are_read():
    assert len(parse_calls(GOOD * 2000).calls) == 2000
    assert len(parse_calls("<tool_call>" * 2000).calls) == 2000
    assert len(parse_calls(("<tool_call>{" + '"' * 3) * 500).calls) == 500
