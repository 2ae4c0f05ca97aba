"""Sources of a bulk load: formats, frames, compression, columns, and files that go wrong."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import shutil
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.csv as pac
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from omnigraph.errors import InputError, NotFound, SourceChanged
from omnigraph.graph import Graph, SparkOptions
from omnigraph.loading.inputs import choose_engine, file_sources
from omnigraph.loading.pieces import Piece, plan_sources
from omnigraph.loading.reading import PieceReader, Reading
from omnigraph.loading.sources import FileSource, Frame, find_files
from tests.commit.loading import catalog, edge, lines, node
from tests.pipeline.conftest import SCHEMA

spark_test = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def entities(graph: Graph) -> dict[str, dict[str, Any]]:
    records = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    return {record["data"]["id"]: record["data"] for record in records}


SLOTS = pa.table(
    {
        "region": ["n", "s", "w"],
        "code": pa.array([1, 2, 3], pa.int64()),
        "on": pa.array([dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)]),
        "note": ["a", "", None],
    }
)
EXPECTED = {
    '["1","n"]': ("n", 1, -1, "a"),
    '["2","s"]': ("s", 2, None, ""),
    '["3","w"]': ("w", 3, 19782, None),
}


def slots(graph: Graph) -> dict[str, tuple[Any, ...]]:
    return {
        key: (data["region"], data["code"], data["on"], data["note"])
        for key, data in entities(graph).items()
    }


class TestFormats:
    pytestmark = spark_test

    def load(self, graph: Graph, spark: Any, **options: Any) -> Any:
        return graph.load(mode="append", spark=SparkOptions(spark), **options)

    def test_c_pip_017_every_format_holds_the_same_rows(self, spark, tmp_path):
        import fastavro

        import omnigraph

        pq.write_table(SLOTS, tmp_path / "s.parquet", row_group_size=2)
        orc.write_table(SLOTS, str(tmp_path / "s.orc"))
        lance.write_dataset(SLOTS, str(tmp_path / "s.lance"))
        pac.write_csv(SLOTS, tmp_path / "s.csv")
        with (
            pa.OSFile(str(tmp_path / "s.arrow"), "wb") as sink,
            pa.ipc.new_file(sink, SLOTS.schema) as out,
        ):
            out.write_table(SLOTS)
        rows = [
            {**row, "on": row["on"] and (row["on"] - dt.date(1970, 1, 1)).days}
            for row in SLOTS.to_pylist()
        ]
        (tmp_path / "s.json").write_text("\n".join(map(json.dumps, rows)))
        schema = {
            "type": "record",
            "name": "Slot",
            "fields": [
                {"name": "region", "type": "string"},
                {"name": "code", "type": "long"},
                {"name": "on", "type": ["null", {"type": "int", "logicalType": "date"}]},
                {"name": "note", "type": ["null", "string"]},
            ],
        }
        with (tmp_path / "s.avro").open("wb") as stream:
            fastavro.writer(stream, schema, SLOTS.to_pylist())
        for suffix in ("parquet", "orc", "lance", "csv", "arrow", "json", "avro"):
            graph = omnigraph.init(tmp_path / f"{suffix}.omni", SCHEMA)
            self.load(graph, spark, nodes={"Slot": tmp_path / f"s.{suffix}"})
            assert slots(graph) == EXPECTED, suffix

    def test_frames_of_every_kind_hold_the_same_rows(self, spark, tmp_path):
        import pandas as pd

        import omnigraph

        frame = spark.createDataFrame(
            SLOTS.to_pandas(date_as_object=True), "region string, code int, on date, note string"
        )
        pandas = SLOTS.to_pandas(date_as_object=True)
        assert isinstance(pandas, pd.DataFrame)
        for name, given in (("spark", frame), ("pandas", pandas), ("arrow", SLOTS)):
            graph = omnigraph.init(tmp_path / f"{name}.omni", SCHEMA)
            self.load(graph, spark, frames={"Slot": given})
            assert slots(graph) == EXPECTED, name

    def test_c_pip_016_values_at_the_edges_of_their_types_survive(self, graph, spark, tmp_path):
        table = pa.table(
            {
                "slug": ["a", "b"],
                "visits": pa.array([2**64 - 1, 0], pa.uint64()),
                "small": pa.array([2**32 - 1, None], pa.uint32()),
                "height": pa.array([0.1, -0.0], pa.float32()),
                "born": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
                "seen": pa.array([-1, 1_700_000_000_123_456], pa.timestamp("us", tz="UTC")),
                "tags": pa.array([["x", ""], None], pa.list_(pa.string())),
                "leaf": pa.array([[1.5, -2], None], pa.list_(pa.float64(), 2)),
                "photo": pa.array([b"\x00\xff", b""], pa.binary()),
            }
        )
        decimals = table.slice(0, 1).set_column(0, "slug", pa.array(["c"]))
        wide = pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0))
        decimals = decimals.set_column(1, "visits", wide)
        pq.write_table(table, tmp_path / "p.parquet")
        pq.write_table(decimals, tmp_path / "q.parquet")
        self.load(graph, spark, nodes={"Person": str(tmp_path / "*.parquet")})
        found = entities(graph)
        assert found["c"]["visits"] == 2**64 - 1
        a, b = found["a"], found["b"]
        assert (a["visits"], a["small"], b["small"]) == (2**64 - 1, 2**32 - 1, None)
        assert (a["born"], b["born"]) == (-719162, 2932896)
        assert (a["seen"], b["seen"]) == (-1, 1_700_000_000_123)
        assert (a["tags"], b["tags"]) == (["x", ""], None)
        assert (a["leaf"], b["leaf"]) == ([1.5, -2.0], None)
        assert (a["photo"], b["photo"]) == ("base64:AP8=", "base64:")
        assert str(b["height"]) == "-0.0"

    def test_a_value_beyond_its_type_is_told_with_its_record(self, graph, spark, tmp_path):
        table = pa.table({"slug": ["a", "b"], "small": pa.array([1, 2**32], pa.int64())})
        pq.write_table(table, tmp_path / "p.parquet")
        with pytest.raises(InputError, match=r"p\.parquet:2: Person\.small: .*exceeds UInt32"):
            self.load(graph, spark, nodes={"Person": tmp_path / "p.parquet"})

    def test_c_pip_017_csv_cells_are_read_as_what_their_properties_are(
        self, graph, spark, tmp_path
    ):
        (tmp_path / "p.csv").write_text(
            "slug,age,active,born,seen,tags,leaf,name,weight\n"
            'a,36,true,1815-12-10,2024-01-01T10:00:00Z,"[""x""]","[1, 2]","two\nlines",.5\n'
            'b,,,,,,,"",\n'
        )
        (tmp_path / "k.csv").write_text("from,to,since\na,b,2020-01-01\nb,a,\n")
        self.load(
            graph,
            spark,
            nodes={"Person": tmp_path / "p.csv"},
            edges={"Knows": [tmp_path / "k.csv"]},
        )
        found = entities(graph)
        assert (found["a"]["age"], found["a"]["active"], found["a"]["born"]) == (36, True, -56270)
        assert (found["a"]["tags"], found["a"]["leaf"]) == (["x"], [1, 2])
        assert (found["a"]["name"], found["b"]["name"]) == ("two\nlines", "")
        assert (found["a"]["weight"], found["b"]["age"]) == (0.5, None)

    def test_c_pip_017_bad_cells_are_told_with_their_record(self, graph, spark, tmp_path):
        (tmp_path / "p.csv").write_text("slug,age,active\na,x,true\nb,1,yes\n,2,false\n")
        with pytest.raises(InputError) as caught:
            self.load(graph, spark, nodes={"Person": tmp_path / "p.csv"})
        told = [(each["record"], each["property"]) for each in caught.value.details["problems"]]
        assert told == [(1, "age"), (2, "active"), (3, "slug")]

    def test_endpoints_may_be_given_as_the_keys_of_their_nodes(self, spark, tmp_path):
        import omnigraph

        graph = omnigraph.init(
            tmp_path / "g.omni", "node Day { on: Date @key }\nedge Next: Day -> Day"
        )
        days = pa.array([dt.date(2024, 1, 1), dt.date(2024, 1, 2)])
        pq.write_table(pa.table({"on": days}), tmp_path / "d.parquet")
        pq.write_table(pa.table({"src": days[:1], "dst": days[1:]}), tmp_path / "n.parquet")
        self.load(
            graph,
            spark,
            nodes={"Day": tmp_path / "d.parquet"},
            edges={"next": tmp_path / "n.parquet"},
        )
        assert graph.snapshot().datasets[0].entity_count == 1

    def test_c_pip_018_a_directory_of_compressed_records_loads(self, graph, spark, tmp_path):
        folder = tmp_path / "in"
        (folder / "deep").mkdir(parents=True)
        (folder / "_temporary").mkdir()
        (folder / "_temporary" / "x.jsonl").write_text("{")
        (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(node("Person", slug="a"))))
        with pa.CompressedOutputStream(str(folder / "deep" / "b.ndjson.zst"), "zstd") as stream:
            stream.write(lines(node("Person", slug="b")))
        (folder / "c.jsonl").write_bytes(lines(edge("Knows", "a", "b", id="k")))
        graph.load(folder, mode="append", engine="spark", spark=SparkOptions(spark))
        assert {"a", "b"} <= entities(graph).keys()
        # The same directory in process, for those who do not need Spark.
        graph.load(folder, mode="merge", engine="local")

    def test_c_pip_018_a_truncated_archive_is_named(self, graph, spark, tmp_path):
        whole = gzip.compress(lines(*(node("Person", slug=f"p{i}") for i in range(1000))))
        path = tmp_path / "cut.jsonl.gz"
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match=r"cut\.jsonl\.gz cannot be read"):
            graph.load(path, mode="append", engine="spark", spark=SparkOptions(spark))
        assert len(graph.list_commits()) == 1

    def test_records_that_span_lines_are_read_as_a_whole(self, graph, spark, tmp_path, monkeypatch):
        monkeypatch.setattr("omnigraph.loading.pieces.TASK_BYTES_MIN", 300)
        monkeypatch.setattr("omnigraph.loading.pieces.WHOLE_BYTES_MAX", 500)
        pretty = tmp_path / "pretty.jsonl"
        records = [node("Person", slug=f"p{i}", age=i) for i in range(30)]
        pretty.write_text("\n".join(json.dumps(record, indent=2) for record in records))
        flat = tmp_path / "flat.jsonl"
        flat.write_bytes(lines(*(node("Person", slug=f"q{i}") for i in range(60)), "", "{]"))
        with pytest.raises(InputError, match=r"flat\.jsonl:61: invalid JSON at record 61"):
            graph.load(pretty, flat, mode="append", engine="spark", spark=SparkOptions(spark))
        flat.write_bytes(lines(*(node("Person", slug=f"q{i}") for i in range(60))))
        receipt = graph.load(pretty, flat, mode="append", engine="spark", spark=SparkOptions(spark))
        assert receipt.nodes[0].inserted == 90
        assert len(entities(graph)) == 90


# --- without Spark ---


def reading(**options: Any) -> Reading:
    from omnigraph.effects.clock import MINT
    from omnigraph.loading.records.ids import Minting
    from omnigraph.schema.compile import compile_schema
    from omnigraph.schema.contract import build_contract

    compiled = compile_schema(SCHEMA, domain=MINT.ulid())
    contract = build_contract(SCHEMA, compiled.ir)
    return Reading(contract, "strict", "append", Minting(MINT.ulid()), **options)


def piece_of(path: Path, table_key: str, **options: Any) -> Piece:
    (found,) = find_files(FileSource(str(path), table_key))
    return Piece(0, found, **options)


def read(piece: Piece, **options: Any) -> int:
    chunks = PieceReader(reading(**options)).read(piece)
    return sum(each.rows.num_rows for rows, _ in chunks for each in rows)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"slug": ["a"], "agee": [1]}, "unknown column 'agee'"),
        ({"slug": ["a"], "age": ["old"]}, "column 'age' has type string, which cannot hold I32"),
        ({"slug": ["a"], "leaf": [1.0]}, "column 'leaf' has type double"),
        ({"age": [1]}, "there is no column 'slug', which is required"),
    ],
)
def test_c_pip_017_a_wrong_column_is_refused_by_name(tmp_path, table, message):
    pq.write_table(pa.table(table), tmp_path / "p.parquet")
    with pytest.raises(InputError, match=message):
        read(piece_of(tmp_path / "p.parquet", "node:Person", parts=(0,)))


def test_unknown_columns_are_left_out_if_asked_for(tmp_path):
    pq.write_table(pa.table({"slug": ["a"], "x": [1]}), tmp_path / "p.parquet")
    piece = piece_of(tmp_path / "p.parquet", "node:Person", parts=(0,))
    assert read(piece, ignore_unknown=True) == 1


def test_a_file_that_changes_or_vanishes_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(node("Person", slug="a")))
    (found,) = find_files(FileSource(str(path)))
    piece = Piece(0, found)
    assert read(piece) == 1
    path.write_bytes(lines(node("Person", slug="a"), node("Person", slug="b")))
    with pytest.raises(SourceChanged, match=r"a\.jsonl changed while it was loaded"):
        read(piece)
    path.unlink()
    with pytest.raises(NotFound, match=r"a\.jsonl vanished while it was loaded"):
        read(piece)


def test_a_parquet_file_without_its_footer_is_named(tmp_path):
    path = tmp_path / "p.parquet"
    pq.write_table(SLOTS, path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"p\.parquet cannot be read"):
        plan_sources([FileSource(str(path), "node:Note")], catalog(), slots=2, lines_only=True)


def test_ranges_of_a_text_hold_every_line_once(tmp_path, monkeypatch):
    monkeypatch.setattr("omnigraph.loading.pieces.TASK_BYTES_MIN", 97)
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*(node("Person", slug=f"p{i}" * (i % 7 + 1)) for i in range(60))))
    plan = plan_sources([FileSource(str(path))], catalog(SCHEMA), slots=1, lines_only=True)
    reader = PieceReader(reading())
    found: list[str] = []
    records = 0
    for task in plan.tasks:
        for piece in task:
            for (rows,), _ in reader.read(piece):
                found += rows.rows["id"].to_pylist()
            records += reader.records
    assert found == [f"p{i}" * (i % 7 + 1) for i in range(60)]
    assert records == 60


def test_what_is_not_there_or_says_nothing_is_refused(tmp_path):
    with pytest.raises(NotFound, match="no such file"):
        find_files(FileSource(str(tmp_path / "none.jsonl")))
    with pytest.raises(NotFound, match="no file matches"):
        find_files(FileSource(str(tmp_path / "*.csv")))
    with pytest.raises(NotFound, match="there is nothing to load"):
        find_files(FileSource(str(tmp_path)))
    (tmp_path / "x.bin").touch()
    with pytest.raises(InputError, match="does not say what it is"):
        find_files(FileSource(str(tmp_path / "x.bin"), "node:Person"))
    shutil.copy(tmp_path / "x.bin", tmp_path / "x.parquet")
    with pytest.raises(InputError, match="holds rows of one type") as caught:
        find_files(FileSource(str(tmp_path / "x.parquet")))
    assert "--node Type=" in (caught.value.hint or "")
    with pytest.raises(InputError, match="unknown node type 'Persn'"):
        plan_sources(
            [FileSource(str(tmp_path / "x.parquet"), "node:Persn")],
            catalog(SCHEMA),
            slots=1,
            lines_only=True,
        )


# --- which engine ---


def choice(tmp_path: Path, asked: Any = None, environment: Any = None, **options: Any) -> Any:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x" * 100)
    files = file_sources([path], options.pop("nodes", None), None)
    standard: dict[str, Any] = {"has_stream": False, "is_spark_named": False}
    return choose_engine(asked, files, environment=environment or {}, **{**standard, **options})


def frame(bytes: int) -> Frame:
    return Frame("node:Person", pa.table({"n": pa.array([0] * (bytes // 8), pa.int64())}))


FRAME_OF_SPARK = Frame("node:Person", object())


def test_small_inputs_stay_in_process_and_large_ones_go_to_spark(tmp_path):
    small = choice(tmp_path)
    assert str(small) == "local (100 bytes are loaded before Spark has started)"
    large = choice(tmp_path, environment={"OMNIGRAPH_SPARK_THRESHOLD_BYTES": "99"})
    assert str(large) == "spark (100 bytes are loaded faster by several processes)"
    assert choice(tmp_path, "local", {"OMNIGRAPH_SPARK_THRESHOLD_BYTES": "1"}).engine == "local"
    assert (small.is_bulk, large.is_bulk) == (False, True)


def test_the_engine_can_be_asked_for(tmp_path):
    assert choice(tmp_path, "spark").engine == "spark"
    assert choice(tmp_path, environment={"OMNIGRAPH_ENGINE": "spark"}).engine == "spark"
    assert choice(tmp_path, is_spark_named=True).engine == "spark"
    assert choice(tmp_path, "local", is_spark_named=True).engine == "local"
    with pytest.raises(InputError, match="there is no engine 'flink'"):
        choice(tmp_path, environment={"OMNIGRAPH_ENGINE": "flink"})
    with pytest.raises(InputError, match="not a number of bytes"):
        choice(tmp_path, environment={"OMNIGRAPH_SPARK_THRESHOLD_BYTES": "many"})


def test_tables_and_frames_are_bulk_jobs_of_either_engine(tmp_path):
    (tmp_path / "p.parquet").write_bytes(b"x" * 100)
    nodes = {"Person": tmp_path / "p.parquet"}
    for options in ({"nodes": nodes}, {"frames": [frame(800)]}):
        for asked in ("local", "spark"):
            chosen = choice(tmp_path, asked, **options)
            assert (chosen.engine, chosen.is_bulk) == (asked, True)
        assert choice(tmp_path, **options).engine == "local"
    assert choice(tmp_path, frames=[FRAME_OF_SPARK]).engine == "spark"
    with pytest.raises(InputError, match="local engine cannot read a frame of Spark"):
        choice(tmp_path, "local", frames=[FRAME_OF_SPARK])


def test_a_stream_is_loaded_in_process_and_without_tables(tmp_path):
    assert choice(tmp_path, has_stream=True).engine == "local"
    for asked, frames in (("spark", []), (None, [frame(800)])):
        with pytest.raises(InputError, match="records from a stream"):
            choice(tmp_path, asked, frames=frames, has_stream=True)


@pytest.mark.parametrize(
    ("suffix", "limit"), [("parquet", 400), ("csv", 400), ("csv.gz", 100), ("jsonl", 100)]
)
def test_tables_that_arrow_reads_weigh_less(tmp_path, suffix, limit):
    for size in (limit, limit + 4):
        path = tmp_path / f"p.{suffix}"
        path.write_bytes(b"x" * size)
        files = file_sources([], {"Person": path}, None)
        assert weighed(files) == ("local" if size == limit else "spark")


def test_frames_and_files_are_weighed_together(tmp_path):
    assert weighed([], [frame(400)]) == "local"
    assert weighed([], [frame(408)]) == "spark"
    (tmp_path / "p.jsonl").write_bytes(b"x" * 60)
    files = file_sources([], {"Person": tmp_path / "p.jsonl"}, None)
    assert weighed(files, [frame(160)]) == "local"
    assert weighed(files, [frame(168)]) == "spark"


def weighed(files: list[FileSource], frames: Sequence[Frame] = ()) -> str:
    limit = {"OMNIGRAPH_SPARK_THRESHOLD_BYTES": "100"}
    return choose_engine(
        None, files, frames, has_stream=False, is_spark_named=False, environment=limit
    ).engine
