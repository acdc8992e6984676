"""From reported lines and columns to characters, and what forged reports can do (nothing)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accredit.sandboxes.embedded.spans import to_span

SOURCE = 'é = "ü€😀"; d = {}\r\nx = d["k"]\n\nlast'


def span_of(place: list[Any], source: str = SOURCE, in_bytes: bool = True) -> str | None:
    span = to_span({"place": place, "bytes": in_bytes, "error": "E", "message": "m"}, source)
    return None if span is None else source[span.start : span.end]


def test_columns_count_utf8_bytes() -> None:
    assert span_of([1, 1, 5, 16]) == '"ü€😀"'
    assert span_of([1, 1, 4, 9], in_bytes=False) == '"ü€😀"'


def test_line_ends_of_two_characters_are_one_line_end() -> None:
    assert span_of([2, 2, 4, 10]) == 'd["k"]'


def test_a_missing_column_means_the_whole_line() -> None:
    assert span_of([2, None, None, None]) == 'x = d["k"]'


@pytest.mark.parametrize("place", [None, "x", [], [1, 2, 3], ["a", 1, 1, 1], [None, 1, 1, 1]])
def test_a_place_that_is_none_gives_no_span(place: Any) -> None:
    assert to_span({"place": place, "bytes": True}, SOURCE) is None


wild = st.one_of(st.none(), st.integers(), st.integers(-3, 60), st.text(max_size=3), st.floats(), st.booleans())


@given(st.lists(wild, min_size=4, max_size=4), st.booleans(), st.text(min_size=1, max_size=60))
def test_any_report_stays_inside_the_source(place: list[Any], in_bytes: bool, source: str) -> None:
    span = to_span({"place": place, "bytes": in_bytes, "error": 1, "message": ["x"] * 9999}, source)
    if span is not None:
        assert 0 <= span.start < span.end <= len(source)
        assert 1 <= span.line <= source.count("\n") + source.count("\r") + 1
        assert len(span.message) <= 500
