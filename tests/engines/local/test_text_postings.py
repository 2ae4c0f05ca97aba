"""Matching and scoring texts, against the definitions written out plainly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import text_index
from omnigraph.engines.local.search import Sought, TextColumn
from omnigraph.engines.local.text_index import Mask, TextIndex, tokens
from omnigraph.errors import InputError
from omnigraph.graph import init
from omnigraph.syntax.query_ast import TEXT_QUERY_KINDS
from omnigraph.syntax.search_text import search_term
from tests.support.reference.text import Corpus, found

WORDS = ["cat", "cats", "cart", "dog", "the", "running", "ran", "été", "日本", "a1", "caterpillar"]

texts = st.lists(
    st.none() | st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=24
)
queries = st.lists(st.sampled_from([*WORDS, "unknown"]), max_size=4).map(" ".join)


def column_of(index: TextIndex) -> TextColumn:
    """A column whose plain words alone are looked for."""
    return TextColumn(index, TextIndex, lambda positions: pa.nulls(len(positions), pa.string()))


def index_of(*parts: Sequence[str | None]) -> TextIndex:
    index = TextIndex()
    for part in parts:
        index = index.extended(pa.array(part, pa.string()))
    return index


@st.composite
def grown(draw: st.DrawFn) -> tuple[list[str | None], TextIndex]:
    """A column and an index of it that was built in one go or in several."""
    column = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(column)), max_size=4)))
    bounds = [0, *cuts, len(column)]
    parts = [column[a:b] for a, b in pairwise(bounds)]
    return column, index_of(*parts)


def shares_a_token(text: str | None, query: str) -> bool:
    return text is not None and bool(set(tokens(text)) & set(tokens(query)))


def edits(left: str, right: str) -> int:
    """Levenshtein distance, the textbook way."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row = row, [i]
        for j, b in enumerate(right, 1):
            row.append(min(above[j - 1] + (a != b), above[j] + 1, row[-1] + 1))
    return row[-1]


def bm25(column: list[str | None], live: Mask, query: str) -> dict[int, float]:
    """Scores by the formula; rows without a common token are left out."""
    documents = {
        row: tokens(text)
        for row, text in enumerate(column)
        if text is not None and row < len(live) and live[row]
    }
    average = sum(map(len, documents.values())) / max(1, len(documents))
    scores: dict[int, float] = {}
    for token in tokens(query):
        holders = [row for row, words in documents.items() if token in words]
        rarity = math.log(1 + (len(documents) - len(holders) + 0.5) / (len(holders) + 0.5))
        for row in holders:
            frequency = documents[row].count(token)
            length = len(documents[row]) / average
            gain = frequency * 2.2 / (frequency + 1.2 * (0.25 + 0.75 * length))
            scores[row] = scores.get(row, 0.0) + rarity * gain
    return scores


@given(grown(), queries)
def test_c_srch_001_002_004_matching_is_sharing_a_token(
    column_and_index: tuple[list[str | None], TextIndex], query: str
) -> None:
    column, index = column_and_index
    found = index.matching(query)
    assert found.dtype == np.int32
    assert found.tolist() == [row for row, t in enumerate(column) if shares_a_token(t, query)]
    assert len(index) == len(column)


@given(grown(), queries | st.text("acdtrs", max_size=9), st.integers(0, 4))
def test_c_srch_003_fuzzy_is_a_small_levenshtein_distance(
    column_and_index: tuple[list[str | None], TextIndex], query: str, edits_max: int
) -> None:
    column, index = column_and_index
    wanted = [
        row
        for row, text in enumerate(column)
        if any(
            edits(asked, word) <= edits_max
            for asked in tokens(query)
            for word in tokens(text or "")
        )
    ]
    assert index.fuzzy(query, edits_max).tolist() == wanted
    assert index.fuzzy(query, 0).tolist() == index.matching(query).tolist()


@given(grown(), queries, st.data())
def test_scores_are_okapi_bm25_over_the_live_texts(
    column_and_index: tuple[list[str | None], TextIndex], query: str, data: st.DataObject
) -> None:
    column, index = column_and_index
    size = data.draw(st.integers(0, len(column)))
    masks = st.lists(st.booleans(), min_size=size, max_size=size)
    live = np.array(data.draw(masks), np.bool_)
    wanted = bm25(column, live, query)
    positions, scores = index.scores(query, live)
    assert positions.tolist() == sorted(wanted)
    assert scores == pytest.approx([wanted[row] for row in sorted(wanted)], rel=1e-12)

    candidates = np.array(data.draw(masks), np.bool_)
    fewer, same_scores = index.scores(query, live, candidates)
    assert fewer.tolist() == [row for row in positions.tolist() if candidates[row]]
    assert same_scores.tolist() == scores[candidates[positions]].tolist()

    k = data.draw(st.integers(0, 6))
    best, best_scores = column_of(index).best(Sought(query), k, live, candidates)
    ranked = sorted(zip(-same_scores, fewer.tolist(), strict=True))
    ranked = [pair for pair in ranked if k and pair[0] <= ranked[min(k, len(ranked)) - 1][0]]
    assert [(-s, p) for s, p in zip(best_scores, best.tolist(), strict=True)] == ranked


