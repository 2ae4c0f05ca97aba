"""Search texts with operators: what they become, and where they are wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import QueryParseError
from omnigraph.syntax.query_ast import TEXT_QUERY_KINDS
from omnigraph.syntax.search_text import (
    TERMS_MAX,
    Either,
    Every,
    Phrase,
    Prefix,
    SearchTerm,
    Words,
    search_term,
)

A, B, C = Words("a"), Words("b"), Words("c")


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a", A),
        ("a b", Every((A, B))),
        ("a AND b", Every((A, B))),
        ("a b OR c", Either((Every((A, B)), C))),
        ("a OR b AND c", Either((A, Every((B, C))))),
        ("(a OR b) c", Every((Either((A, B)), C))),
        ("a NOT b", Every((A,), (B,))),
        ("NOT b AND a", Every((A,), (B,))),
        ("a NOT (b OR c)", Every((A,), (Either((B, C)),))),
        ('"a b" c*', Every((Phrase("a b"), Prefix("c")))),
        ("a - & b!", Every((A, Words("b!")))),
        ("and or not", Every((Words("and"), Words("or"), Words("not")))),
        ("", Words("")),
        ("--", Words("")),
    ],
)
def test_c_srch_029_a_search_text_is_a_term(text: str, term: SearchTerm) -> None:
    assert search_term("text_query", text) == term


@pytest.mark.parametrize(
    ("text", "at", "words", "problem"),
    [
        ('a "b', 2, '"', "the quotes are not closed"),
        ("a (b", 2, "(", "`(` is not closed"),
        ("a) b", 1, ")", "`)` closes nothing"),
        ("a AND", 2, "AND", "a word is missing after `AND`"),
        ("OR a", 0, "OR", "a word is missing: `OR` is there"),
        ("a OR OR b", 5, "OR", "a word is missing after `OR`"),
        ("é * a", 2, "*", "`*` stands behind"),
        ("NOT a", 0, "NOT", "`NOT` alone"),
        ("a OR NOT b", 5, "NOT", "`NOT` alone"),
        ("()", 1, ")", "a word is missing after `(`"),
        (f"{'a ' * TERMS_MAX}b", 2 * TERMS_MAX, "b", "more than 200 parts"),
        ("(" * 65 + "a", 64, "(", "nested too deeply"),
    ],
)
def test_c_srch_029_an_error_has_its_place_in_the_search_text(
    text: str, at: int, words: str, problem: str
) -> None:
    with pytest.raises(QueryParseError) as caught:
        search_term("text_query", text)
    position = caught.value.position
    assert problem in str(caught.value)
    assert caught.value.hint
    assert position is not None
    assert (position.column, position.width) == (at + 1, len(words))


@given(st.text(max_size=40))
def test_c_srch_029_other_readings_take_any_text(text: str) -> None:
    for kind in TEXT_QUERY_KINDS[1:]:
        search_term(kind, text)


@given(st.text(max_size=40).filter(lambda text: not set(text) & set('"()*') and text.islower()))
def test_c_srch_029_plain_words_never_fail(text: str) -> None:
    search_term("text_query", text)
