"""`omnigraph query`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from omnigraph.cli.query import ENGINES
from omnigraph.graph import ENGINES as GRAPH_ENGINES

AGES = """
query ages($at_least: I32?) {
    match { $p: Person }
    return { $p.name as name, $p.age as age }
    order { name }
}
query adults($age: I32) {
    match { $p: Person  $p.age >= $age }
    return { $p.name as name }
    order { name }
}
"""
ALL = (
    "query all() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"
)
ADD = "query add($name: String) { insert Person { name: $name } }"


def query(run, graph: str, *arguments: object):
    return run("query", "--store", graph, *arguments)


def rows(run, graph: str, *arguments: object) -> list[dict[str, object]]:
    done = query(run, graph, *arguments, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)["rows"]
    assert isinstance(found, list)
    return found


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    path = tmp_path / "people.gq"
    path.write_text(AGES)
    return path


# --- running --------------------------------------------------------------------------------------


def test_a_query_prints_a_table(run, full_graph: str):
    done = query(run, full_graph, "-e", ALL)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "2 rows from branch main via all\nname |  age\n-----+-----\nada  |   36\nbo   | null\n"
    )


def test_a_query_of_a_file_is_picked_by_name_and_takes_parameters(
    run, full_graph: str, queries: Path, tmp_path: Path
):
    assert rows(run, full_graph, "adults", "--query", queries, "--params", '{"age": 30}') == [
        {"name": "ada"}
    ]
    values = tmp_path / "values.json"
    values.write_text('{"age": 40}')
    assert rows(run, full_graph, "adults", "--query", queries, "--params-file", values) == []


def test_c_qry_062_json_names_the_commit_that_was_read(run, full_graph: str):
    head = json.loads(run("snapshot", full_graph, "--json").out)["graph_commit_id"]
    document = json.loads(query(run, full_graph, "-e", ALL, "--json").out)
    assert document == {
        "query_name": "all",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
        "columns": ["name", "age"],
        "rows": [{"name": "ada", "age": 36}, {"name": "bo", "age": None}],
        "graph_commit_id": head,
    }


def test_a_branch_and_a_commit_of_it_can_be_read(run, full_graph: str):
    before = json.loads(run("snapshot", full_graph, "--json").out)["graph_commit_id"]
    assert run("branch", "create", "review", "--uri", full_graph).code == 0
    add = ["mutate", "--store", full_graph, "--branch", "review", "-e", ADD, "--json"]
    receipt = json.loads(run(*add, "--params", '{"name": "cy"}').out)
    landed = receipt["commit"]["graph_commit_id"]
    assert [row["name"] for row in rows(run, full_graph, "-e", ALL)] == ["ada", "bo"]
    on_branch = rows(run, full_graph, "-e", ALL, "--branch", "review")
    assert [row["name"] for row in on_branch] == ["ada", "bo", "cy"]
    at_commit = json.loads(
        query(run, full_graph, "-e", ALL, "--snapshot", landed.lower(), "--json").out
    )
    assert at_commit["target"] == {"branch": None, "snapshot": landed}
    assert at_commit["graph_commit_id"] == landed
    assert at_commit["row_count"] == 3
    assert len(rows(run, full_graph, "-e", ALL, "--snapshot", before)) == 2
    table = query(run, full_graph, "-e", ALL, "--snapshot", landed).out
    assert table.startswith(f"3 rows from snapshot {landed} via all\n")


def test_a_query_writes_nothing_and_says_nothing_about_its_target(run, full_graph: str):
    def files() -> dict[str, int]:
        found = Path(full_graph).rglob("*")
        return {str(path): path.stat().st_mtime_ns for path in found if path.is_file()}

    before = files()
    assert query(run, full_graph, "-e", ALL).err == ""
    assert files() == before


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "first"),
    [
        ("table", "2 rows from branch main via all"),
        ("kv", "2 rows from branch main via all"),
        ("csv", "name,age"),
        ("json", "{"),
    ],
)
def test_c_cli_031_every_format_can_be_asked_for(run, full_graph: str, format: str, first: str):
    done = query(run, full_graph, "-e", ALL, "--format", format)
    assert (done.code, done.out.splitlines()[0]) == (0, first)
    lines = query(run, full_graph, "-e", ALL, "--format", "jsonl").out.splitlines()
    assert [json.loads(line).get("kind") for line in lines] == ["metadata", None, None]


def test_c_cli_032_format_precedence(run, full_graph: str, no_settings: Path):
    no_settings.mkdir()
    config = no_settings / "config.yaml"
    assert query(run, full_graph, "-e", ALL).out.startswith("2 rows")
    config.write_text("defaults: { output: csv }")
    assert query(run, full_graph, "-e", ALL).out.startswith("name,age\n")
    assert query(run, full_graph, "-e", ALL, "--format", "kv").out.startswith("2 rows")
    assert json.loads(query(run, full_graph, "-e", ALL, "--json").out)["row_count"] == 2
    both = query(run, full_graph, "-e", ALL, "--json", "--format", "csv")
    assert both.code == 2
    assert "`--json` and `--format` are mutually exclusive" in both.err


def test_the_configuration_says_how_wide_columns_are(run, full_graph: str, no_settings: Path):
    long = 'query q() { match { $p: Person { name: "ada" } } return { "abcdefgh" as text } }'
    no_settings.mkdir()
    config = no_settings / "config.yaml"
    config.write_text("defaults: { table_max_column_width: 4 }")
    assert query(run, full_graph, "-e", long).out.splitlines()[3:] == ["abc…"]
    config.write_text("defaults: { table_max_column_width: 4, table_cell_layout: wrap }")
    assert query(run, full_graph, "-e", long).out.splitlines()[3:] == ["abcd", "efgh"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("output: tabel", "`defaults.output` in "),
        ("table_cell_layout: fold", "`defaults.table_cell_layout` in "),
        ("table_max_column_width: wide", "`defaults.table_max_column_width` in "),
        ("table_max_column_width: 0", "`defaults.table_max_column_width` in "),
        ("table_max_column_width: true", "`defaults.table_max_column_width` in "),
    ],
)
def test_a_setting_that_means_nothing_is_named(
    run, full_graph: str, no_settings: Path, setting: str, message: str
):
    no_settings.mkdir()
    (no_settings / "config.yaml").write_text(f"defaults: {{ {setting} }}")
    done = query(run, full_graph, "-e", ALL)
    assert done.code == 1
    assert message in done.err


# --- explain --------------------------------------------------------------------------------------


def test_explain_shows_plan_strategies_and_storage(run, full_graph: str):
    done = query(run, full_graph, "-e", ALL, "--explain")
    assert done.code == 0
    table, _, explained = done.out.partition("\n\n")
    assert table.endswith("bo   | null")
    assert explained.startswith("read all\n  Scan $p: Person\n")
    assert "ran on the local engine in " in explained
    assert "storage: " in explained
    document = json.loads(query(run, full_graph, "-e", ALL, "--explain", "--json").out)
    assert document["explain"]["engine"] == "local"
    assert document["explain"]["steps"]
    assert document["explain"]["storage"]["requests"] > 0
    assert document["row_count"] == 2


# --- mistakes -------------------------------------------------------------------------------------


def test_c_cli_021_a_query_by_name_alone_needs_a_server(run, full_graph: str):
    done = query(run, full_graph, "all")
    assert (done.code, done.out) == (2, "")
    assert "running the stored query `all` needs a server" in done.err


def test_c_cli_022_a_query_that_writes_is_refused_naming_the_verb(run, full_graph: str):
    done = query(run, full_graph, "-e", ADD, "--params", '{"name": "cy"}')
    assert (done.code, done.out) == (1, "")
    assert "query 'add' writes" in done.err
    assert "hint: run it with `mutate` instead of `query`" in done.err
    assert len(rows(run, full_graph, "-e", ALL)) == 2


def test_c_cli_023_one_of_several_queries_has_to_be_named(run, full_graph: str, queries: Path):
    unnamed = query(run, full_graph, "--query", queries)
    assert unnamed.code == 1
    assert "the file has ages, adults" in unnamed.err
    unknown = query(run, full_graph, "agse", "--query", queries)
    assert unknown.code == 1
    assert "query 'agse' not found" in unknown.err
    assert query(run, full_graph, "ages", "--query", queries).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--query", "a.gq", "-e", ALL], "`--query` and `--query-string` are mutually exclusive"),
        (
            ["-e", ALL, "--params", "{}", "--params-file", "p.json"],
            "`--params` and `--params-file` are mutually exclusive",
        ),
        (["-e", ""], "`--query-string` is empty"),
        ([], "`omnigraph query` needs a query"),
        (["-e", ALL, "--params", "[]"], "`--params` is not a JSON object"),
        (
            ["-e", ALL, "--branch", "main", "--snapshot", "01K3Z7M0Q8W4R6T2Y5V9B1N3XC"],
            "`--branch` and `--snapshot` are mutually exclusive",
        ),
        (["-e", ALL, "--format", "tabel"], "`--format` takes table, kv, csv, jsonl, json"),
        (["-e", ALL, "--engine", "sparc"], "`--engine` takes local, spark, not `sparc`"),
        (["-e", ALL, "--if-commit", "x"], "has no flag `--if-commit`"),
    ],
)
def test_c_cli_024_a_contradictory_or_missing_source_is_a_usage_error(
    run, full_graph: str, arguments, message: str
):
    done = query(run, full_graph, *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_c_cli_006_a_read_has_no_actor(run, full_graph: str):
    done = query(run, full_graph, "-e", ALL, "--as", "act-ana")
    assert done.code == 2
    assert "`query` is an any command; --as names the actor of a write" in done.err


def test_what_is_not_there_is_named(run, full_graph: str):
    assert run("branch", "create", "review", "--uri", full_graph).code == 0
    branch = query(run, full_graph, "-e", ALL, "--branch", "reveiw")
    assert branch.code == 1
    assert "there is no branch `reveiw`" in branch.err
    assert "did you mean `review`?" in branch.err
    commit = query(run, full_graph, "-e", ALL, "--snapshot", "01K3Z7M0Q8W4R6T2Y5V9B1N3XC")
    assert commit.code == 1
    assert "there is no commit 01K3Z7M0Q8W4R6T2Y5V9B1N3XC" in commit.err
    assert "names no commit" in query(run, full_graph, "-e", ALL, "--snapshot", "head").err
    older = query(run, full_graph, "-e", ALL, "--snapshot", "HEAD~1")
    assert older.code == 0 and older.out.startswith("0 rows")


def test_the_flag_knows_the_engines_of_the_library():
    assert ENGINES == GRAPH_ENGINES


@pytest.mark.parametrize(
    "arguments",
    [
        ("--engine", "local", "--spark-master", "local[2]"),
        ("--engine", "local", "--spark-conf", "a=b"),
        ("--spark-conf", "a=b"),
    ],
)
def test_settings_of_spark_are_for_queries_on_spark(run, full_graph: str, arguments: list[str]):
    done = query(run, full_graph, "-e", ALL, *arguments)
    assert done.code == 2
    assert "is for work on Spark" in done.err


@pytest.mark.parametrize(
    "command",
    [
        ("optimize",),
        ("compute", "degree"),
        ("branch", "merge", "review", "--uri"),
        ("branch", "diff", "main", "review", "--uri"),
        ("load", "--data", "x.jsonl", "--mode", "merge"),
    ],
)
def test_every_command_refuses_flags_of_spark_that_would_have_no_effect(
    run, full_graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
):
    monkeypatch.chdir(tmp_path)
    Path("x.jsonl").write_text("")
    done = run(*command, full_graph, "--engine", "local", "--spark-conf", "a=b")
    assert (done.code, "`--spark-conf` is for work on Spark" in done.err) == (2, True)
    bad = run(*command, full_graph, "--engine", "spark", "--spark-conf", "a")
    assert "'a' is not a Spark setting" in bad.err


@pytest.mark.spark
@pytest.mark.xdist_group("spark_queries")
def test_c_pip_024_a_query_on_spark_prints_the_same(run, full_graph: str, spark: object):
    here = query(run, full_graph, "-e", ALL)
    there = query(run, full_graph, "-e", ALL, "--engine", "spark")
    assert (there.code, there.out) == (0, here.out)
    assert there.err == "starting Spark, which takes some seconds\n"


def test_a_missing_parameter_is_named(run, full_graph: str, queries: Path):
    done = query(run, full_graph, "adults", "--query", queries)
    assert done.code == 1
    assert "parameter 'age' not provided" in done.err
    assert "hint: pass a value for $age: I32" in done.err


def test_a_mistake_is_shown_with_its_place(run, full_graph: str, tmp_path: Path):
    file = tmp_path / "typo.gq"
    file.write_text("query q() {\n    match { $p: Persn }\n    return { $p.name }\n}\n")
    done = query(run, full_graph, "--query", file)
    assert done.code == 1
    assert f"{file}:2:17: type error: T1" in done.err
    assert "hint: did you mean `Person`?" in done.err


def test_c_cli_047_a_failure_prints_the_envelope(run, full_graph: str):
    done = query(run, full_graph, "-e", ADD, "--json")
    assert done.code == 1
    assert json.loads(done.out)["error"] == "query 'add' writes"


# --- former spellings -----------------------------------------------------------------------------


def test_c_cli_043_read_is_query(run, full_graph: str):
    old = run("read", "--store", full_graph, "-e", ALL, "--format", "csv")
    new = query(run, full_graph, "-e", ALL, "--format", "csv")
    assert (old.code, old.out) == (new.code, new.out)
    assert old.err == "warning: `read` is deprecated; write `query`\n"
    assert "\n  read " not in run("--help").out


@pytest.mark.parametrize("word", ["lint", "check"])
def test_c_cli_043_query_lint_is_lint(run, word: str):
    files = ["--schema", "examples/social/schema.pg", "--query", "examples/social/queries.gq"]
    old, new = run("query", word, *files), run("lint", *files)
    assert (old.code, old.out) == (new.code, new.out)
    assert old.err == f"warning: `query {word}` is deprecated; write `lint`\n"


def test_a_query_may_be_called_check(run, full_graph: str):
    text = ALL.replace("query all", "query check")
    done = run("query", "check", "--store", full_graph, "-e", text)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("2 rows from branch main via check\n")


# --- stdin ----------------------------------------------------------------------------------------


def test_a_dash_reads_the_query_from_stdin(run, full_graph: str, monkeypatch: pytest.MonkeyPatch):
    def piped(text: bytes, *words: str):
        stdin = io.TextIOWrapper(io.BytesIO(text))
        monkeypatch.setattr("sys.stdin", stdin)
        return run(*words, "--store", full_graph)

    everybody = b"query all() { match { $p: Person } return { $p.name } order { $p.name } }"
    named = everybody + b"query one() { match { $p: Person } return { $p.name } limit 1 }"
    assert piped(everybody, "query", "-", "--format", "csv").out == "p.name\nada\nbo\n"
    assert piped(named, "query", "one", "--query", "-", "--format", "csv").out == "p.name\nada\n"
    add = b'query add() { insert Person { name: "cy" } }'
    assert piped(add, "mutate", "-", "--quiet").code == 0
    assert "3 rows" in piped(everybody, "query", "-").out
    both = piped(everybody, "query", "-", "-e", "query")
    assert both.code == 2 and "reads the query from stdin" in both.err
    empty = piped(b" \n", "query", "-")
    assert empty.code == 2 and "no query on stdin" in empty.err
    wrong = piped(b"\xff", "query", "-")
    assert wrong.code == 2 and "not UTF-8" in wrong.err
