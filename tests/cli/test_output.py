"""What reaches the two streams: colour, JSON, envelopes, and nothing that moves a cursor."""

from __future__ import annotations

import json
import logging
import os
import pty
import re
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main as entry_point
from tests.support.forked import Command

ANSI = re.compile(r"\x1b\[[0-9;]*m")
SCHEMA = "examples/social/schema.pg"
QUERIES = "examples/social/queries.gq"
PLAN = ["schema", "plan", "--from", "examples/evolution/v1.pg", "--schema"]
SHOWCASE = [
    ["--help"],
    ["lint", "--help"],
    ["version"],
    ["lint", "--schema", SCHEMA, "--query", QUERIES, "--explain"],
    ["schema", "check", "examples/library/schema.pg"],
    [*PLAN, "examples/evolution/v2.pg"],
    ["lnt"],
]


@pytest.fixture
def broken_queries(tmp_path: Path) -> Path:
    """Two mistakes and a warning."""
    path = tmp_path / "broken.gq"
    path.write_text(
        "query a() { match { $p: Person\n\t$p knws $q } return { $q.name } }\n"
        "query b() { match { $p: Persn } return { $p.name } }\n"
        'query c() { delete Post where slug = "x" }\n'
    )
    return path


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What a person sees: the output of a program whose streams are a terminal."""
    leader, follower = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = Command(*arguments, env={**inherited, **environment}, streams=follower)
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other end is gone
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    command.wait()
    return seen.decode().replace("\r\n", "\n")


# --- colour ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", SHOWCASE, ids=" ".join)
def test_c_cli_046_piped_output_has_no_ansi_codes(spawn, arguments):
    done = spawn(*arguments)
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("arguments", SHOWCASE, ids=" ".join)
def test_styling_never_alters_text(run, arguments):
    plain, styled = run(*arguments), run(*arguments, "--color", "always")
    assert ANSI.sub("", styled.out) == plain.out
    assert ANSI.sub("", styled.err) == plain.err


def test_styling_never_alters_errors_with_tabs(run, broken_queries: Path):
    arguments = ["lint", "--schema", SCHEMA, "--query", str(broken_queries)]
    plain, styled = run(*arguments), run(*arguments, "--color", "always")
    assert "\t$p knws $q" in plain.out
    assert "\x1b[" in styled.out
    assert ANSI.sub("", styled.out) == plain.out


def test_a_terminal_gets_colour_unless_told_otherwise():
    page = ("schema", "check", SCHEMA)
    environment = {"TERM": "xterm-256color"}
    assert ANSI.search(on_a_terminal(*page, **environment))
    assert not ANSI.search(on_a_terminal(*page, **environment, NO_COLOR="1"))
    assert not ANSI.search(on_a_terminal(*page, "--color", "never", **environment))
    assert not ANSI.search(on_a_terminal(*page, TERM="dumb"))
    assert ANSI.search(on_a_terminal(*page, "--color", "always", **environment, NO_COLOR="1"))


def test_help_is_coloured_on_a_terminal_too():
    page = on_a_terminal("lint", "--help", TERM="xterm-256color", COLUMNS="80")
    assert ANSI.search(page)
    assert "Usage:" in page


def test_control_characters_of_a_file_are_shown_and_not_sent(run, tmp_path: Path):
    path = tmp_path / "evil.gq"
    path.write_text("query a() { match { $p: Person\x1b[2J\x07 } return { $p.name } }")
    done = run("lint", "--schema", SCHEMA, "--query", path)
    assert done.code == 1
    assert "\x1b" not in done.out and "\x07" not in done.out
    assert "\\x1b[2J\\x07" in done.out


def test_any_file_name_can_be_printed(start, tmp_path: Path):
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.pg")
    done = start("schema", "check", strange, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    _, err = done.communicate(timeout=60)
    assert done.returncode == 1
    assert b"\\udcff.pg" in err


# --- progress -------------------------------------------------------------------------------------


def test_c_cli_046_a_terminal_shows_progress_of_loads_and_exports(full_graph: str, people: Path):
    load = ("load", full_graph, "--data", str(people), "--mode", "merge")
    export = ("export", full_graph, "--out", str(people.with_name("out.jsonl")))
    assert "loading" in on_a_terminal(*load, TERM="xterm-256color")
    assert "exporting" in on_a_terminal(*export, TERM="xterm-256color")


def test_c_cli_046_a_terminal_shows_progress_of_upkeep_table_by_table(full_graph: str):
    optimized = on_a_terminal("optimize", full_graph, TERM="xterm-256color")
    assert "optimizing" in optimized
    cleaned = on_a_terminal("cleanup", full_graph, "--keep", "5", TERM="xterm-256color")
    assert "looking" in cleaned and "/4 tables" in ANSI.sub("", cleaned)


@pytest.mark.parametrize("flag", ["--quiet", "--json"])
def test_c_cli_046_progress_is_never_shown_to_machines(full_graph: str, people: Path, flag: str):
    command = ("load", full_graph, "--data", str(people), "--mode", "merge", flag)
    assert "loading" not in on_a_terminal(*command, TERM="xterm-256color")


def test_c_cli_046_piped_writes_have_no_ansi_codes_prompts_or_progress(
    spawn, full_graph: str, people: Path
):
    done = spawn("load", full_graph, "--data", people, "--mode", "merge")
    assert done.code == 0
    where, engine = done.err.splitlines()
    assert where == f"omnigraph load → {full_graph} (direct, local)"
    assert engine.startswith("engine: local (")
    assert "\x1b" not in done.out + done.err


# --- JSON -----------------------------------------------------------------------------------------

POLICY = "examples/policy/team.yaml"
POLICY_TESTS = "examples/policy/team_tests.yaml"
PHOTO = ["node", "Person", "ada", "photo", "--store", "{blobs}"]
WORKING = {
    "audit load": ["{audited}", "--into", "{folder}/audit.omni"],
    "audit show": ["{audited}"],
    "blob get": [*PHOTO, "--out", "{folder}/ada.png"],
    "blob stat": PHOTO,
    "branch cherry-pick": ["{commit}", "--into", "old", "--uri", "{graph}", "--dry-run"],
    "branch diff": ["main", "old", "--uri", "{graph}"],
    "branch merge": ["old", "--uri", "{graph}"],
    "changes baseline": ["--uri", "{graph}", "--out", "{folder}/base.jsonl"],
    "changes poll": ["--uri", "{graph}", "--start", "beginning"],
    "commit changes": ["{commit}", "--uri", "{graph}"],
    "compute": ["pagerank", "{graph}"],
    "embed": ["{docs}", "--type", "Doc"],
    "commit revert": ["{commit}", "--uri", "{graph}", "--dry-run"],
    "branch create": ["new", "--uri", "{graph}"],
    "branch delete": ["old", "--uri", "{graph}"],
    "branch list": ["--uri", "{graph}"],
    "commit list": ["{graph}"],
    "commit show": ["{commit}", "--uri", "{graph}"],
    "tag create": ["v1", "--uri", "{graph}"],
    "tag list": ["--uri", "{graph}"],
    "tag delete": ["v0", "--uri", "{graph}"],
    "export": ["{graph}", "--out", "{folder}/out.jsonl"],
    "import": ["examples/airports/airports.csv", "{folder}/new.omni"],
    "infer": ["examples/airports/airports.csv"],
    "init": ["--schema", SCHEMA, "{folder}/new.omni"],
    "lint": ["--schema", SCHEMA, "--query", QUERIES],
    "fmt": ["--check", SCHEMA, QUERIES],
    "load": ["{graph}", "--data", "{folder}/people.jsonl", "--mode", "merge"],
    "mutate": ["--store", "{graph}", "-e", "query forget() {{ delete Person where age = 1 }}"],
    "index": ["{graph}"],
    "optimize": ["{graph}"],
    "cleanup": ["{graph}", "--keep", "10", "--confirm"],
    "doctor": ["{graph}"],
    "scrub": ["{graph}"],
    "clone": ["{graph}", "{folder}/new.omni"],
    "push": ["{graph}", "{origin}"],
    "pull": ["{graph}", "{origin}"],
    "repair": ["{graph}"],
    "stats": ["{graph}"],
    "policy explain": ["--file", POLICY, "--actor", "act-bo", "--action", "read"],
    "policy test": ["--file", POLICY, "--tests", POLICY_TESTS],
    "policy validate": ["--file", POLICY],
    "query": [
        "--store",
        "{graph}",
        "-e",
        "query all() {{ match {{ $p: Person }} return {{ $p.name }} }}",
    ],
    "recover": ["{graph}"],
    "recovery list": ["{graph}"],
    "schema check": [SCHEMA],
    "schema apply": ["{plain}", "--schema", SCHEMA],
    "schema rebase": ["old", "--uri", "{graph}"],
    "schema plan": ["--from", SCHEMA, "--schema", SCHEMA],
    "schema show": ["{graph}"],
    "snapshot": ["{graph}"],
    "use": ["{graph}"],
    "config path": [],
    "config show": [],
    "profile list": [],
    "profile show": [],
    "version": [],
}
FAILING = {
    "audit load": ["missing.jsonl", "--into", "{folder}/audit.omni"],
    "audit show": ["missing.jsonl"],
    "blob get": ["node", "Person", "ada", "age", "--store", "{blobs}", "--out", "{folder}/ada.png"],
    "blob stat": ["node", "Person", "missing", "photo", "--store", "{blobs}"],
    "branch cherry-pick": ["missing", "--uri", "{graph}"],
    "branch diff": ["main", "missing", "--uri", "{graph}"],
    "branch merge": ["missing", "--uri", "{graph}"],
    "changes baseline": ["--uri", "{graph}", "--type", "Missing", "--out", "{folder}/base.jsonl"],
    "changes poll": ["--uri", "{graph}", "--cursor", "missing"],
    "commit changes": ["missing", "--uri", "{graph}"],
    "compute": ["pagerank", "{graph}", "--node", "Missing"],
    "embed": ["{docs}", "--type", "Missing"],
    "commit revert": ["missing", "--uri", "{graph}"],
    "branch create": ["main", "--uri", "{graph}"],
    "branch delete": ["missing", "--uri", "{graph}"],
    "branch list": ["--uri", "missing"],
    "commit list": ["{graph}", "--branch", "missing"],
    "commit show": ["missing", "--uri", "{graph}"],
    "tag create": ["main", "--uri", "{graph}"],
    "tag list": ["--uri", "missing"],
    "tag delete": ["missing", "--uri", "{graph}"],
    "export": ["{graph}", "--type", "Missing", "--out", "{folder}/out.jsonl"],
    "import": ["missing.csv", "{folder}/new.omni"],
    "infer": ["missing.csv"],
    "init": ["--schema", SCHEMA, "{graph}"],
    "lint": ["--schema", "missing.pg", "--query", QUERIES],
    "fmt": ["missing.pg"],
    "load": ["{graph}", "--data", "missing.jsonl", "--mode", "merge"],
    "mutate": ["--store", "{graph}", "-e", "query"],
    "index": ["missing"],
    "optimize": ["missing"],
    "cleanup": ["missing", "--keep", "1"],
    "doctor": ["missing"],
    "scrub": ["missing"],
    "clone": ["missing", "{folder}/new.omni"],
    "push": ["{graph}", "missing"],
    "pull": ["{graph}", "missing"],
    "repair": ["missing"],
    "stats": ["missing"],
    "policy explain": ["--file", "missing.yaml", "--actor", "act-bo", "--action", "read"],
    "policy test": ["--file", POLICY, "--tests", "missing.yaml"],
    "policy validate": ["--file", "missing.yaml"],
    "query": ["--store", "{graph}", "-e", "query"],
    "recover": ["missing"],
    "recovery list": ["missing"],
    "schema check": ["missing.pg"],
    "schema apply": ["{graph}", "--schema", SCHEMA],
    "schema rebase": ["missing", "--uri", "{graph}"],
    "schema plan": ["--from", "missing.pg", "--schema", SCHEMA],
    "schema show": ["missing"],
    "snapshot": ["missing"],
    "use": ["missing"],
    "config path": ["unwanted"],
    "config show": ["--store", "{graph}", "--server", "x"],
    "profile list": ["unwanted"],
    "profile show": ["missing"],
    "version": ["unwanted"],
}
PIPELINES = {f"pipeline {verb}" for verb in ("init", "validate", "plan", "run")}
REVIEWS = {
    f"review {verb}"
    for verb in (
        *("open", "list", "show", "diff", "edit", "comment", "resolve", "approve"),
        *("request-changes", "check", "merge", "close", "reopen", "export"),
    )
}
BACKUPS = {f"backup {verb}" for verb in ("create", "verify", "restore", "list", "prune")}
CLUSTERS = {
    f"cluster {verb}"
    for verb in (
        *("validate", "plan", "apply", "approve"),
        *("status", "refresh", "import", "force-unlock"),
    )
}
ELSEWHERE = {
    *CLUSTERS,
    *BACKUPS,
    "alias",
    "completion",
    "graphs list",
    "login",
    "logout",
    "lsp",
    "mcp",
    "serve",
    "shell",
    "studio",
    "translate",
    *PIPELINES,
    *REVIEWS,
}
"""Those about servers are tested with servers, in `tests/client`, `tests/mcp`, `tests/server`,
`tests/studio`, those about clusters in `tests/cluster`, about reviews in
`tests/review/test_faces.py`, backups one after another in `tests/cli/test_copies.py`,
and pipelines with Spark, in `tests/pipeline/test_pipeline_files.py`."""


@pytest.fixture
def filled(run, full_graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fill the places of a command line; of what they stand for, only what it names is made."""

    def fill(arguments: list[str]) -> list[str]:
        text = " ".join(arguments)
        plain, blobs = tmp_path / "plain.omni", tmp_path / "blobs.omni"
        docs = tmp_path / "docs.omni"
        commit, origin = None, tmp_path / "origin.omni"
        if "{origin}" in text:
            run("clone", full_graph, origin)
        if "old" in text:
            run("branch", "create", "old", "--uri", full_graph)
        if "v0" in text:
            run("tag", "create", "v0", "--uri", full_graph)
        if "{plain}" in text:
            run("init", "--schema", SCHEMA, plain)
        if "{blobs}" in text:
            photos = og.init(blobs, "node Person { name: String @key  photo: Blob? }")
            photos.mutate('query q { insert Person { name: "ada", photo: "base64:AAE=" } }')
        if "{docs}" in text:
            monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
            texts = og.init(docs, "node Doc { text: String  sense: Vector(2)? @embed(text) }")
            texts.mutate('query q { insert Doc { text: "hm" } }')
        audited = tmp_path / "audit.jsonl"
        if "{audited}" in text:
            watched = og.open(full_graph, audit=audited)
            watched.snapshot()
            watched.close()
        if "{commit}" in text:
            commit = json.loads(run("snapshot", full_graph, "--json").out)["graph_commit_id"]
        return [
            each.format(
                graph=full_graph,
                folder=tmp_path,
                plain=plain,
                blobs=blobs,
                docs=docs,
                audited=audited,
                commit=commit,
                origin=origin,
            )
            for each in arguments
        ]

    return fill


