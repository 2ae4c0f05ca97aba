"""What reaches the two streams: colour, JSON, envelopes, and nothing that moves a cursor."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from omnigraph.cli import version
from tests.cli.conftest import PROGRAM, ROOT

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
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=ROOT,
        env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **environment},
    )
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
    process.wait(timeout=60)
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


def test_any_file_name_can_be_printed(spawn, tmp_path: Path):
    strange = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.pg")
    done = spawn("schema", "check", strange, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.code == 1
    assert "\\udcff.pg" in done.err


# --- JSON -----------------------------------------------------------------------------------------

WORKING = {
    "lint": ["--schema", SCHEMA, "--query", QUERIES],
    "schema check": [SCHEMA],
    "schema plan": ["--from", SCHEMA, "--schema", SCHEMA],
    "version": [],
}
FAILING = {
    "lint": ["--schema", "missing.pg", "--query", QUERIES],
    "schema check": ["missing.pg"],
    "schema plan": ["--from", "missing.pg", "--schema", SCHEMA],
    "version": ["unwanted"],
}


def test_c_cli_047_the_tables_of_this_test_name_every_command():
    from tests.cli.test_help import commands

    assert sorted(WORKING) == sorted(FAILING) == sorted(commands())


@pytest.mark.parametrize("command", WORKING)
def test_c_cli_047_every_command_accepts_json(run, command: str):
    done = run(*command.split(), *WORKING[command], "--json")
    assert done.code == 0
    assert isinstance(json.loads(done.out), dict)
    assert done.err == ""


@pytest.mark.parametrize("command", FAILING)
def test_c_cli_047_a_failure_prints_the_envelope(run, command: str):
    done = run(*command.split(), *FAILING[command], "--json")
    assert done.code in (1, 2)
    envelope = json.loads(done.out)
    assert envelope["error"] in done.err
    assert envelope["code"] in ("bad_request", "not_found")


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

    monkeypatch.setattr(version, "INTERNAL_SCHEMA_VERSION", Broken())


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
