"""Sources and positions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import QueryParseError
from omnigraph.syntax.tokens import Source, Span


def test_a_source_is_made_of_text_bytes_or_a_file(tmp_path):
    path = tmp_path / "q.gq"
    path.write_bytes("größer".encode())
    ready = Source("x")
    assert Source.of("größer", QueryParseError).text == "größer"
    assert Source.of("größer".encode(), QueryParseError).text == "größer"
    assert Source.of(path, QueryParseError).text == "größer"
    assert Source.of(path, QueryParseError).path == str(path)
    assert Source.of(ready, QueryParseError) is ready


def test_a_byte_order_mark_is_dropped():
    assert Source.of("\ufeffquery", QueryParseError).text == "query"
    assert Source.of(b"\xef\xbb\xbfquery", QueryParseError).text == "query"


def test_a_missing_file_raises_as_usual(tmp_path):
    with pytest.raises(FileNotFoundError):
        Source.of(tmp_path / "none.gq", QueryParseError)


def test_bytes_that_are_not_utf8_are_refused_at_their_offset():
    with pytest.raises(QueryParseError) as caught:
        Source.of("é\n ".encode() + b"\xff\xfe", QueryParseError)
    position = caught.value.position
    assert position is not None
    assert (position.line, position.column, position.byte_start) == (2, 2, 4)


@pytest.mark.parametrize(
    ("text", "span", "line", "column", "line_text", "width", "byte_range"),
    [
        ("abc", Span(1, 3), 1, 2, "abc", 2, (1, 3)),
        ("ab\ncd\r\nef", Span(4, 5), 2, 2, "cd", 1, (4, 5)),
        ("é$x", Span(1, 3), 1, 2, "é$x", 2, (2, 4)),
        ("", Span(0, 0), 1, 1, "", 1, (0, 1)),
        ("ab", Span(2, 2), 1, 3, "ab", 1, (2, 3)),
        ("ab\n", Span(3, 3), 2, 1, "", 1, (3, 4)),
        ("ab\ncd", Span(1, 5), 1, 2, "ab", 1, (1, 5)),
        ("ab", Span(7, 9), 1, 3, "ab", 1, (2, 3)),
    ],
)
def test_position_of_a_span(text, span, line, column, line_text, width, byte_range):
    position = Source(text).position(span)
    assert (position.line, position.column) == (line, column)
    assert (position.line_text, position.width) == (line_text, width)
    assert (position.byte_start, position.byte_end) == byte_range


@given(st.text(max_size=30), st.integers(-2, 32), st.integers(-2, 32))
def test_every_position_is_at_least_one_byte_wide_and_renders(text, start, end):
    source = Source(text)
    error = source.error(QueryParseError, "oh", Span(start, end))
    assert error.position is not None
    assert 0 <= error.position.byte_start < error.position.byte_end
    assert error.position.line >= 1
    assert error.position.column >= 1
    assert "parse error: oh" in error.render()


def test_a_very_long_line_is_shown_in_part():
    source = Source('"' + "x" * 1_000_000)
    rendered = source.error(QueryParseError, "oh", Span(0, 1_000_001)).render()
    assert len(rendered) < 1_000


def test_errors_name_their_file():
    error = Source("abc", "dir/q.gq").error(QueryParseError, "oh", Span(0, 1))
    assert error.render().startswith("dir/q.gq:1:1: parse error: oh")
    assert error.wire_detail()["position"]["path"] == "dir/q.gq"
