"""What Lance's own search finds, and what it may be used for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.query import MatchQuery

from omnigraph.effects.requests import measure
from omnigraph.errors import StorageError
from omnigraph.storage.datasets import Handle
from omnigraph.storage.search import (
    analysed_words,
    has_text_index,
    matching_rows,
    nearest_rows,
)

TEXTS = ["Running dogs", "a dog ran", None, "the cat", "", "CATS", "café des chats"]

WriteTable = Callable[[pa.Table], Handle]


@pytest.fixture
def write(tmp_path: Path) -> WriteTable:
    """Writes rows; again, and it adds them."""

    def write(rows: pa.Table) -> Handle:
        uri = str(tmp_path / "t.lance")
        mode = "append" if (tmp_path / "t.lance").exists() else "create"
        return lance.write_dataset(rows, uri, mode=mode, enable_stable_row_ids=True)

    return write


def memos(texts: list[str | None], first: int = 0) -> pa.Table:
    ids = [f"m{first + i:05}" for i in range(len(texts))]
    return pa.table({"id": ids, "text": pa.array(texts, pa.string())})


def indexed(handle: Handle) -> Handle:
    handle.create_scalar_index("text", "INVERTED")
    return lance.dataset(handle.uri)


def ids_matching(handle: Handle, text: str) -> list[str]:
    return sorted(matching_rows(handle, "text", text)["id"].to_pylist())


def expected(texts: list[str | None], query: str, first: int = 0) -> list[str]:
    wanted = set(analysed_words(query))
    return [
        f"m{first + i:05}"
        for i, text in enumerate(texts)
        if text is not None and wanted & set(analysed_words(text))
    ]


QUERIES = ["dog", "runs", "CAT", "cafe", "Café", "the", "", "dog cat nothing", "chat", "zebra"]


def test_c_srch_020_a_text_index_finds_covered_and_uncovered_rows_alike(write: WriteTable) -> None:
    handle = indexed(write(memos(TEXTS)))
    handle = write(memos(TEXTS, first=100))
    for query in QUERIES:
        wanted = expected(TEXTS, query) + expected(TEXTS, query, first=100)
        assert ids_matching(handle, query) == wanted, query


def test_rows_deleted_or_rewritten_after_the_build_are_found_as_they_are_now(
    write: WriteTable,
) -> None:
    handle = indexed(write(memos(["cat", "cat", "dog", "dog"])))
    handle.delete("id = 'm00000'")
    change = pa.table({"id": ["m00001", "m00002"], "text": ["bird", "cat"]})
    handle.merge_insert("id").when_matched_update_all().execute(change)
    handle = lance.dataset(handle.uri)
    assert ids_matching(handle, "cat") == ["m00002"]
    assert ids_matching(handle, "dog") == ["m00003"]
    assert ids_matching(handle, "bird") == ["m00001"]


def test_an_index_that_covers_no_row_any_more_still_says_how_to_analyse(write: WriteTable) -> None:
    handle = indexed(write(memos(["old"])))
    handle.delete("true")
    handle = write(memos(TEXTS))
    assert ids_matching(handle, "DOGS") == expected(TEXTS, "dog") != []


def test_all_matches_come_not_only_the_best(write: WriteTable) -> None:
    handle = indexed(write(memos([f"common w{i}" for i in range(3_000)])))
    handle = write(memos(["common"] * 500, first=5_000))
    assert len(ids_matching(handle, "common")) == 3_500


def test_a_condition_applies_before_matching_and_columns_are_chosen(write: WriteTable) -> None:
    handle = indexed(write(memos(["cat"] * 20)))
    for where in ("id >= 'm00018'", pc.field("id").isin(["m00018", "m00019"])):
        found = matching_rows(handle, "text", "cat", ["text", "id"], where=where, with_row_id=True)
        assert found.column_names == ["text", "id", "_score", "_rowid"]
        assert sorted(found["id"].to_pylist()) == ["m00018", "m00019"]
        assert min(found["_score"].to_pylist()) > 0


def test_without_an_index_lance_would_not_analyse_so_searching_is_refused(
    write: WriteTable,
) -> None:
    handle = write(memos(TEXTS))
    found = {
        query: handle.to_table(columns=["id", "_score"], full_text_query=MatchQuery(query, "text"))
        for query in ("dogs", "dog", "cats", "CATS", "the")
    }
    assert {query: rows["id"].to_pylist() for query, rows in found.items()} == {
        "dogs": ["m00000"],
        "dog": ["m00001"],
        "cats": [],
        "CATS": ["m00005"],
        "the": ["m00003"],
    }
    assert not has_text_index(handle, "text")
    with pytest.raises(StorageError, match="no text index on text") as caught:
        matching_rows(handle, "text", "dog")
    assert caught.value.hint


def test_an_index_with_another_analyser_or_on_another_column_does_not_count(
    write: WriteTable,
) -> None:
    handle = write(memos(TEXTS))
    handle.create_scalar_index("text", "INVERTED", stem=False)
    assert not has_text_index(lance.dataset(handle.uri), "text")
    handle.create_scalar_index("text", "INVERTED", with_position=True, replace=True)
    handle = lance.dataset(handle.uri)
    assert has_text_index(handle, "text")
    assert not has_text_index(handle, "id")


def test_fuzzy_search_of_lance_is_another_one_so_it_is_not_used(write: WriteTable) -> None:
    handle = indexed(write(memos(["cat", "house"])))
    handle = write(memos(["cat"], first=2))

    def found(word: str) -> list[str]:
        query = MatchQuery(word, "text", fuzziness=1)
        rows = handle.to_table(columns=["id", "_score"], full_text_query=query)
        return sorted(rows["id"].to_pylist())

    assert found("cot") == ["m00000"], "rows outside the index are overlooked"
    assert found("houses") == [], "query words are not stemmed"


# --- vectors --------------------------------------------------------------------------------------


def vectors(matrix: np.ndarray, nulls: tuple[int, ...] = ()) -> pa.Table:
    rows = [None if i in nulls else row for i, row in enumerate(matrix.tolist())]
    ids = [f"v{i:05}" for i in range(len(rows))]
    return pa.table({"id": ids, "vec": pa.array(rows, pa.list_(pa.float32(), matrix.shape[1]))})


def brute_force(matrix: np.ndarray, query: np.ndarray, k: int) -> set[str]:
    """The ids of the k nearest and their ties."""
    distances = ((matrix.astype(np.float64) - query) ** 2).cumsum(axis=1)[:, -1]
    last = np.sort(distances)[min(k, len(distances)) - 1]
    return {f"v{i:05}" for i in np.flatnonzero(distances <= last)}


@pytest.mark.parametrize("has_index", [False, True])
@pytest.mark.parametrize("k", [1, 10, 200])
def test_c_srch_008_the_nearest_are_exact_and_complete(
    write: WriteTable, has_index: bool, k: int
) -> None:
    random = np.random.default_rng(k)
    matrix = random.standard_normal((9_000, 16)).astype(np.float32)
    matrix[::90] = matrix[0]
    matrix[1::90] = np.nextafter(matrix[0], np.float32(9))
    handle = write(vectors(matrix))
    if has_index:
        handle.create_index("vec", "IVF_FLAT", metric="L2", num_partitions=8)
        handle = lance.dataset(handle.uri)
    for query in (
        random.standard_normal(16),
        matrix[0].astype(np.float64) + random.standard_normal(16) * 1e-7,
    ):
        found = nearest_rows(handle, "vec", query.tolist(), k)
        assert set(found["id"].to_pylist()) >= brute_force(matrix, query, k)
        assert found.num_rows < 2_000


def test_c_srch_011_a_condition_applies_before_ranking(write: WriteTable) -> None:
    matrix = np.arange(400, dtype=np.float32).reshape(400, 1)
    handle = write(vectors(matrix))
    found = nearest_rows(
        handle, "vec", [0.0], 2, ["id", "vec"], where="id >= 'v00300'", with_row_id=True
    )
    assert found.column_names == ["id", "vec", "_distance", "_rowid"]
    nearest = found.sort_by("_distance").slice(0, 2)
    assert nearest["id"].to_pylist() == ["v00300", "v00301"]
    assert nearest["_distance"].to_pylist() == [300.0**2, 301.0**2]


def test_c_srch_013_null_vectors_are_absent_and_so_are_those_with_nan(write: WriteTable) -> None:
    matrix = np.array([[0.0], [np.nan], [2.0], [np.inf], [4.0]], np.float32)
    handle = write(vectors(matrix, nulls=(2,)))
    found = nearest_rows(handle, "vec", [0.0], 10)
    assert sorted(found["id"].to_pylist()) == ["v00000", "v00003", "v00004"]


def test_a_text_search_is_counted(write: WriteTable) -> None:
    handle = indexed(write(memos(["cat"])))
    with measure() as io:
        matching_rows(handle, "text", "cat")
    assert io.report().count("lance", "text_search") == 1


def test_ties_at_the_end_cost_further_counted_scans(write: WriteTable) -> None:
    handle = write(vectors(np.ones((500, 2), np.float32)))
    with measure() as io:
        found = nearest_rows(handle, "vec", [0.0, 0.0], 3)
    assert found.num_rows == 500
    assert io.report().count("lance", "vector_search") > 1


def test_failures_of_lance_have_a_type(write: WriteTable) -> None:
    handle = write(vectors(np.ones((3, 2), np.float32)))
    with pytest.raises(StorageError, match="could not be used"):
        nearest_rows(handle, "vec", [1.0, 2.0, 3.0], 1)
