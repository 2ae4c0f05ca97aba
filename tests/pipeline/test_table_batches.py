"""Tables in columns that are read without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import InputError
from omnigraph.graph import Graph
from tests.pipeline.test_sources import EXPECTED, SLOTS, slots


def write_stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table, max_chunksize=2)


def load(graph: Graph, path: Path) -> None:
    graph.load(nodes={"Slot": path}, mode="append", engine="local")


@pytest.mark.parametrize("suffix", ["arrow", "feather"])
def test_c_pip_017_arrow_that_was_written_as_a_stream_is_read(graph, tmp_path, suffix):
    path = tmp_path / f"s.{suffix}"
    write_stream(path, SLOTS)
    load(graph, path)
    assert slots(graph) == EXPECTED


def test_c_pip_017_columns_of_a_stream_are_refused_by_name(graph, tmp_path):
    path = tmp_path / "s.arrow"
    write_stream(path, SLOTS.rename_columns(["region", "code", "on", "remark"]))
    with pytest.raises(InputError, match="unknown column 'remark'"):
        load(graph, path)


@pytest.mark.parametrize("missing", [8, 9, 200])
def test_a_stream_without_its_end_is_named(graph, tmp_path, missing):
    path = tmp_path / "s.arrow"
    write_stream(path, SLOTS)
    path.write_bytes(path.read_bytes()[:-missing])
    with pytest.raises(InputError, match=r"s\.arrow cannot be read"):
        load(graph, path)
