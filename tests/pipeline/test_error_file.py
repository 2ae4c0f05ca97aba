"""What is said about a bad input: in which order, how much of it, and into which file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.errors import InputError, KeyConflict, NotFound
from omnigraph.graph import ErrorOptions, Graph
from tests.commit.loading import edge, lines, node


def people(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["slug,name,age", *rows, ""]))
    return path


# --- the file ---


def test_an_error_file_that_is_loaded_is_refused_and_stays_as_it_is(graph: Graph, tmp_path):
    table = people(tmp_path / "people.csv", "ada,Ada,1")
    records = tmp_path / "notes.jsonl"
    records.write_bytes(lines(node("Note", text="x")))
    link = tmp_path / "link.csv"
    link.hardlink_to(table)
    before = table.read_bytes(), records.read_bytes()
    for errors in (table, tmp_path / "." / "people.csv", link):
        with pytest.raises(InputError, match="is a file that is loaded"):
            graph.load(
                nodes={"Person": table},
                mode="append",
                engine="local",
                errors=ErrorOptions(errors_out=errors),
            )
    with pytest.raises(InputError, match="is a file that is loaded"):
        graph.load(
            tmp_path / "*.jsonl",
            mode="append",
            engine="local",
            errors=ErrorOptions(errors_out=records),
        )
    assert (table.read_bytes(), records.read_bytes()) == before


def test_an_error_file_may_not_lie_in_the_graph_or_in_a_directory_that_is_loaded(graph, tmp_path):
    loaded = tmp_path / "in"
    loaded.mkdir()
    people(loaded / "people.csv", "ada,Ada,1")
    for errors, message in (
        (loaded / "errors.jsonl", "which is loaded"),
        (Path(graph.uri) / "errors.jsonl", "lies in the graph"),
        (tmp_path / "no" / "errors.jsonl", "a directory that does not exist"),
        (tmp_path, "is a directory"),
    ):
        with pytest.raises(InputError, match=message):
            graph.load(
                nodes={"Person": loaded},
                mode="append",
                engine="local",
                errors=ErrorOptions(errors_out=errors),
            )
    assert not (loaded / "errors.jsonl").exists()
    assert len(graph.list_commits()) == 1


def test_an_error_file_is_emptied_once_the_input_was_found(graph: Graph, tmp_path):
    errors = tmp_path / "errors.jsonl"
    errors.write_text("of an earlier load\n")
    for missing in ({"nodes": {"Person": tmp_path / "no.csv"}}, {"frames": {"Nope": None}}):
        with pytest.raises((NotFound, InputError)):
            graph.load(
                mode="append", engine="local", errors=ErrorOptions(errors_out=errors), **missing
            )
        assert errors.read_text() == "of an earlier load\n"
    table = people(tmp_path / "people.csv", "ada,Ada,1")
    graph.load(
        nodes={"Person": table},
        mode="append",
        engine="local",
        errors=ErrorOptions(errors_out=errors),
    )
    assert errors.read_text() == ""


# --- order and counts ---


def bad_records(tmp_path: Path) -> list[Path]:
    first, second = tmp_path / "b.jsonl", tmp_path / "a.jsonl"
    first.write_bytes(
        lines(
            node("Person", slug="ada", age=500),
            edge("Knows", "ada", "nobody"),
            node("Person", slug="bob", age="old"),
        )
    )
    second.write_bytes(lines(node("Person", slug="cy", age="old")))
    return [first, second]


def test_c_pip_005_records_are_told_in_the_order_of_the_input_with_all_counts(graph, tmp_path):
    files = bad_records(tmp_path)
    errors = tmp_path / "errors"
    with pytest.raises(InputError) as caught:
        graph.load(
            *files,
            mode="append",
            grammar="strict",
            engine="local",
            errors=ErrorOptions(1, errors),
        )
    _, first, more, kinds = caught.value.message.splitlines()
    assert first.startswith(f"{files[0]}:1: Person.age: @range violation")
    assert (more, kinds) == ("… and 3 more", "by kind: 2 bad_value, 1 constraint, 1 missing_node")
    listed = [json.loads(line) for line in errors.read_text().splitlines()]
    assert [(each["file"], each["line"]) for each in listed] == [
        (str(files[0]), 1),
        (str(files[0]), 2),
        (str(files[0]), 3),
        (str(files[1]), 1),
    ]


def test_c_pip_005_rows_of_tables_are_told_in_the_order_of_the_input(graph: Graph, tmp_path):
    table = people(tmp_path / "people.csv", "ada,Ada,500", "bob,Bob,1", "bob,Bob,1", "cy,Cy,old")
    knows = tmp_path / "knows.csv"
    knows.write_text("from,to\nbob,nobody\n")
    errors = tmp_path / "errors.jsonl"
    with pytest.raises(InputError) as caught:
        graph.load(
            nodes={"Person": table},
            edges={"Knows": knows},
            mode="append",
            engine="local",
            errors=ErrorOptions(1, errors),
        )
    assert f"\n{table}:1: Person.age: @range" in caught.value.message
    listed = [json.loads(line) for line in errors.read_text().splitlines()]
    assert [(Path(each["file"]).name, each["record"]) for each in listed] == [
        ("people.csv", 1),
        ("people.csv", 3),
        ("people.csv", 4),
        ("knows.csv", 1),
    ]


@pytest.mark.parametrize("with_findings", [True, False])
def test_a_single_conflict_begins_with_its_place(graph: Graph, tmp_path, with_findings):
    table = people(tmp_path / "people.csv", "zoe,Zoe,1")
    records = tmp_path / "people.jsonl"
    records.write_bytes(lines(node("Person", slug="new"), node("Person", slug="zoe")))
    graph.load(nodes={"Person": table}, mode="append", engine="local")
    with pytest.raises(KeyConflict) as caught:
        graph.load(nodes={"Person": table}, mode="append", engine="local")
    assert caught.value.message == f"{table}:1: node Person with id 'zoe' already exists"
    with pytest.raises(KeyConflict) as caught:
        most = 10 if with_findings else None
        graph.load(
            records, mode="append", grammar="strict", engine="local", errors=ErrorOptions(most)
        )
    assert caught.value.message == f"{records}:2: node Person with id 'zoe' already exists"
    assert caught.value.hint == "use mode merge to update existing entities"


@pytest.mark.parametrize("most", [0, -1, "x"])
def test_no_problem_at_all_cannot_be_asked_for(graph: Graph, most):
    with pytest.raises(InputError, match="`max_errors` is a number from 1 on"):
        graph.load(data="", mode="append", errors=ErrorOptions(most))
