"""Upserts of tables, whose committed ids are read while the records are."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.graph import Graph
from omnigraph.loading import upsert as upsert_module
from tests.pipeline.test_fingerprints import alike
from tests.pipeline.test_threads import after_first_check
from tests.pipeline.test_upsert import rows


@pytest.fixture(params=[True, False], ids=["ahead", "no room"])
def graph(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    if not request.param:
        monkeypatch.setattr(upsert_module, "PREFETCH_ROWS", 0)
    return omnigraph.init(tmp_path / "g.omni", "node N { k: String @key  n: I32 }")


def upsert(graph: Graph, path: Path, numbers: list[tuple[str, int]]) -> tuple[int, int, int]:
    """How many were inserted, updated and left as they are."""
    keys, values = zip(*numbers, strict=True)
    pq.write_table(pa.table({"k": keys, "n": pa.array(values, pa.int32())}), path)
    (loaded,) = graph.load(nodes={"N": path}, mode="merge", engine="local").nodes
    return loaded.inserted, loaded.updated, loaded.unchanged


def numbers_of(graph: Graph) -> dict[str, int]:
    found = graph._opened.reader().handle("node:N").to_table(columns=["k", "n"])
    return dict(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))


def test_c_pip_010_ids_that_were_read_ahead_are_not_those_of_a_newer_head(
    graph, tmp_path, monkeypatch
):
    upsert(graph, tmp_path / "a.parquet", [("a", 1), ("b", 1)])
    other = omnigraph.open(graph.uri)
    checks = after_first_check(
        monkeypatch, lambda: upsert(other, tmp_path / "b.parquet", [("b", 2), ("c", 2)])
    )
    counts = upsert(graph, tmp_path / "c.parquet", [("a", 1), ("b", 3), ("c", 3), ("d", 3)])
    assert len(checks) == 3, "the other's, and this one's twice"
    assert counts == (1, 2, 1)
    assert numbers_of(graph) == {"a": 1, "b": 3, "c": 3, "d": 3}


def test_c_pip_010_ids_with_one_fingerprint_stay_apart(graph, tmp_path):
    path = tmp_path / "a.parquet"
    assert upsert(graph, path, [(alike(i), 0) for i in range(6)]) == (6, 0, 0)
    before = rows(graph, "node:N")
    again = [(alike(8), 2), (alike(3), 1), (alike(2), 0), (alike(5), 1)]
    assert upsert(graph, path, again) == (1, 2, 1)
    expected = dict.fromkeys(map(alike, (0, 1, 2, 4)), 0) | {alike(3): 1, alike(5): 1, alike(8): 2}
    assert numbers_of(graph) == expected
    after = rows(graph, "node:N")
    assert all(after[key][0] == row_id for key, (row_id, _) in before.items())
    assert {key for key in before if after[key] != before[key]} == {alike(3), alike(5)}
