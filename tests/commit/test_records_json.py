"""JSON decoding: the fast way and the exact way always agree."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.loading.records.exact_json import Refusal, decode_all, decode_exact

# --- texts ----------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(2**65), 2**65),
    st.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**18, 10**19, 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
).map(json.dumps)
NUMBER_TEXTS = NUMBERS | st.sampled_from(
    ["-0", "-0.0", "1E5", "1e999", "-1e999", "1e-999", "123456789012345678901234567890e-5", "0.1e1"]
)
WORDS = st.sampled_from(["a", "b", "data", "type", "a:b", ':"', " :", '\\":', "\\u003a", "ü", ""])
TEXTS = (st.text(max_size=8) | WORDS).map(
    # Written raw, so that escapes and colons reach the decoder as they stand.
    lambda text: json.dumps(text, ensure_ascii=False)
) | WORDS.map(lambda word: f'"{word}"')
SPACES = st.sampled_from(["", "", "", " ", "\t", "\r", "  "])


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    members = draw(st.lists(st.tuples(TEXTS, SPACES, SPACES, values), max_size=4))
    return "{" + ",".join(f"{k}{before}:{after}{v}" for k, before, after, v in members) + "}"


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")


SCALARS = NUMBER_TEXTS | TEXTS | st.sampled_from(["true", "false", "null"])
VALUES = st.recursive(SCALARS, lambda inner: objects(inner) | arrays(inner), max_leaves=6)
RECORDS = st.one_of(
    objects(VALUES),
    objects(SCALARS).map(lambda data: f'{{"type":"T","data":{data}}}'),
    objects(SCALARS).map(lambda data: f'{{"data" : {data},"data":{{}}}}'),
)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A record with one piece cut out or put in, valid or not."""
    text = draw(RECORDS)
    at = draw(st.integers(0, len(text)))
    until = draw(st.integers(at, min(len(text), at + 3)))
    piece = draw(st.sampled_from(["", '"', ":", ",", "}", "NaN", "\\", "1", "\x00", "\ud83d"]))
    return text[:at] + piece + text[until:]


def encoded(text: str) -> bytes:
    return text.replace("\n", " ").encode("utf-8", "surrogatepass")


def strict_equal(left: Any, right: Any) -> bool:
    """Equal with the same types all the way down, so that 1, 1.0 and True differ, and 0.0, -0.0."""
    return repr(left) == repr(right)


# --- agreement ------------------------------------------------------------------------------------


@given(st.lists(RECORDS | damaged(), max_size=5), st.booleans())
@example(['{"a":1,"a":1}'], True)
@example(['{"a":"x\\":","a":1}'], True)
@example(['{"a":{"b":1,"b":2}}'], True)
@example(['{"data":{"a" :1,"\\u0061":2}}'], True)
@example(['{"data":":::","x":1}', '{"y":1,"y":1}'], True)
@example(['{"data":{"n":-9223372036854775809}}'], False)
def test_decoding_many_texts_equals_decoding_each_exactly(texts: list[str], unique: bool):
    raw = [encoded(text) for text in texts]
    decoded = decode_all(b"\n".join(raw), raw, unique_members=unique)
    exact = [decode_exact(text, unique_members=unique) for text in raw]
    assert strict_equal(decoded, exact)


@given(RECORDS | damaged())
def test_exact_decoding_means_what_the_standard_library_means(text: str):
    decoded = decode_exact(encoded(text), unique_members=False)
    try:
        expected = json.loads(encoded(text).decode())
        json.dumps(expected, ensure_ascii=False, allow_nan=True).encode()
    except ValueError:
        assert isinstance(decoded, Refusal)
    else:
        if "NaN" in text and isinstance(decoded, Refusal):
            return
        assert strict_equal(decoded, expected)


@given(RECORDS)
def test_a_refused_duplicate_is_one_and_every_duplicate_is_refused(text: str):
    repeated: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated.extend(k for i, (k, _) in enumerate(pairs) if k in dict(pairs[:i]))
        return dict(pairs)

    raw = encoded(text)
    try:
        json.loads(raw.decode(), object_pairs_hook=note)
    except ValueError:
        return
    (decoded,) = decode_all(raw, [raw], unique_members=True)
    if repeated:
        assert isinstance(decoded, Refusal)
        assert decoded.duplicate in repeated
    else:
        assert not isinstance(decoded, Refusal)


# --- what is JSON ---------------------------------------------------------------------------------


def one(text: str | bytes, *, unique_members: bool = True) -> Any:
    raw = text if isinstance(text, bytes) else text.encode()
    (decoded,) = decode_all(raw, [raw], unique_members=unique_members)
    return decoded


@pytest.mark.parametrize(
    "number", [2**64, 2**64 - 1, 2**63, -(2**63), -(2**63) - 1, 10**40, -(10**19), 0, -7]
)
def test_integers_of_any_size_stay_integers(number: int):
    value = one(f'{{"data":{{"n":{number}}}}}')["data"]["n"]
    assert type(value) is int
    assert value == number


@pytest.mark.parametrize("text", ["1.0", "1e2", "-0.0", "18446744073709551616.0", "1e30"])
def test_numbers_with_a_fraction_or_an_exponent_are_floats(text: str):
    assert type(one(f'{{"n":{text}}}')["n"]) is float


def test_a_number_too_large_for_a_float_is_still_a_number():
    assert one('{"n":1e999}') == {"n": math.inf}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("NaN", "NaN is not a JSON number"),
        ('{"a":Infinity}', "Infinity is not a JSON number"),
        ('{"a":-Infinity}', "-Infinity is not a JSON number"),
        ("// comment", "expecting value"),
        ("# comment", "expecting value"),
        ('{"a":1,}', "expecting property name"),
        ("{'a':1}", "expecting property name"),
        ('{"a":01}', "delimiter"),
        ('{"a":"\t"}', "invalid control character"),
        ('{"a":"\\ud800"}', "lone surrogate"),
        ('{"\\udc00":1}', "lone surrogate"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("[" * 200_000, "nested too deeply"),
        (f'{{"n":{"9" * 5000}}}', "digits"),
    ],
)
def test_other_texts_are_refused_with_a_reason(text: str | bytes, reason: str):
    refusal = one(text)
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason


def test_a_surrogate_pair_is_one_character():
    assert one('{"a":"\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_a_refusal_says_where_and_whether_the_text_just_ends():
    missing_colon, cut = one('{"a" 1}'), one('{"a": ')
    assert (missing_colon.column, missing_colon.at_end) == (6, False)
    assert cut.at_end
    assert one('{"a": "x').at_end


def test_the_last_of_repeated_members_counts_where_they_are_allowed():
    assert one('{"a":1,"b":{"c":1,"c":2},"a":3}', unique_members=False) == {"b": {"c": 2}, "a": 3}