def test_c_cli_047_the_tables_of_this_test_name_every_command():
    from tests.cli.test_help import commands

    assert sorted(WORKING) == sorted(FAILING) == sorted(set(commands()) - ELSEWHERE)


@pytest.mark.parametrize("command", WORKING)
def test_c_cli_047_every_command_accepts_json(run, filled, command: str):
    done = run(*command.split(), *filled(WORKING[command]), "--json", "--quiet")
    assert done.code == 0
    assert isinstance(json.loads(done.out), dict)
    assert done.err == ""


@pytest.mark.parametrize("command", FAILING)
def test_c_cli_047_a_failure_prints_the_envelope(run, filled, command: str):
    done = run(*command.split(), *filled(FAILING[command]), "--json", "--quiet")
    assert done.code in (1, 2)
    envelope = json.loads(done.out)
    assert envelope["error"] in done.err
    assert envelope["code"] in ("bad_request", "not_found", "conflict")


def test_c_cli_047_where_stdout_is_data_the_envelope_goes_to_stderr(run, full_graph: str):
    for wrong in (["--type", "Missing"], ["--branch", "missing"], ["--no-such-flag"]):
        done = run("export", full_graph, *wrong, "--json")
        assert done.code in (1, 2)
        assert done.out == ""
        assert json.loads(done.err)["error"]


