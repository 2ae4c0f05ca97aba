"""The analyser of the local engine is Lance's own, applied to whole columns."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.query import MatchQuery

from omnigraph.engines.local.text_index import _MARK, AnalysedColumn, analysed, tokens

STEMS = ["run", "box", "generous", "happy", "nation", "argue", "hope", "studi", "fall", "relate"]
SUFFIXES = [
    "",
    "s",
    "es",
    "ed",
    "ing",
    "ings",
    "ly",
    "ness",
    "ation",
    "ational",
    "ize",
    "'s",
    "ies",
]
FRAMES = ["{}", "very {} indeed", "{}-{}", "“{}”, (1.5)"]
ODDITIES = [
    *("the and such not no very these THEIR ands willing I a", "", " ", "…", "\x00a\x00b"),
    *("don't O'Neil rock'n'roll it's", "a_b a-b a.b a/b a@b", "x1 1x 007 3.14 1e5 ½ ² ⑽ Ⅷ ۳"),
    *("café CAFÉ Cafe\u0301 naïve Ångström", "straße STRASSE ß ẞ", "æon Œuvre ĳ ﬁne ﬃ"),
    *("Łódź łódz ØRE øre Đ đ Þorn ıI İi", "thé ţhe ＴＨＥ ｔｈｅ", "Ωμέγα ΣΊΣΥΦΟΣ Σίσυφος"),
    *("Привет ПРИВЕТ мир", "日本語 テスト 中文", "한국어", "नमस्ते हिन्दी", "שלום עולם", "مرحبا ١٢٣"),
    *("😀 hi😀there 👩‍👩‍👧", "a\u200bb a\u00adb a\u00a0b", "x\ty\nz", "K k Å"),
    *("x" * 39, "x" * 40, "x" * 41, "é" * 19, "é" * 20, "é" * 19 + "y", "日" * 13, "日" * 14),
]


def words_of(column: AnalysedColumn, rows: int) -> list[list[str]]:
    """The tokens of each row."""
    found: list[list[str]] = [[] for _ in range(rows)]
    for code, row in zip(column.codes, column.rows, strict=True):
        found[row].append(column.vocabulary[code])
    return found


def expected(column: pa.Array) -> list[list[str]]:
    return [[] if text is None else tokens(text) for text in column.to_pylist()]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    families = ["".join(parts) for parts in product(STEMS, SUFFIXES)]
    framed = [
        FRAMES[i % len(FRAMES)].format(word.title(), word.upper())
        for i, word in enumerate(families)
    ]
    letters = [chr(point) for point in range(0xA0, 0x250)] + ["\u1e9e", "\u2126", "\u212b"]
    accented = [f"c{letter}t {letter}s" for letter in letters]
    return [*families, *framed, *accented, *ODDITIES]


@pytest.mark.parametrize("covered", ["all rows", "some rows"])
def test_c_srch_001_020_an_index_finds_exactly_the_texts_that_share_a_token(
    texts: list[str], covered: str, tmp_path: Path
) -> None:
    table = pa.table({"id": range(len(texts)), "text": texts})
    split = len(texts) if covered == "all rows" else 1
    dataset = lance.write_dataset(table[:split], tmp_path / "t.lance")
    dataset.create_scalar_index("text", "INVERTED")
    if split < len(texts):
        dataset = lance.write_dataset(table[split:], tmp_path / "t.lance", mode="append")
    by_token: dict[str, set[int]] = {}
    for row, text in enumerate(texts):
        for token in tokens(text):
            by_token.setdefault(token, set()).add(row)
    # Every second text is also a query; each token is asked for by some of them.
    for query in texts[::2]:
        found = dataset.to_table(
            columns=["id", "_score"], full_text_query=MatchQuery(query, "text")
        )
        wanted = set().union(*(by_token[token] for token in tokens(query)))
        assert set(found["id"].to_pylist()) == wanted, query


def test_the_steps_of_the_analyser_are_these_and_in_this_order() -> None:
    assert tokens("don't x_y 3.14") == ["don", "t", "x", "y", "3", "14"], "runs of letters, digits"
    assert tokens("x" * 39) and not tokens("x" * 40), "the limit is 39 bytes"
    assert tokens("é" * 19) and not tokens("é" * 20), "bytes, not characters"
    assert tokens("RUNNING Runs") == ["run", "run"], "lowercase before stemming"
    assert tokens("the ands willing") == [], "stemming before stop words"
    assert tokens("no not") == ["no", "not"], "which are words that say something"
    assert tokens("thé béing") == ["the", "being"], "and folding comes last"
    assert tokens("straße Łódź Ørsted æon") == ["strasse", "lodz", "orsted", "aeon"]


def test_a_column_is_analysed_like_each_of_its_texts(texts: list[str]) -> None:
    column = pa.array([*texts, None])
    assert words_of(analysed(column), len(column)) == expected(column)


def test_every_character_is_analysed_in_a_column_as_alone() -> None:
    points = [p for p in range(1, 0x20000) if not 0xD800 <= p < 0xE000]
    # Between letters, as a word, and beside digits; many characters to a row to be quick.
    rows = [
        " ".join(f"a{chr(point)}b {chr(point)} 1{chr(point)}" for point in points[start::997])
        for start in range(997)
    ]
    column = pa.array(rows)
    assert words_of(analysed(column), len(column)) == expected(column)


@given(
    st.lists(st.none() | st.text() | st.text("aAeéS '0ß", max_size=12), max_size=12),
    st.integers(0, 4),
    st.integers(0, 12),
    st.sampled_from([pa.string(), pa.large_string()]),
)
def test_any_slice_of_any_column_is_analysed_like_its_texts(
    texts: list[str | None], start: int, length: int, type: pa.DataType
) -> None:
    column = pa.array(texts, type).slice(start, length)
    found = analysed(column)
    assert words_of(found, len(column)) == expected(column)
    assert len(set(found.vocabulary)) == len(found.vocabulary)


def test_words_that_look_like_marks_between_words_are_kept_apart() -> None:
    marks = [str(_MARK + i) for i in range(3)]
    column = pa.array([" ".join(marks), marks[0], None, f"é{marks[1]} {marks[0]}é", "0 1"])
    assert words_of(analysed(column), 5) == expected(column)


def test_bytes_behind_a_null_are_no_text() -> None:
    values = pa.array(["one", "two", "three"])
    masked = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(b"\x05"), *values.buffers()[1:]], null_count=1
    )
    assert masked.to_pylist() == ["one", None, "three"]
    assert words_of(analysed(masked), 3) == [["one"], [], ["three"]]
