"""`omnigraph lint`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SCHEMA = "examples/social/schema.pg"
QUERIES = "examples/social/queries.gq"


def write(folder: Path, text: str, name: str = "queries.gq") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("example", ["social", "library"])
@pytest.mark.parametrize("file", ["queries", "mutations"])
def test_examples_are_clean(run, example: str, file: str):
    done = run(
        *("lint", "--schema", f"examples/{example}/schema.pg"),
        *("--query", f"examples/{example}/{file}.gq"),
    )
    assert done.code == 0
    assert done.out.endswith(" checked, no problems\n")
    assert done.err == ""


# --- the issue, as it was asked for ---------------------------------------------------------------


def test_the_example_passes_as_a_program_with_json(spawn):
    done = spawn("lint", "--schema", SCHEMA, "--query", QUERIES, "--json")
    assert done.code == 0
    assert json.loads(done.out)["status"] == "ok"


def test_c_cli_044_one_misspelt_edge_exits_with_1_and_names_place_code_and_nearest_edge(
    spawn, tmp_path: Path
):
    text = Path(__file__).parents[2].joinpath(QUERIES).read_text(encoding="utf-8")
    lines = text.split("\n")
    line = next(at for at, content in enumerate(lines, 1) if "$me <knows>{2,2} $other" in content)
    column = lines[line - 1].index("knows") + 1
    path = write(tmp_path, text.replace("<knows>{2,2}", "<konws>{2,2}"))
    human = spawn("lint", "--schema", SCHEMA, "--query", path)
    assert human.code == 1
    assert f"{path}:{line}:{column}: type error: T4: unknown edge `konws`" in human.out
    assert "hint: did you mean `knows`?" in human.out
    caret = human.out[human.out.index("^") - column :]
    assert caret.startswith(" " * column + "^^^^^\n")
    machine = spawn("lint", "--schema", SCHEMA, "--query", path, "--json")
    assert machine.code == 1
    report = json.loads(machine.out)
    (finding,) = report["findings"]
    assert finding["code"] == "T4"
    assert finding["hint"] == "did you mean `knows`?"
    assert (finding["position"]["line"], finding["position"]["column"]) == (line, column)


# --- the JSON document ----------------------------------------------------------------------------


def test_json_has_exactly_the_members_of_the_contract(run, tmp_path: Path):
    path = write(
        tmp_path,
        "query good($h: String) { match { $p: Person { handle: $h } } return { $p.name } }\n"
        "query bad() { match { $p: Nobody } return { $p } }\n"
        'query hard() { update Person set { bio: "x" } where handle = "ada" }\n',
    )
    done = run("lint", "--schema", SCHEMA, "--query", path, "--json")
    assert done.code == 1
    report = json.loads(done.out)
    assert list(report) == [
        *("status", "schema_source", "query_path", "queries_processed"),
        *("errors", "warnings", "infos", "results", "findings"),
    ]
    assert report["status"] == "error"
    assert report["schema_source"] == {"kind": "file", "path": SCHEMA}
    assert report["query_path"] == str(path)
    assert (report["queries_processed"], report["errors"], report["infos"]) == (3, 1, 0)
    good, bad, hard = report["results"]
    assert good["status"] == "ok" and good["kind"] == "read" and "error" not in good
    assert good["operation"]["reads"] == [{"kind": "node", "type_name": "Person"}]
    assert bad["status"] == "error" and "operation" not in bad
    assert bad["error"].startswith("type error: T1: ")
    assert hard["kind"] == "mutation" and len(hard["warnings"]) == 1
    assert [finding["severity"] for finding in report["findings"]] == ["error"] + ["warning"] * 3
    assert report["warnings"] == 1 + 3


def test_a_file_that_does_not_parse_is_one_finding(run, tmp_path: Path):
    path = write(tmp_path, "query a() {\n    match { $p Person }\n}")
    done = run("lint", "--schema", SCHEMA, "--query", path, "--json")
    assert done.code == 1
    report = json.loads(done.out)
    assert (report["queries_processed"], report["errors"]) == (0, 1)
    (finding,) = report["findings"]
    assert finding["code"] == "Q000"
    assert finding["position"]["line"] == 2


def test_an_empty_file_is_fine(run, tmp_path: Path):
    done = run("lint", "--schema", SCHEMA, "--query", write(tmp_path, ""))
    assert (done.code, done.out) == (0, "0 queries checked, no problems\n")


# --- for people -----------------------------------------------------------------------------------


def test_warnings_alone_exit_with_0_and_are_counted(run, tmp_path: Path):
    text = "query edit($h: String) { update Group set { seats: null } where name = $h }\n"
    text += 'query purge() { delete Post where slug = "x" }\n'
    done = run("lint", "--schema", SCHEMA, "--query", write(tmp_path, text))
    assert done.code == 0
    assert "warning: purge: mutation declares no params" in done.out
    assert done.out.endswith("2 queries checked: 0 errors, 1 warning\n")


def test_a_property_no_update_sets_is_a_warning_with_its_code(run, tmp_path: Path):
    text = "query edit($h: String) { update Person set { name: $h } where handle = $h }"
    done = run("lint", "--schema", SCHEMA, "--query", write(tmp_path, text))
    assert done.code == 0
    assert "warning: L201: Person.bio exists in schema but no update query sets it (edit)" in (
        done.out
    )


def test_errors_are_shown_in_the_order_of_the_file(run, tmp_path: Path):
    text = (
        "query one() { match { $p: Zebra } return { $p } }\n"
        "query two() { match { $p: Aardvark } return { $p } }\n"
    )
    done = run("lint", "--schema", SCHEMA, "--query", write(tmp_path, text))
    assert done.out.index("Zebra") < done.out.index("Aardvark")
    assert done.out.endswith("2 queries checked: 2 errors, 0 warnings\n")


# --- plans ----------------------------------------------------------------------------------------


def test_explain_shows_the_plan_of_each_query_that_compiles(run, tmp_path: Path):
    text = (
        "query bad() { match { $p: Nobody } return { $p } }\n"
        "query good() { match { $p: Person } return { $p.name } }\n"
    )
    path = write(tmp_path, text)
    done = run("lint", "--schema", SCHEMA, "--query", path, "--explain")
    assert done.code == 1
    assert "read good\n  Scan $p: Person\n  Return p.name = $p.name\n" in done.out
    assert "read bad" not in done.out
    report = json.loads(run("lint", "--schema", SCHEMA, "--query", path, "--explain", "--json").out)
    bad, good = report["results"]
    assert "plan" not in bad
    assert good["plan"] == ["read good", "  Scan $p: Person", "  Return p.name = $p.name"]


def test_explain_of_a_file_that_does_not_parse_shows_the_error(run, tmp_path: Path):
    done = run("lint", "--schema", SCHEMA, "--query", write(tmp_path, "query"), "--explain")
    assert done.code == 1
    assert "parse error" in done.out


# --- files ----------------------------------------------------------------------------------------


def test_a_schema_that_does_not_compile_is_shown_with_all_its_problems(run, tmp_path: Path):
    schema = write(tmp_path, "node A { a: Vector(0) }\nedge E: A -> B\n", "schema.pg")
    done = run("lint", "--schema", schema, "--query", QUERIES)
    assert done.code == 1
    assert done.out == ""
    assert f"{schema}:1:" in done.err and f"{schema}:2:" in done.err
    machine = run("lint", "--schema", schema, "--query", QUERIES, "--json")
    assert machine.code == 1
    envelope = json.loads(machine.out)
    assert envelope["error"].startswith("parse error: Vector dimension must be greater than zero")
    assert envelope["position"]["line"] == 1
    assert [error["position"]["line"] for error in envelope["errors"]] == [1, 2]


def test_a_schema_with_one_problem_has_a_plain_envelope(run, tmp_path: Path):
    schema = write(tmp_path, "node A { a: Strin }", "schema.pg")
    done = run("lint", "--schema", schema, "--query", QUERIES, "--json")
    envelope = json.loads(done.out)
    assert envelope["position"] == {
        "path": str(schema),
        "line": 1,
        "column": 13,
        "byte_start": 12,
        "byte_end": 17,
    }
    assert envelope["hint"] == "did you mean `String`?"
    assert "errors" not in envelope


@pytest.mark.parametrize("missing", ["--schema", "--query"])
def test_a_missing_file_is_named(run, missing: str):
    files = {"--schema": SCHEMA, "--query": QUERIES} | {missing: "not/there"}
    done = run("lint", *(word for pair in files.items() for word in pair))
    assert done.code == 1
    assert done.err.startswith("error: there is no file `not/there`\n")


def test_a_directory_in_place_of_a_file_is_named(run):
    done = run("lint", "--schema", "examples", "--query", QUERIES)
    assert done.code == 1
    assert done.err == "error: cannot read `examples`: is a directory\n"


def test_a_file_that_is_no_text_is_pointed_at(run, tmp_path: Path):
    path = tmp_path / "binary.gq"
    path.write_bytes(b"query \xff\xfe")
    done = run("lint", "--schema", SCHEMA, "--query", path)
    assert done.code == 1
    assert f"{path}:1:7: parse error: the text is not valid UTF-8" in done.err


def test_fmt_lays_files_out_once_and_check_only_tells(run, tmp_path: Path):
    schema, queries = tmp_path / "schema.pg", tmp_path / "below" / "queries.gq"
    queries.parent.mkdir()
    schema.write_text("node A{name:String @key} // kept\n")
    queries.write_text("query q { match { $a: A } return { $a.name } }\n")
    told = run("fmt", tmp_path, "--check")
    assert told.code == 1 and told.out.splitlines()[0] == f"{schema}: would be laid out anew"
    assert "2 files looked at, 1 would be laid out anew" in told.out
    assert run("fmt", tmp_path).code == 0
    assert schema.read_text() == "node A { name: String @key } // kept\n"
    assert run("fmt", tmp_path, "--check").code == 0
    schema.write_text("node {")
    broken = run("fmt", schema)
    assert broken.code == 1 and "schema.pg" in broken.err and schema.read_text() == "node {"
    assert run("fmt", tmp_path / "below" / "other.txt").code == 1
