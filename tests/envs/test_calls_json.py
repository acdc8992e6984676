import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.envs.calls import narrow, string_offsets
from accredit.envs.jsonspans import JsonFault, child_path, scan_json
from accredit.envs.jsonstrings import decode_string

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def at_paths(value, path="$"):
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from at_paths(item, child_path(path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from at_paths(item, child_path(path, index))


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), TEXTS, TEXTS)
def test_every_value_stands_where_its_range_says(value, ascii_only, indent, before, after):
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    text = f"{before}{raw} {after}"
    scan = scan_json(text, len(before))
    assert scan.fault is None
    assert (scan.value, scan.repairs) == (value, [])
    assert scan.end == len(before) + len(raw)
    expected: dict[str, Any] = dict(at_paths(value))
    assert set(scan.ranges) == set(expected)
    for path, (start, end) in scan.ranges.items():
        assert json.loads(text[start:end]) == expected[path]
    for path, (start, end) in scan.keys.items():
        assert path.endswith(child_path("$", str(json.loads(text[start:end]))).removeprefix("$"))


@given(VALUES)
def test_any_text_that_json_reads_reads_the_same(value):
    text = json.dumps(value)
    assert scan_json(text).value == json.loads(text)


@given(st.text(max_size=60))
def test_no_text_raises(text):
    scan = scan_json(text)
    if scan.fault is not None:
        assert 0 <= scan.fault.resume <= len(text)


@given(TEXTS, st.booleans(), TEXTS)
def test_a_decoded_index_leads_to_its_raw_characters(value, ascii_only, before):
    raw = json.dumps(value, ensure_ascii=ascii_only)
    text = f"{before}{raw}!"
    offsets = string_offsets(text, (len(before), len(before) + len(raw)))
    assert len(offsets) == len(value) + 1
    assert text[offsets[-1]] == '"'
    for at, letter in enumerate(value):
        assert json.loads(f'"{text[offsets[at] : offsets[at + 1]]}"') == letter


@given(TEXTS.filter(bool), st.booleans(), st.data())
def test_a_double_encoded_string_is_traced_through_both_layers(value, ascii_only, data):
    inner = json.dumps({"code": value}, ensure_ascii=ascii_only)
    outer = json.dumps(inner, ensure_ascii=data.draw(st.booleans()))
    decoded, offsets, _, _ = decode_string(outer, 0)
    start, end = scan_json(decoded).ranges["$.code"]
    chars = offsets[start], offsets[end]
    inside = string_offsets(outer, chars)
    for at, letter in enumerate(value):
        assert json.loads(json.loads(f'"\\"{outer[inside[at] : inside[at + 1]]}\\""')) == letter


def test_a_surrogate_pair_is_one_character_of_twelve():
    text = r'"a\ud83d\ude42b"'
    assert string_offsets(text, (0, len(text))) == [1, 2, 14, 15]


def test_lone_surrogates_are_replaced_and_noted():
    scan = scan_json(r'["\ud83d", "\ude42\ud83d"]')
    assert scan.value == ["\ufffd", "\ufffd\ufffd"]
    assert scan.repairs == ["lone_surrogate $[0]", "lone_surrogate $[1]"]


def test_narrow_clips_to_the_value_and_keeps_the_whole_of_what_is_no_string():
    text = r'{"code": "x\n1/0", "n": 7}'
    code, number = scan_json(text).ranges["$.code"], scan_json(text).ranges["$.n"]
    assert text[slice(*narrow(text, code, (2, 5)))] == "1/0"
    assert text[slice(*narrow(text, code, (0, 99)))] == r"x\n1/0"
    assert narrow(text, code, (5, 5)) == code
    assert narrow(text, number, (0, 1)) == number
    with pytest.raises(JsonFault):
        string_offsets(text, number)


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ('{"a": 1, "a": {"b": 2}}', {"a": {"b": 2}}, ["duplicate_key $.a"]),
        ('{"a": {"b": 1}, "a": 2}', {"a": 2}, ["duplicate_key $.a"]),
        ('["x\ny"]', ["x\ny"], ["control_character $[0]"]),
        ('{"a": Infinity}', {"a": float("inf")}, ["not_finite $.a"]),
        ('{"a": -1e999}', {"a": float("-inf")}, ["not_finite $.a"]),
    ],
)
def test_what_has_one_meaning_is_repaired_and_noted(text, value, repairs):
    scan = scan_json(text)
    assert (scan.value, scan.repairs) == (value, repairs)


def test_a_repeated_key_keeps_only_the_ranges_of_its_last_value():
    text = '{"a": {"b": 1}, "a": 2, "ab": 3}'
    ranges = scan_json(text).ranges
    assert {path: text[slice(*chars)] for path, chars in ranges.items() if path != "$"} == {"$.a": "2", "$.ab": "3"}


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("{'a': 1}", 1, "a key in double quotes"),
        ('{"a" 1}', 5, "':'"),
        ('{"a": 1,}', 8, "a key"),
        ("[1 2]", 3, "','"),
        ('["\\d"]', 2, "no JSON escape"),
        ('["\\u12"]', 2, "four hexadecimal"),
        ('["abc', 5, "no closing quote"),
        ("nope", 0, "a JSON value"),
        ("", 0, "the end of the text"),
        ("[" * 100, 65, "deeper than 64"),
        ("9" * 5000, 0, "more than 4000 digits"),
    ],
)
def test_a_fault_says_what_and_where(text, position, says):
    fault = scan_json(text).fault
    assert fault is not None
    assert fault.position == position
    assert says in fault.message