@given(grown(), queries, st.data())
def test_c_srch_018_a_returned_score_equals_the_ranking_one_to_the_last_bit(
    column_and_index: tuple[list[str | None], TextIndex], query: str, data: st.DataObject
) -> None:
    column, index = column_and_index
    live = np.ones(len(column), np.bool_)
    asked = data.draw(st.permutations(range(len(column)))) + data.draw(
        st.lists(st.sampled_from(range(len(column))), max_size=3) if column else st.just([])
    )
    positions, scores = index.scores(query, live)
    by_row = dict(zip(positions.tolist(), scores.tolist(), strict=True))
    found = column_of(index).score_at(Sought(query), np.array(asked, np.int32), live)
    assert found.tolist() == [by_row.get(row, 0.0) for row in asked]


def test_no_mask_means_that_all_rows_are_alive() -> None:
    index = index_of(["cat dog", None, "cat"], ["dog", ""])
    for query in ("cat", "dog cat cat"):
        everything = index.scores(query, np.ones(5, np.bool_))
        assert [a.tolist() for a in index.scores(query)] == [a.tolist() for a in everything]
        asked = np.array([4, 0], np.int32)
        assert column_of(index).score_at(Sought(query), asked).tolist() == [0.0, everything[1][0]]


def test_statistics_follow_the_mask_whether_or_not_it_may_change() -> None:
    index = index_of(["cat", "cat dog", "dog dog dog", "bird"])
    every = np.ones(4, np.bool_)
    some = np.array([True, True, False, False])
    fixed = [mask.copy() for mask in (every, some)]
    for mask in fixed:
        mask.setflags(write=False)
    fresh = [index_of(["cat", "cat dog", "dog dog dog", "bird"]).scores("cat", m) for m in fixed]
    for mask, wanted in [*zip(fixed, fresh, strict=True), *zip(fixed, fresh, strict=True)]:
        assert index.scores("cat", mask)[1].tolist() == wanted[1].tolist()
    changing = every.copy()
    assert index.scores("cat", changing)[1].tolist() == fresh[0][1].tolist()
    changing[2:] = False
    assert index.scores("cat", changing)[1].tolist() == fresh[1][1].tolist()


def test_a_word_repeated_in_the_query_counts_as_often() -> None:
    index = index_of(["cat", "dog", "cat dog"])
    once = index.scores("cat dog")[1]
    assert index.scores("cat cat dog dog")[1] == pytest.approx(2 * once)


def test_an_index_in_many_parts_answers_as_one_and_keeps_few_of_them() -> None:
    column = [f"cat w{i % 7} x{i}" for i in range(300)]
    whole, grown_singly = index_of(column), TextIndex()
    earlier = []
    for text in column:
        grown_singly = grown_singly.extended(pa.array([text]))
        earlier.append(grown_singly)
    assert len(grown_singly._segments) < 10
    for query in ("cat", "w3 x12", "w3 x12 x299 nothing"):
        assert grown_singly.matching(query).tolist() == whole.matching(query).tolist()
        assert grown_singly.scores(query)[1].tolist() == whole.scores(query)[1].tolist()
    # What was extended is as it was.
    assert [len(index.matching("cat")) for index in earlier] == list(range(1, 301))


def test_a_large_column_is_analysed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    column = [" ".join(WORDS[row % 5 : row % 7]) for row in range(60)]
    whole = index_of(column)
    monkeypatch.setattr(text_index, "_PIECE_BYTES", 40)
    pieces = index_of(column)
    assert len(pieces) == len(whole) == 60
    for word in WORDS:
        assert pieces.matching(word).tolist() == whole.matching(word).tolist()
        assert pieces.scores(word)[1].tolist() == whole.scores(word)[1].tolist()


def test_dense_and_sparse_sums_agree() -> None:
    column = [f"common w{i % 3} rare{i}" for i in range(2_000)]
    index = index_of(column)
    dense_positions, dense = index.scores("rare7 common rare1999")
    sparse_positions, sparse = index.scores("rare7 rare1999")
    assert dense_positions.tolist() == list(range(2_000))
    assert sparse_positions.tolist() == [7, 1999]
    assert dense[7] == dense[1999] == pytest.approx(sparse[0] + dense[0])


