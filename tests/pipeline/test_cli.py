"""`omnigraph load` on Spark: the command, its events, and what it says about a bad input."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.cli.main import main
from omnigraph.graph import Graph
from tests.commit.loading import lines, node

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """The command in this process, where it finds the session of the tests."""
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def call(*arguments: object) -> tuple[int, str, str]:
        code = 0
        try:
            code = int(main([str(each) for each in arguments]) or 0)
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def tables(tmp_path: Path) -> list[str]:
    people = pa.table({"slug": ["ada", "bob"], "age": pa.array([36, 20], pa.int32())})
    pq.write_table(people, tmp_path / "people.parquet")
    (tmp_path / "knows.csv").write_text("from,to,since\nada,bob,2020-01-01\n")
    knows = f"Knows={tmp_path}/*.csv"
    return ["--node", f"Person={tmp_path}/people.parquet", "--edge", knows, "--mode", "append"]


def test_tables_are_loaded_and_the_engine_is_told_with_its_reason(run, graph: Graph, tables):
    code, out, err = run("load", graph.uri, *tables)
    assert code == 0, err
    assert re.search(r"engine: spark \([\d,]+ bytes are loaded faster by several processes\)", err)
    assert "3 entities loaded into main" in out


def test_c_pip_034_events_have_stage_rows_and_rate(run, graph: Graph, tables):
    code, out, err = run("load", graph.uri, *tables, "--json")
    assert code == 0, err
    chosen, *events = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert (chosen["event"], chosen["engine"]) == ("engine", "spark")
    assert [event["stage"] for event in events] == ["plan", "read", "check", "commit"]
    assert events[1]["rows"] == 3 and events[1]["rows_per_second"] >= 0
    receipt = json.loads(out)
    assert receipt["engine"] == "spark"
    assert [stage["name"] for stage in receipt["stages"]] == ["plan", "read", "check", "commit"]


def test_c_pip_004_three_planted_errors_are_all_named_and_nothing_is_written(
    run, graph: Graph, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    people = pa.table({"slug": ["ada", "bob", "ada"], "age": pa.array([36, 200, 1], pa.int32())})
    pq.write_table(people, "people.parquet")
    Path("knows").mkdir()
    Path("knows/1.csv").write_text("from,to,since\nada,bob,2020-01-01\n")
    Path("knows/2.csv").write_text("from,to,since\nbob,ada,\nada,eve,\n")
    before = run("commit", "list", "graph.omni")
    command = (
        "load graph.omni --node Person=people.parquet --edge Knows=knows/*.csv --mode append --json"
    )
    code, out, _ = run(*command.split(), "--errors-out", "errors.jsonl")
    assert code == 1
    said = json.loads(out)
    for words in (
        "people.parquet:2: Person.age: @range violation",
        "people.parquet:3: Person: @unique violation on Person.slug",
        "knows/2.csv:2: Knows.dst: dst 'eve' not found in Person",
    ):
        assert words in said["error"]
    listed = [json.loads(line) for line in Path("errors.jsonl").read_text().splitlines()]
    assert sorted((each["kind"], each["file"], each["record"]) for each in listed) == [
        ("constraint", "people.parquet", 2),
        ("missing_node", "knows/2.csv", 2),
        ("repeated_key", "people.parquet", 3),
    ]
    assert run("commit", "list", "graph.omni") == before


def test_the_page_of_spark_is_told_if_there_is_one(run, graph: Graph, tables, spark, monkeypatch):
    address = "http://127.0.0.1:4040"
    monkeypatch.setattr(type(spark.sparkContext), "uiWebUrl", address)
    assert f"Spark shows its work at {address}" in run("load", graph.uri, *tables)[2]
    again = [*tables[:2], "--mode", "merge", "--json"]
    events = run("load", graph.uri, *again)[2].splitlines()
    assert {"event": "session", "ui": address} in [
        json.loads(each) for each in events if "{" in each
    ]


def test_a_dry_run_and_a_key_say_what_they_did(run, graph: Graph, tables):
    code, out, _ = run("load", graph.uri, *tables, "--dry-run")
    assert code == 0 and "would be loaded" in out and "nothing was written" in out
    first = run("load", graph.uri, *tables, "--idempotency-key", "k1")[1]
    second = run("load", graph.uri, *tables, "--idempotency-key", "k1")[1]
    assert first == second and "3 entities loaded" in first


def test_columns_are_mapped_on_the_command_line(run, graph: Graph, tmp_path):
    (tmp_path / "all.csv").write_text("Id|Kind|Tags\nADA|person|a;b\nx|thing|\n")
    (tmp_path / "knows.csv").write_text("p|p\nada|ada\n")
    code, out, err = run(
        *("load", graph.uri, "--mode", "append", "--engine", "local", "--json"),
        *("--node", f"Person={tmp_path}/all.csv", "--edge", f"Knows={tmp_path}/knows.csv"),
        *("--map", "Person:lower(Id)=slug", "--map", "Person:Tags=tags"),
        *("--map", "Knows:#1=from", "--map", "Knows:#2=to"),
        *("--where", "Person:Kind=person", "--delimiter", "|", "--list-separator", "Person:;"),
    )
    assert code == 0, err
    assert json.loads(out)["inserted"] == 2
    assert b'"tags":["a","b"]' in b"".join(graph.export())
    code, out, err = run("load", graph.uri, "--data", f"{tmp_path}/x", "--mode", "append", "--map")
    assert code == 2


def test_the_same_options_work_in_process(run, graph: Graph, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(node("Person", slug="a", age=500), node("Person", slug="b", age="x")))
    errors = tmp_path / "errors.jsonl"
    load = ("load", graph.uri, "--data", path, "--mode", "append", "--engine", "local")
    code, _, err = run(*load, "--max-errors", "1", "--errors-out", errors)
    assert code == 1 and "the input has 2 problems" in err and "… and 1 more" in err
    assert len(errors.read_text().splitlines()) == 2
    path.write_bytes(lines(node("Person", slug="a")))
    assert "would be loaded" in run(*load, "--dry-run")[1]
    assert len(graph.list_commits()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node", "people.parquet"], "`--node` takes a type and a file"),
        (["--data", "x.jsonl", "--engine", "spak"], "did you mean `spark`"),
        (["--data", "x.jsonl", "--spark-conf", "a"], "'a' is not a Spark setting"),
    ],
)
def test_wrong_arguments_are_told_before_anything_starts(
    run, graph: Graph, arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.jsonl").touch()
    code, _, err = run("load", graph.uri, *arguments, "--mode", "append")
    assert code and message in err
