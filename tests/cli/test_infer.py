"""`omnigraph infer` and `omnigraph import`."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from omnigraph.cli.failures import ExitCode
from omnigraph.graph import open_graph
from tests.cli.conftest import Run


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "airports.csv").write_text("iata,City\nBER,Berlin\nMUC,Munich\nOSL,Oslo\n")
    (tmp_path / "flights.csv").write_text("origin,destination,seats\nBER,MUC,180\nMUC,OSL,\n")
    return [str(tmp_path / "airports.csv"), str(tmp_path / "flights.csv")]


def test_infer_prints_the_schema_and_notes_the_commands_apart(run: Run, files: list[str]):
    outcome = run("infer", *files)
    assert outcome.code == ExitCode.OK
    assert "edge Flight: Airport -> Airport {" in outcome.out
    assert "omnigraph load --store graph.omni --node Airport=" in outcome.err
    assert run("infer", *files, "--quiet").err == ""


def test_infer_as_json_has_types_reasons_and_the_load(run: Run, files: list[str]):
    document = json.loads(run("infer", *files, "--json").out)
    airport, flight = document["types"]
    assert airport["key"] == ["iata"]
    assert flight["from"] == {"column": "origin", "type": "Airport", "property": "iata"}
    assert document["load"]["edges"] == {"Flight": files[1]}
    assert document["load"]["map"]["Airport"] == {"City": "city"}
    assert document["schema"].startswith("// Inferred")
    assert len(document["commands"]) == 2


def test_import_shows_the_plan_then_creates_and_loads(run: Run, files: list[str], tmp_path: Path):
    graph = tmp_path / "air.omni"
    outcome = run("import", *files, str(graph), "--message", "first", "--as", "ada")
    assert outcome.code == ExitCode.OK, outcome.err
    assert "edge Flight: Airport -> Airport" in outcome.err
    assert "5 entities loaded into main" in outcome.out
    (newest, *_) = open_graph(graph).list_commits()
    assert (newest.kind, newest.actor_id, newest.message) == ("load", "ada", "first")
    assert sorted(path.name for path in tmp_path.iterdir() if "omni" in path.name) == ["air.omni"]


def test_import_as_json_is_one_document_with_plan_and_receipt(
    run: Run, files: list[str], tmp_path: Path
):
    document = json.loads(run("import", *files, str(tmp_path / "air.omni"), "--json").out)
    assert document["load"]["inserted"] == 5
    assert [each["name"] for each in document["plan"]["types"]] == ["Airport", "Flight"]


def test_a_dry_run_of_import_writes_nothing(run: Run, files: list[str], tmp_path: Path):
    before = sorted(tmp_path.rglob("*"))
    outcome = run("import", *files, str(tmp_path / "air.omni"), "--dry-run")
    assert outcome.code == ExitCode.OK
    assert "nothing was written" in outcome.out
    assert sorted(tmp_path.rglob("*")) == before


def test_an_import_that_fails_leaves_nothing_behind(
    run: Run, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = sorted(tmp_path.rglob("*"))

    def refused(*given: object, **options: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("omnigraph.graph.Graph.load", refused)
    assert run("import", *files, str(tmp_path / "air.omni")).code != ExitCode.OK
    assert sorted(tmp_path.rglob("*")) == before


def test_import_refuses_a_place_that_is_taken(run: Run, files: list[str], tmp_path: Path):
    graph = tmp_path / "air.omni"
    assert run("import", files[0], str(graph)).code == ExitCode.OK
    head = open_graph(graph).snapshot().graph_commit_id
    outcome = run("import", files[0], str(graph))
    assert outcome.code != ExitCode.OK
    assert "already holds a graph" in outcome.err
    assert open_graph(graph).snapshot().graph_commit_id == head
    outcome = run("import", files[0], str(tmp_path))
    assert "is no graph" in outcome.err
    assert Path(files[0]).exists()


def test_import_to_shared_storage_needs_consent(run: Run, files: list[str]):
    outcome = run("import", *files, "s3://lake/air.omni")
    assert outcome.code != ExitCode.OK
    assert "--yes" in outcome.err


def test_what_cannot_be_inferred_is_a_failure_with_a_hint(run: Run, tmp_path: Path):
    empty = tmp_path / "empty.csv"
    empty.write_bytes(b"")
    outcome = run("infer", str(empty), "--json")
    assert outcome.code != ExitCode.OK
    assert "has no header" in outcome.out


def test_infer_and_import_take_the_delimiter_of_their_files(run: Run, tmp_path: Path):
    (tmp_path / "people.csv").write_text("id|tags\n1|a;b\n2|\n3|c\n")
    files = [str(tmp_path / "people.csv")]
    options = ["--delimiter", "|", "--list-separator", ";"]
    document = json.loads(run("infer", *files, *options, "--json").out)
    assert [each["type"] for each in document["types"][0]["properties"]] == ["I64", "[String]?"]
    assert document["commands"][1].endswith("--delimiter '|' --list-separator ';' --mode append")
    done = run("import", *files, str(tmp_path / "g.omni"), *options)
    assert "3 entities loaded into main" in done.out
    assert "--delimiter '|'" in run("infer", *files).err


AIRPORTS = Path(__file__).parents[2] / "examples" / "airports"


def test_c_pip_039_c_pip_041_from_files_to_an_equal_graph(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Inferred, imported, merged twice with what is new, exported and loaded elsewhere."""
    monkeypatch.chdir(tmp_path)
    for name in ("airports.csv", "countries.csv", "flights.csv"):
        shutil.copy(AIRPORTS / name, name)
    files = ["airports.csv", "countries.csv", "flights.csv"]
    document = json.loads(run("infer", *files, "--json").out)
    assert "47 entities loaded" in run("import", *files, "graph.omni").out
    merge = [*shlex.split(document["commands"][1])[1:-1], "merge"]
    assert "nothing changed" in run(*merge).out
    with Path("airports.csv").open("a") as file:
        file.write("TRF,Torp,Sandefjord,NO,59.18,10.25,1958-07-05,small\n")
    text = (
        Path("flights.csv")
        .read_text()
        .replace("AMS,BER,OA 0101,06:45,180", "AMS,BER,OA 0101,06:45,186")
    )
    Path("flights.csv").write_text(text + "OSL,TRF,OA 0999,08:00,50\n")
    receipt = json.loads(run(*merge, "--json").out)
    assert (receipt["inserted"], receipt["updated"], receipt["unchanged"]) == (3, 1, 46)
    assert "nothing changed" in run(*merge).out
    Path("schema.pg").write_text(document["schema"])
    for format in ("parquet", "csv", "arrow", "jsonl"):
        assert run("export", "--store", "graph.omni", "--format", format, "--out", format).code == 0
        run("init", "--schema", "schema.pg", f"{format}.omni")
        done = run("load", f"{format}.omni", "--data", format, "--mode", "append")
        assert "50 entities loaded" in done.out, done.err
        there, here = (
            b"".join(open_graph(each).export()) for each in (f"{format}.omni", "graph.omni")
        )
        assert sorted(there.splitlines()) == sorted(here.splitlines())
