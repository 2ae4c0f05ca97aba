"""`omnigraph shell`: inputs one by one in this process, a pipe, and a real terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import connect
from omnigraph.cli.output import Output
from omnigraph.cli.shell import SHELL_COMMANDS, Shell, is_complete
from omnigraph.errors import CompileError, InputError, NotFound, OmnigraphError
from omnigraph.graph import Graph, open_graph
from omnigraph.server.config import GraphSpec
from tests.cli.conftest import Run
from tests.server.live import serving

ALL = "match { $p: Person } return { $p.name } order { $p.name }"


@pytest.fixture
def graph(full_graph: str) -> Graph:
    """A graph with two persons."""
    return open_graph(full_graph)


@pytest.fixture
def talk(graph: Graph) -> Callable[..., str]:
    """Run inputs in one shell, and take what it prints."""
    shells: list[Shell] = []

    def call(*inputs: str, read_only: bool = False) -> str:
        if not shells:
            shells.append(Shell(graph, Output(io.StringIO(), io.StringIO())))
        shell = shells[0]
        shell.is_read_only = read_only
        shell.output.stdout = io.StringIO()
        for text in inputs:
            shell.run(text)
        return shell.output.stdout.getvalue()

    return call


def test_a_body_is_a_query_and_a_mutation_is_a_commit(talk: Callable[..., str]) -> None:
    assert talk(ALL).splitlines()[-2:] == ["ada", "bo"]
    assert "changed 1 node" in talk('insert Person { name: "cy" }')
    assert talk("query q { match { $p: Person } return { count($p) as n } };").split()[-1] == "3"
    two = 'query a { delete Person where name = "cy" } query b { ' + ALL + " }"
    assert "changed 1 node" in talk(two) and talk(ALL).splitlines()[-1] == "bo"


def test_parameters_are_declared_for_bodies_and_given_to_queries(talk: Callable[..., str]) -> None:
    asked = "match { $p: Person { name: $who } } return { $p.age }"
    assert talk('\\set who "ada"', asked).splitlines()[-1].strip() == "36"
    assert talk("\\set $who ada", "\\params") == '$who = "ada"\n'
    assert talk(asked).splitlines()[-1].strip() == "36"
    listed = "match { $p: Person  $p.name in $names } return { count($p) as n }"
    assert talk('\\set names ["ada", "bo", "x"]', listed).split()[-1] == "2"
    full = f"query q($who: String) {{ {asked} }}"
    assert talk("\\unset names", full).splitlines()[-1].strip() == "36"
    with pytest.raises(CompileError, match="who") as undeclared:
        talk("\\unset", asked)
    assert undeclared.value.hint == r"give it a value: `\set who VALUE`"
    with pytest.raises(InputError, match=r"\$who is null, whose type is not known"):
        talk("\\set who null", asked)


def test_an_error_of_a_body_keeps_the_lines_that_were_typed(talk: Callable[..., str]) -> None:
    with pytest.raises(CompileError) as refused:
        talk("match {\n  $p: Persn }\nreturn { $p.name }")
    assert str(refused.value).splitlines()[0].startswith("<input>:2:7: type error: T1")
    assert "2 |   $p: Persn }" in str(refused.value)


def test_types_branches_and_commits_are_listed_and_chosen(
    talk: Callable[..., str], graph: Graph
) -> None:
    graph.create_branch("review")
    assert "node Person" in talk("\\d") and "edge Knows" in talk("\\d")
    assert talk("\\d Knows").splitlines()[0].startswith("edge Knows: Person -> Person, 1 entit")
    assert "@key" in talk("\\d Person")
    assert talk("\\b").splitlines() == ["* main", "  review"]
    talk("\\b review", 'insert Person { name: "cy" }')
    assert talk(ALL).splitlines()[-1] == "cy"
    assert talk("\\b").splitlines() == ["  main", "* review"]
    before = graph.list_commits("main")[0].graph_commit_id
    assert before in talk("\\log") and len(talk("\\log 1").splitlines()) == 2
    assert "reading commit" in talk("\\at main")
    assert talk(ALL).splitlines()[-1] == "bo"
    with pytest.raises(InputError, match="no commit can be changed"):
        talk('insert Person { name: "dee" }')
    assert talk("\\at", ALL).splitlines()[-1] == "cy"
    assert "Person" in talk("\\schema")


def test_rows_are_shown_as_asked(talk: Callable[..., str]) -> None:
    assert talk("\\format csv", ALL).splitlines()[-3:] == ["p.name", "ada", "bo"]
    assert '"p.name": "ada"' in talk("\\format json", ALL)
    assert "Scan $p: Person" in talk("\\format table", f"\\explain {ALL}")
    assert talk("\\timing", "\\timing off").splitlines() == ["timing is on", "timing is off"]


def test_time_is_told_apart_from_rows(graph: Graph) -> None:
    output = Output(io.StringIO(), io.StringIO())
    shell = Shell(graph, output)
    shell.run("\\timing on")
    shell.run(ALL)
    assert isinstance(output.stderr, io.StringIO)
    assert re.fullmatch(r"\d+\.\d ms\n", output.stderr.getvalue())


def test_queries_of_a_file_are_read_and_run_by_name(
    talk: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "people.gq"
    file.write_text(f"query all {{ {ALL} }}\nquery one($who: String) {{\n"
                    "match { $p: Person { name: $who } } return { $p.age } }\n")  # fmt: skip
    assert talk(f"\\i {file}").splitlines() == ["all", "one"]
    assert talk("\\run all").splitlines()[-1] == "bo"
    assert talk("\\set who ada", "\\run one").splitlines()[-1].strip() == "36"
    with pytest.raises(NotFound, match="there is no query `al`") as refused:
        talk("\\run al")
    assert refused.value.hint == "did you mean `all`?"


def test_a_shell_to_read_refuses_mutations(talk: Callable[..., str]) -> None:
    with pytest.raises(InputError, match="--read-only"):
        talk('insert Person { name: "cy" }', read_only=True)
    assert talk(ALL).splitlines()[-1] == "bo"


@pytest.mark.parametrize(
    "text",
    ["\\nope", "\\d Persn", "\\b reviw", "\\at nowhere", "\\log many", "\\set who", "\\explain",
     "\\format xml", "\\timing maybe"],
)  # fmt: skip
def test_a_wrong_command_is_an_error_with_a_hint(talk: Callable[..., str], text: str) -> None:
    with pytest.raises(OmnigraphError) as refused:
        talk(text)
    assert refused.value.hint


def test_every_command_is_in_the_help(talk: Callable[..., str]) -> None:
    shown = talk("\\?")
    assert all(f"{name} " in shown for name in SHELL_COMMANDS)
    assert talk("help") == talk("?;") == shown


def test_plain_words_end_the_shell_and_others_lead_to_the_help(graph: Graph) -> None:
    for word in ("exit", "QUIT;"):
        shell = Shell(graph, Output(io.StringIO(), io.StringIO()))
        shell.run(word)
        assert shell.has_ended
    with pytest.raises(CompileError) as refused:
        shell.run("show tables")
    assert refused.value.hint == r"`\?` lists the commands; anything else is a query, or its body"


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("\\d", True),
        ("match {", False),
        ("match { $p: Person }\n", False),
        ("match { $p: Person }\nreturn { $p.name }", True),
        ("match { $p: Person { name: 'a", False),
        ('insert Person { name: "}" ', False),
        ('insert Person { name: "{" }', True),
        ("query q {\n match { $p: Person }", False),
        ("match { $p: Person }\n\n", True),
        ("match { $p: Person } return { $p.name }  // {", True),
    ],
)
def test_an_input_goes_on_until_its_brackets_are_closed(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def completed(graph: Graph, text: str) -> set[str]:
    shell = Shell(graph, Output(io.StringIO(), io.StringIO()))
    return {word for word, _ in shell.completions(text, len(text))}


def test_types_properties_branches_and_commands_are_completed(graph: Graph) -> None:
    graph.create_branch("review")
    assert {"Person", "City"} <= completed(graph, "match { $p: ")
    assert {"name", "age"} <= completed(graph, "match { $p: Person } return { $p.")
    assert {"Person"} <= completed(graph, "query q { match { $p: ")
    assert completed(graph, "\\") == set(SHELL_COMMANDS)
    assert completed(graph, "\\b ") == {"main", "review"}
    assert "Knows" in completed(graph, "\\d K")
    assert completed(graph, "\\nope ") == set()


def test_lines_of_a_pipe_run_until_the_first_error(
    run: Run, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = f'insert Person {{ name: "cy" }}\n{ALL}\nmatch {{ $x: Nope }}\nreturn {{ $x }}\n{ALL}'
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    outcome = run("shell", "--store", graph.uri)
    assert outcome.code == 1 and "unknown node type `Nope`" in outcome.err
    assert outcome.out.count("rows from branch main") == 1 and "cy" in outcome.out
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\\q\n{ALL}"))
    outcome = run("shell", "--store", graph.uri)
    assert (outcome.code, outcome.out) == (0, "")


def test_a_served_graph_answers_as_a_stored_one(graph: Graph) -> None:
    inputs = ("\\d", "\\d Person", "\\b", "\\log", "\\at HEAD", "\\set who ada", "\\schema", ALL)
    with serving(GraphSpec("team", graph.uri)) as live:
        remote = connect(f"{live.url}/graphs/team")
        shown = []
        for side in (graph, remote):
            output = Output(io.StringIO(), io.StringIO())
            shell = Shell(side, output)
            for text in inputs:
                shell.run(text)
            assert isinstance(output.stdout, io.StringIO)
            shown.append(output.stdout.getvalue())
        assert shown[0] == shown[1] and "bo" in shown[0]
        Shell(remote, Output(io.StringIO(), io.StringIO())).run('insert Person { name: "cy" }')
        remote.close()
    assert "cy" in str(graph.query("query q { " + ALL + " }").to_pylist())


class Terminal:
    """A shell in a pseudo-terminal, typed to and read as a person would."""

    def __init__(self, uri: str, environment: dict[str, str]) -> None:
        self.screen, inside = pty.openpty()
        command = [sys.executable, "-m", "omnigraph.cli", "shell", "--store", uri]
        self.process = subprocess.Popen(
            command, stdin=inside, stdout=inside, stderr=inside, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(inside)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.screen, text.encode())

    def read_until(self, wanted: str, patience_seconds: float = 60) -> str:
        """What is shown up to a text, without escape sequences."""
        deadline = time.monotonic() + patience_seconds
        while wanted not in self.seen:
            ready, _, _ = select.select([self.screen], [], [], deadline - time.monotonic())
            assert ready, f"{wanted!r} is not shown: {self.seen[-500:]!r}"
            shown = os.read(self.screen, 65536).decode(errors="replace")
            if "\x1b[6n" in shown:  # where is the cursor?
                self.type("\x1b[1;1R")
            self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
        before, _, self.seen = self.seen.partition(wanted)
        return before


@pytest.mark.slow
def test_a_person_asks_completes_makes_mistakes_and_leaves(graph: Graph, no_settings: Path) -> None:
    terminal = Terminal(graph.uri, {**os.environ, "TERM": "xterm", "NO_COLOR": "1"})
    terminal.read_until("main>")
    terminal.type("match { $p: Pers\t")
    terminal.read_until("Pers")  # a screen may be drawn in parts
    terminal.read_until("on")
    terminal.type(" } return { $p.name, $p.age }\r")
    terminal.read_until("2 rows from branch main")
    terminal.read_until("ada")
    terminal.read_until("main>")
    terminal.type("match { $p: Nope } return { $p }\r")
    terminal.read_until("unknown node type `Nope`")
    terminal.read_until("main>")
    terminal.type("query q {\r")
    terminal.read_until("...")
    terminal.type("\x03")  # Ctrl-C gives up the input, and not the shell
    terminal.read_until("main>")
    terminal.type('insert Person { name: "cy" }\r')
    terminal.read_until("changed 1 node")
    terminal.read_until("main>")
    terminal.type("\\q\r")
    assert terminal.process.wait(60) == 0
    os.close(terminal.screen)
    history = no_settings / "history"
    assert "insert Person" in history.read_text() and history.stat().st_mode & 0o077 == 0
