"""C-PIP-040: `on_error="skip"` loads exactly the records that are not bad, and says why the others
were not; in process, on threads and on Spark. The judge is a plain reading of the rules."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import (
    Conflict,
    InputError,
    LimitExceeded,
    OmnigraphError,
    RecoveryRequired,
)
from omnigraph.graph import ErrorOptions, Graph, SparkOptions
from omnigraph.loading import inputs
from omnigraph.loading import skipping as skipping_rules
from omnigraph.loading.in_process import InProcessLoad
from omnigraph.loading.task_load import TaskLoad
from omnigraph.pipeline.data_source.options import SourceOptions
from tests.commit.loading import lines, node
from tests.pipeline.skipping import (
    INPUTS,
    SCHEMA,
    Judge,
    edge,
    seeded,
    stored_rows,
    text_of,
)
from tests.support.budgets import FEW
from tests.support.templates import copy_of

# --- the property ---------------------------------------------------------------------------------


@contextmanager
def by_threads() -> Iterator[None]:
    """Loads that ask for Spark run on threads."""
    choose = inputs.choose_engine
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            inputs, "choose_engine", lambda *a, **o: replace(choose(*a, **o), engine="local")
        )
        yield


def loaded(root: Path, path: Path, mode: Any, engine: Any, **options: Any) -> tuple[Graph, Any]:
    copy_of(seeded, root)
    graph = og.open(root)
    try:
        return graph, graph.load(path, mode=mode, grammar="strict", engine=engine, **options)
    except OmnigraphError as error:
        return graph, error


def content(graph: Graph) -> list[Any]:
    """Every entity, without ids that were minted."""
    records = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    for record in records:
        if len(record["data"]["id"]) == 26:
            del record["data"]["id"]
    return sorted(records, key=json.dumps)


def check(records: list[Any], mode: str, engines: dict[str, dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        path, errors = place / "in.jsonl", place / "errors.jsonl"
        path.write_text(text_of(records))
        copy_of(seeded, place / "seed.omni")
        seed = og.open(place / "seed.omni")
        numbered = dict(enumerate(records, start=1))
        wanted = Judge(mode, stored_rows(seed)).skipped(numbered)
        rest = [each for number, each in numbered.items() if number not in (wanted or ())]
        (place / "rest.jsonl").write_text(text_of(rest))
        plain, receipt = loaded(place / "plain.omni", place / "rest.jsonl", mode, "local")
        for name, options in engines.items():
            graph, found = loaded(
                place / f"{name}.omni",
                path,
                mode,
                errors=ErrorOptions(on_error="skip", errors_out=errors),
                **options,
            )
            told = [json.loads(line) for line in errors.read_text().splitlines()]
            if wanted is None:
                assert isinstance(found, OmnigraphError), name
                assert content(graph) == content(seed)
                continue
            assert not isinstance(found, Exception), (name, found)
            assert {each["line"] for each in told} == wanted, name
            assert found.skipped == len(wanted)
            for each in told:
                value = numbered[each["line"]]
                assert each["input"] == value, name
            # What is left has no problem, and is what was loaded.
            assert not isinstance(receipt, Exception), receipt
            assert content(graph) == content(plain), name
            assert len(graph.list_commits()) == len(plain.list_commits())
            assert [
                each.to_dict() | {"skipped": 0, "records_read": 0}
                for each in found.types
                if each.entities_loaded
            ] == [
                each.to_dict() | {"records_read": 0}
                for each in receipt.types
                if each.entities_loaded
            ]


LOCAL = {"in process": {"engine": "local"}}


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
@FEW
@given(records=INPUTS)
def test_c_pip_040_skipping_loads_exactly_the_good_records(mode, records):
    with by_threads():
        check(records, mode, {**LOCAL, "threads": {"engine": "spark"}})


# --- what is told ---------------------------------------------------------------------------------


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    copy_of(seeded, tmp_path / "graph.omni")
    return og.open(tmp_path / "graph.omni")


@pytest.fixture
def errors(tmp_path: Path) -> Path:
    return tmp_path / "errors.jsonl"


def skipping(errors: Path | None = None, **more: Any) -> ErrorOptions:
    return ErrorOptions(on_error="skip", errors_out=errors, **more)


def told(errors: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in errors.read_text().splitlines()]


def test_c_pip_040_rows_of_tables_are_skipped_with_their_cells(graph, tmp_path, errors):
    people, notes, likes = (tmp_path / name for name in ("p.csv", "n.parquet", "l.json"))
    people.write_text("slug,name,age\np2,Cat,7\np3,Dan\np4,Eve,old\np5,,3\np2,Cat,8\n")
    pq.write_table(pa.table({"id": ["n2", "n3", "n4"], "mark": ["c", "c", "d"]}), notes)
    likes.write_text(
        json.dumps(
            [
                {"from": "p0", "to": "n3", "stars": 1},
                {"from": "p1", "to": "n4", "stars": "many"},
                {"from": "p1", "to": "n4", "stars": 2},
            ]
        )
    )
    receipt = graph.load(
        nodes={"Person": people, "Note": notes},
        edges={"Rates": likes},
        mode="append",
        engine="local",
        errors=skipping(errors),
    )
    found = [(Path(each["file"]).name, each["record"], each["kind"]) for each in told(errors)]
    assert found == [
        ("p.csv", 1, "repeated_key"),
        ("p.csv", 2, "bad_record"),
        ("p.csv", 3, "bad_value"),
        ("p.csv", 4, "bad_value"),
        ("p.csv", 5, "repeated_key"),
        ("n.parquet", 1, "unique"),
        ("n.parquet", 2, "unique"),
        ("l.json", 1, "missing_node"),
        ("l.json", 2, "bad_value"),
    ]
    given = [each["input"] for each in told(errors)]
    assert given[:2] == [{"slug": "p2", "name": "Cat", "age": "7"}, "p3,Dan"]
    assert given[5:8] == [
        {"id": "n2", "mark": "c"},
        {"id": "n3", "mark": "c"},
        {"from": "p0", "to": "n3", "stars": 1},
    ]
    skipped = {each.name: (each.records_read, each.skipped) for each in receipt.types}
    assert skipped == {"Person": (5, 5), "Note": (3, 2), "Rates": (3, 2)}
    assert (receipt.skipped, receipt.inserted) == (9, 2)
    node_skipped = "dst 'n3' not found in Note: the record of this node was skipped"
    assert [each["message"] for each in told(errors)][7] == node_skipped


def test_c_pip_040_more_than_the_allowed_share_writes_nothing_but_the_file(graph, errors):
    data = lines(*(node("Person", slug=f"x{i}", name="X") for i in range(8)), "7", "8")
    before = content(graph)
    with pytest.raises(
        InputError, match=r"in 2 of 10 records, more than the allowed share of 0\.1"
    ):
        graph.load(
            data=data,
            mode="append",
            grammar="strict",
            errors=skipping(errors, max_error_share=0.1),
        )
    assert [each["line"] for each in told(errors)] == [9, 10]
    assert content(graph) == before
    allowed = skipping(errors, max_error_share=0.2)
    receipt = graph.load(data=data, mode="append", grammar="strict", errors=allowed)
    assert (receipt.inserted, receipt.skipped) == (8, 2)
    assert [each["input"] for each in receipt.problems] == [7, 8]


def test_c_pip_040_a_dry_run_tells_what_would_be_skipped(graph, errors):
    data = lines(node("Person", slug="x", name="X"), node("Person", slug="p0", name="Y"))
    tried = graph.load(data=data, mode="append", dry_run=True, errors=skipping(errors))
    assert (tried.inserted, tried.skipped, tried.commit) == (1, 1, None)
    assert told(errors)[0]["kind"] == "existing_id"
    assert len(graph.list_commits()) == 2


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_c_pip_040_a_repeated_key_gives_the_first_receipt_and_keeps_the_file(
    graph, tmp_path, errors, engine
):
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines(node("Person", slug="x", name="X"), node("Persn", slug="y")))
    options: Any = {"mode": "append", "operation_id": "k1", "engine": engine}
    with by_threads():
        first = graph.load(path, errors=skipping(errors), **options)
        file = errors.read_text()
        again = graph.load(path, errors=skipping(errors), **options)
        assert errors.read_text() == file != ""
        assert (again.commit, again.skipped) == (first.commit, 1)
        with pytest.raises(Conflict, match="a load with on_error='skip', not 'fail'"):
            graph.load(path, **options)


@pytest.mark.parametrize(
    ("name", "content", "grammar", "message"),
    [
        (
            "a.jsonl.gz",
            gzip.compress(b'{"type": "Note", "data": {}}\n' * 99, mtime=0)[:-9],
            "strict",
            "a.json",
        ),
        ("a.jsonl", b'{"type": "Note"}\n{', "compatible", "records cannot be told apart"),
        ("a.csv", b'slug,name\nx,X\ny,"Y\nz,Z\n', "strict", "records cannot be told apart"),
        ("a.json", b'[{"slug": "x", "name": "X"}, {"slug": ', "strict", "cannot be told apart"),
    ],
    ids=["gzip", "records", "csv", "array"],
)
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_c_pip_040_what_cannot_be_read_to_its_end_still_fails(
    graph, tmp_path, errors, name, content, grammar, message, engine
):
    path = tmp_path / name
    path.write_bytes(content)
    is_table = name.endswith((".csv", ".json"))
    given: Any = {"nodes": {"Person": path}} if is_table else {}
    with by_threads(), pytest.raises(OmnigraphError, match=message):
        graph.load(
            *([] if is_table else [path]),
            mode="append",
            grammar=grammar,
            engine=engine,
            errors=skipping(errors),
            **given,
        )
    assert len(graph.list_commits()) == 2


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_c_pip_040_records_are_tried_again_when_the_branch_moves(
    graph, tmp_path, errors, engine, mode, monkeypatch
):
    """What was bad beside the old head may be good beside the new one, and the other way round."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(
        lines(
            node("Person", slug="x", name="X", email="m0"),
            node("Person", slug="y", name="Y", email="m8"),
        )
    )
    other = og.open(graph.uri)
    moved = lines(
        node("Person", slug="p0", name="Ada", email="m7"),
        node("Person", slug="z", name="Z", email="m8"),
    )
    kind = InProcessLoad if engine == "local" else TaskLoad
    changes, calls = kind.changes, []

    def then_move(self: Any, capture: Any) -> Any:
        found = changes(self, capture)
        calls.append(found)
        if len(calls) == 1:
            other.load(data=moved, mode="merge")
        return found

    monkeypatch.setattr(kind, "changes", then_move)
    with by_threads():
        receipt = graph.load(path, mode=mode, engine=engine, errors=skipping(errors))
    assert (receipt.inserted, receipt.skipped) == (1, 1)
    assert len(calls) > 1
    assert [each["record"] for each in told(errors)] == [2]
    assert "x" in {row["data"].get("slug") for row in content(graph)}


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize(
    "bad",
    [
        [node("Person", slug="x", name="X", age=151)],
        [node("Person", slug="x", name="X")] * 2,
        [node("Person", slug=slug, name="X", email="m9") for slug in ("x", "y")],
        [node("Person", slug="x", age=7)],
    ],
    ids=["value", "repeated", "unique", "incomplete"],
)
def test_c_pip_040_edges_say_that_their_node_was_skipped(graph, tmp_path, errors, engine, bad):
    path = tmp_path / "in.jsonl"
    path.write_bytes(
        lines(*bad, edge("Knows", "p0", "x", id="k9"), edge("Knows", "p1", "q", id="k8"))
    )
    with by_threads():
        graph.load(path, mode="merge", engine=engine, errors=skipping(errors))
    messages = [each["message"] for each in told(errors) if each["type"] == "Knows"]
    known = "dst 'x' not found in Person: the record of this node was skipped"
    assert messages == [known, "dst 'q' not found in Person"]