def test_a_query_without_tokens_and_an_empty_index_match_nothing() -> None:
    index = index_of(["the cat", None, ""])
    for query in ("", "the of", "!?"):
        assert not len(index.matching(query))
        assert not len(index.fuzzy(query, 9))
        assert not len(index.scores(query)[0])
    empty = index_of([])
    assert len(empty) == 0
    assert not len(empty.matching("cat"))
    assert not len(column_of(empty).best(Sought("cat"), 3, np.zeros(0, np.bool_))[0])
    nulls = index_of([None, None], [None])
    assert len(nulls) == 3
    assert not len(nulls.scores("cat")[0])


def test_an_answer_cannot_be_used_to_change_the_index() -> None:
    with pytest.raises(ValueError, match="read-only"):
        index_of(["cat"]).matching("cat")[0] = 7


def test_a_negative_number_of_edits_is_refused() -> None:
    with pytest.raises(InputError, match="-1 edits"):
        index_of(["cat"]).fuzzy("cat", -1)


def test_many_edits_match_any_token_but_no_text_without_one() -> None:
    index = index_of(["caterpillar", "", None, "x", "the"])
    assert index.fuzzy("cat", 50).tolist() == [0, 3]


def test_edits_count_code_points() -> None:
    index = index_of(["日本", "日本語", "x😀y"])
    assert index.fuzzy("日体", 1).tolist() == [0]
    assert index.fuzzy("日本", 1).tolist() == [0, 1]


def test_memory_is_accounted_for() -> None:
    small, large = index_of(["cat"]), index_of([f"w{i} x{i}" for i in range(1_000)])
    assert 0 < small.nbytes < large.nbytes
    assert large.nbytes >= 2_000 * 5


# --- readings of a search text --------------------------------------------------------------------

repeated = st.lists(st.sampled_from([*WORDS, "cat", "cat"]), min_size=1, max_size=7).map(" ".join)


@st.composite
def readings(draw: st.DrawFn) -> Sought:
    """A search text in a reading, also with words that it repeats."""
    kind = draw(st.sampled_from(TEXT_QUERY_KINDS))
    text = draw(repeated)
    if kind == "text_query":
        other = draw(st.sampled_from(WORDS))
        text = draw(
            st.sampled_from([f'"{text}" OR {other}*', f"{text} NOT {other}", f'{other} "{text}"'])
        )
    elif kind == "prefix":
        text = text[: max(1, len(text) - draw(st.integers(0, 2)))]
    return Sought(text, search_term(kind, text))


@given(texts, readings())
def test_c_srch_029_readings_find_and_score_what_their_definition_does(
    column: list[str | None], sought: Sought
) -> None:
    assert sought.term is not None
    whole = TextColumn.of(pa.array(column, pa.string()))
    wanted = [at for at, text in enumerate(column) if found(text, sought.term, tokens)]
    assert whole.matching(sought).tolist() == wanted
    rows, scores = whole.scores(sought)
    assert rows.tolist() == wanted
    corpus = Corpus(tuple(column), tokens)
    assert scores.tolist() == pytest.approx(
        [corpus.score_of(column[at], sought.term) for at in wanted]
    )
    # Workers score parts of a column by the statistics of all of it.
    parts = [TextColumn.of(pa.array(part, pa.string())) for part in (column[:3], column[3:])]
    statistics = parts[0].statistics(sought).plus(parts[1].statistics(sought))
    in_parts = np.concatenate([part.scores_in(sought, statistics) for part in parts])
    assert np.flatnonzero(in_parts).tolist() == wanted
    assert in_parts[wanted].tolist() == pytest.approx(scores.tolist())


def test_c_srch_029_a_phrase_that_repeats_a_word_may_be_longer_than_the_texts() -> None:
    column = TextColumn.of(pa.array(["cat cat cat cat"]))
    for count in range(1, 12):
        text = " ".join(["cat"] * count)
        sought = Sought(text, search_term("phrase", text))
        assert column.matching(sought).tolist() == ([0] if count <= 4 else [])


def test_c_srch_029_a_prefix_is_ranked_where_there_is_no_text(tmp_path: Path) -> None:
    graph = init(tmp_path / "notes.omni", "node Note { key: String @key  body: String? @index }")
    ranked = (
        "query q($q: String) { match { $n: Note } return { $n.key, bm25($n.body, prefix($q)) as s }"
        " order { s desc } }"
    )
    assert graph.query(ranked, {"q": "ca"}).to_pylist() == []
    graph.mutate('query add { insert Note { key: "a" }  insert Note { key: "b", body: "the" } }')
    for text in ("ca", "a", "the", ""):
        assert graph.query(ranked, {"q": text}).to_pylist() == []
    graph.mutate('query add { insert Note { key: "c", body: "cats" } }')
    assert [row["n.key"] for row in graph.query(ranked, {"q": "ca"}).to_pylist()] == ["c"]