def test_c_cli_047_a_wrong_command_line_prints_the_envelope(run):
    done = run("lint", "--shema", "x", "--json")
    assert done.code == 2
    assert json.loads(done.out) == {
        "error": "`omnigraph lint` has no flag `--shema`",
        "code": "bad_request",
        "hint": "did you mean `--schema`?",
    }


def test_without_json_a_failure_leaves_stdout_empty(run):
    done = run("schema", "check", "missing.pg")
    assert done.code == 1
    assert done.out == ""


# --- errors ---------------------------------------------------------------------------------------


@pytest.fixture
def bug(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs into something nobody thought of."""

    class Broken:
        def __str__(self) -> str:
            raise ZeroDivisionError("a bug")

    monkeypatch.setattr(entry_point, "INTERNAL_SCHEMA_VERSION", Broken())


def test_a_bug_is_one_sentence_and_a_hint(run, bug):
    done = run("version")
    assert done.code == 1
    assert done.err == (
        "error: something unexpected happened: ZeroDivisionError: a bug\n"
        "hint: this is a bug; run it again with `--debug` and report what it prints\n"
    )


def test_debug_shows_the_traceback(run, bug):
    done = run("version", "--debug")
    assert done.code == 1
    assert "Traceback (most recent call last):" in done.err
    assert "ZeroDivisionError: a bug" in done.err


def test_debug_shows_where_an_expected_error_was_raised(run):
    assert "Traceback" not in run("schema", "check", "missing.pg").err
    assert "Traceback" in run("schema", "check", "missing.pg", "--debug").err


def test_what_the_library_logs_is_a_warning_and_no_traceback(run, monkeypatch: pytest.MonkeyPatch):
    def logging_version() -> str:
        try:
            raise OSError("disk on fire")
        except OSError:
            logging.getLogger("omnigraph.storage").warning("left behind", exc_info=True)
        return "1"

    class Talkative:
        def __str__(self) -> str:
            return logging_version()

    monkeypatch.setattr(entry_point, "INTERNAL_SCHEMA_VERSION", Talkative())
    assert run("version").err == "warning: left behind\n"
    assert "disk on fire" in run("version", "--debug").err