def test_c_pip_040_objects_are_copied_for_the_records_beside_a_bad_one(tmp_path, errors):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"a picture")
    uri = (tmp_path / "pictures" / "a.png").as_uri()
    schema = "node Film { code: String @key  year: I32  still: Blob? }"
    path, table = tmp_path / "films.jsonl", tmp_path / "films.parquet"
    rows = [{"code": code, "year": year, "still": uri} for code, year in (("a", 1), ("b", None))]
    path.write_bytes(lines(*(node("Film", **each) for each in rows)))
    pq.write_table(pa.Table.from_pylist(rows), table)
    for name, sources, tables in (("records", [path], {}), ("table", [], {"Film": table})):
        bases = [(tmp_path / "pictures").as_uri()]
        graph = og.init(tmp_path / f"{name}.omni", schema, external_blobs=bases)
        receipt = graph.load(
            *sources, nodes=tables, mode="append", engine="local", errors=skipping(errors)
        )
        assert (receipt.inserted, receipt.skipped) == (1, 1)
        found = graph.blob("node", "Film", "a", "still")
        assert (found.kind, found.read()) == ("managed", b"a picture")


def test_c_pip_040_records_of_a_stream_are_told(graph, errors):
    blocks = iter([b'{"type": "Note", "data": {"text": 1}}\n{"ty', b'pe": "Note", "data": {}}\n'])
    receipt = graph.load(data=blocks, mode="append", grammar="strict", errors=skipping(errors))
    assert (receipt.inserted, receipt.skipped) == (1, 1)
    assert told(errors)[0]["input"] == {"type": "Note", "data": {"text": 1}}


