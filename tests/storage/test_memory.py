"""What a long series of writes keeps in memory."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engines.local import memory, rows
from omnigraph.graph import open_graph
from omnigraph.storage import datasets

SCHEMA = "node Person { name: String @key }"
ADD = "query add($n: String) { insert Person { name: $n } }"
FIND = "query q($n: String) { match { $p: Person { name: $n } } return { $p.name } }"


def write(graph: og.Graph, numbers: range) -> None:
    for number in numbers:
        graph.mutate(ADD, {"n": f"p{number}"})
        assert len(graph.query(FIND, {"n": f"p{number}"}).to_pylist()) == 1


def kinds() -> Counter[type]:
    gc.collect()
    return Counter(map(type, gc.get_objects()))


def test_lance_caches_no_more_metadata_than_the_setting_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    og.init(tmp_path / "graph.omni", schema=SCHEMA)
    monkeypatch.setattr(datasets, "METADATA_BYTES_MIN", 1 << 19)
    monkeypatch.setattr(datasets, "INDEX_BYTES_MIN", 1 << 18)
    monkeypatch.setenv("OMNIGRAPH_CACHE_BYTES", str(1 << 20))
    graph = open_graph(tmp_path / "graph.omni")
    write(graph, range(25))
    # The least for indexes and for metadata.
    assert graph._kernel.lance._session.size_bytes() <= (1 << 18) + (1 << 19)


def test_a_write_leaves_only_the_rows_of_history_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each version of a table has a list of files and columns of its own; old ones are let go."""
    monkeypatch.setattr(rows, "_VIEWS_MAX", 3)
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    write(graph, range(6))
    before = kinds()
    write(graph, range(6, 16))
    grown = kinds() - before
    # Lance makes a class for each name of a file; kept ones were most of what a write left behind.
    assert all(grown[kind] < 3 for kind in (type, rows.Layout, rows.RowView, memory._Kept)), grown
