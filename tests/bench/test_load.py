"""The load benchmark measures what it says, on inputs that are what they seem."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow.parquet as pq
import pytest

from bench import load_child
from bench.trips import connections, items, places, write_parquet, write_records
from omnigraph.graph import open_graph

PLACES, TRIPS = 40, 100


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load sets the limits of its process, which is one of its own in the benchmark."""
    for name in ("OMNIGRAPH_WRITE_ROWS_MAX", "OMNIGRAPH_WRITE_BYTES_MAX"):
        monkeypatch.setenv(name, str(1 << 40))


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both tables in both forms."""
    directory = tmp_path_factory.mktemp("trips")
    write_parquet(directory / "parquet", PLACES, TRIPS)
    write_records(directory / "parquet", directory / "records")
    return directory


def test_both_forms_hold_the_same_rows(inputs: Path, tmp_path: Path):
    files = sorted((inputs / "records").glob("*.jsonl"))
    lines = sum(len(path.read_bytes().splitlines()) for path in files)
    rows = sum(pq.read_table(inputs / "parquet" / name).num_rows for name in ("place", "trip"))
    assert lines == rows == PLACES + TRIPS
    measured = load_child.load(
        str(tmp_path / "g"), str(inputs / "records"), engine="local", form="records"
    )
    assert measured["rows"] == rows
    counts = {
        entry.type_name: entry.entity_count
        for entry in open_graph(tmp_path / "g").snapshot().datasets
    }
    assert counts == {"Place": PLACES, "Trip": TRIPS}


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.usefixtures("spark")
def test_a_load_with_spark_is_the_same_and_says_what_its_stages_cost(inputs: Path, tmp_path: Path):
    measured = load_child.load(
        str(tmp_path / "g"), str(inputs / "parquet"), engine="spark", form="parquet"
    )
    assert measured["rows"] == PLACES + TRIPS
    assert measured["stages"]
    snapshot = open_graph(tmp_path / "g").snapshot()
    assert sorted(entry.entity_count for entry in snapshot.datasets) == [PLACES, TRIPS]


def test_peers_get_the_same_tables(inputs: Path, tmp_path: Path):
    kuzu = pytest.importorskip("kuzu")
    load_child.copy_with_kuzu(str(inputs / "parquet"), str(tmp_path / "kuzu"))
    connection = kuzu.Connection(kuzu.Database(str(tmp_path / "kuzu")))
    found = connection.execute("MATCH (:Place)-[t:Trip]->(:Place) RETURN count(t)").get_all()
    assert found == [[TRIPS]]

    table = tmp_path / "places.lance"
    pq.write_table(places(PLACES - 5, 10, seed=9), tmp_path / "upserts.parquet")
    load_child.merge_with_lance(
        str(tmp_path / "upserts.parquet"),
        str(inputs / "parquet" / "place"),
        str(table),
        keeps_row_ids=True,
    )
    assert lance.dataset(table).has_stable_row_ids
    assert lance.dataset(table).count_rows() == PLACES + 5


def test_some_columns_are_merged(tmp_path: Path):
    graph, rows, some = (str(tmp_path / name) for name in ("stock.omni", "a.parquet", "b.parquet"))
    pq.write_table(items(0, 20), rows)
    pq.write_table(items(5, 10, seed=9).select(["code", "title"]), some)
    load_child.make_stock(graph, rows)
    assert load_child.merge_stock(graph, some, "auto")["kept"] == 10


def test_edges_and_nodes_of_the_same_rows_are_merged(tmp_path: Path):
    load_child.make_lines(str(tmp_path / "lines.omni"), 40)
    for kind, rows in connections(10, 20, seed=9).items():
        pq.write_table(rows, tmp_path / f"{kind}.parquet")
        merged = load_child.merge_lines(
            str(tmp_path / "lines.omni"), kind, str(tmp_path / f"{kind}.parquet")
        )
        assert merged["updated"] == 20