def test_c_pip_040_an_interrupted_schema_apply_is_completed_first(graph, tmp_path):
    """An unknown type may be one that the apply declares: its records are not skipped."""
    wider = f"{SCHEMA}\nnode Pet {{ name: String @key }}"
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines(node("Pet", name="Rex")))
    with (
        armed({Failpoint.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT: "error"}),
        pytest.raises(RecoveryRequired),
    ):
        og.open(graph.uri).apply_schema(wider)
    receipt = graph.load(path, mode="append", engine="local", errors=skipping())
    assert (receipt.inserted, receipt.skipped) == (1, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": "ignore"}, "`on_error` is 'fail' or 'skip', not 'ignore'"),
        ({"on_error": "skip", "max_error_share": 2}, "is a number from 0 to 1, not 2"),
        ({"on_error": "skip", "max_error_share": True}, "is a number from 0 to 1, not True"),
        ({"max_error_share": 0.1}, "needs `on_error='skip'`"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ErrorOptions(**options)


def test_more_records_than_can_be_held_are_refused(graph, monkeypatch):
    monkeypatch.setattr(skipping_rules, "SKIPPED_MAX", 3)
    data = lines(*(edge("Knows", "p0", f"q{i}", id=f"e{i}") for i in range(4)))
    with pytest.raises(LimitExceeded, match="records that a load skips because of others"):
        graph.load(data=data, mode="append", errors=skipping())


# --- on workers -----------------------------------------------------------------------------------

APPENDED = [
    node("Person", slug="p0", name="Ada"),
    node("Person", slug="p2", name="Cat", age=151),
    node("Person", slug="p6", name="Fay"),
    node("Note", id="n2", mark="c"),
    node("Note", id="n2", mark="d"),
    "{",
    edge("Knows", "p6", "p2", id="k1"),
    edge("Knows", "p6", "p1", id="k2"),
]
"""Repeated and taken ids, then edges of nodes that are skipped."""
MERGED = [
    node("Person", slug="p5", email="m5"),
    node("Note", id="n2", mark="c"),
    node("Note", id="n2", mark="d"),
    edge("Likes", "p1", "n2", id="l0"),
    edge("Rates", "p0", "n0", stars=2, code="c1"),
    edge("Rates", "p1", "n2", code="c2"),
]
"""A node that lacks a value, an edge that its source needs, and one that is found by its key."""


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_c_pip_040_workers_skip_the_same_records(mode, spark):
    on_workers = {"engine": "spark", "spark": SparkOptions(spark)}
    records = APPENDED if mode == "append" else MERGED
    check(records, mode, {**LOCAL, "workers": on_workers})


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_c_pip_040_rows_of_frames_are_skipped(graph, spark, errors):
    """Loaded by workers, and written through the data source."""
    rows = [("x", "X", 1), ("y", "Y", 151), ("p0", "Ada", None), ("z", "Z", 200)]
    frame = spark.createDataFrame(rows, "slug string, name string, age int").repartition(2, "slug")
    with pytest.raises(InputError):
        graph.load(frames={"Person": frame}, mode="append", errors=ErrorOptions(1, errors))
    assert {each["kind"] for each in told(errors)} == {"constraint", "existing_id"}
    assert len(told(errors)) == 3
    options = {"on_error": "skip", "errors_out": str(errors), "max_error_share": "0.75"}
    writer = frame.write.format("omnigraph").option("type", "Person").options(**options)
    writer.mode("append").save(graph.uri)
    assert {each["input"]["slug"] for each in told(errors)} == {"y", "p0", "z"}
    receipt = graph.load(
        frames={"Person": frame}, mode="append", dry_run=True, errors=skipping(errors)
    )
    assert (receipt.engine, receipt.inserted, receipt.skipped) == ("spark", 0, 4)
    assert sorted(each["input"]["slug"] for each in told(errors)) == ["p0", "x", "y", "z"]
    assert all(each["file"].startswith("<frame Person>[") for each in told(errors))
    assert {"x"} == {row["data"].get("slug") for row in content(graph)} - {"p0", "p1", None}


def test_options_of_the_data_source_that_mean_nothing_are_refused():
    given = {"path": "g.omni", "type": "Person"}
    assert SourceOptions.of(given).error_options() == ErrorOptions()
    for more, message in (
        ({"on_error": "ignore"}, "`on_error` is 'fail' or 'skip'"),
        ({"max_error_share": "half"}, "'max_error_share' is 'half', which is no number"),
        ({"max_error_share": "0.5"}, "needs `on_error='skip'`"),
    ):
        with pytest.raises(InputError, match=message):
            SourceOptions.of(given | more).error_options()
