"""What TAB offers: commands, flags, and names of the graph that the line is about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli import completion
from omnigraph.cli.completion import SHELLS, candidates
from omnigraph.cli.help import Group
from omnigraph.cli.main import root_command
from omnigraph.graph import open_graph
from omnigraph.server.config import GraphSpec
from tests.cli.conftest import Run
from tests.server.live import serving
from tests.support.tables import check_all

QUERIES = """
query everybody { match { $p: Person } return { $p.name } }
query older($age: I32) { match { $p: Person  $p.age > $age } return { $p.name } }
"""


def offered(line: str) -> list[str]:
    return [word for word, _ in candidates(line)]


def check_lines(cases: dict[str, list[str]]) -> None:
    def check(case: tuple[str, list[str]]) -> None:
        line, expected = case
        assert offered(line) == expected

    check_all({line: (line, expected) for line, expected in cases.items()}, check)


@pytest.fixture
def forked(full_graph: str) -> str:
    """A graph with a branch and a tag."""
    graph = open_graph(full_graph)
    graph.create_branch("review")
    graph.create_tag("v1")
    return full_graph


def test_commands_flags_and_choices_are_offered_without_a_graph() -> None:
    cases = {
        "omnigraph bra": ["branch"],
        "omnigraph branch de": ["delete"],
        "omnigraph --quiet sch": ["schema"],
        "cat q.gq | /opt/bin/omnigraph que": ["query"],
        "omnigraph query --par": ["--params", "--params-file"],
        "omnigraph query --params-file p.json --params-f": [],
        "omnigraph load --mode ": ["append", "merge", "overwrite"],
        "omnigraph load --mode=me": ["--mode=merge"],
        "omnigraph fmt --sto": [],
        "omnigraph query --sto": ["--store"],
        "omnigraph compute p": ["pagerank"],
        "omnigraph completion ": [*SHELLS],
        "omnigraph --vers": ["--version"],
        "omnigraph nonsense ": [],
        "omnigraph query -e 'match { $p: P": [],
        "omnigraph export > al": [],
        "ls omni": [],
        "": [],
    }

    check_lines(cases)


def test_names_come_from_the_graph_of_the_line(forked: str, tmp_path: Path) -> None:
    file = tmp_path / "q.gq"
    file.write_text(QUERIES)
    place = f"--store {forked}"
    cases = {
        f"omnigraph branch delete {place} ": ["main", "review"],
        f"omnigraph branch diff {place} main ": ["main", "review", "v1"],
        f"omnigraph query {place} --branch r": ["review"],
        f"omnigraph {place} query --branch=r": ["--branch=review"],
        f"omnigraph query {place} --snapshot v": ["v1"],
        f"omnigraph tag delete {place} ": ["v1"],
        f"omnigraph compute pagerank {place} --node ": ["City", "Person"],
        f"omnigraph compute pagerank {place} --node City --node ": ["Person"],
        f"omnigraph compute pagerank {place} --edge ": ["Knows"],
        f"omnigraph compute pagerank {place} --into Person.a": ["Person.age"],
        f"omnigraph export {place} --type K": ["Knows"],
        f"omnigraph query {place} --query {file} ": ["everybody", "older"],
        f"omnigraph branch create {place} ": [],
        f"omnigraph query --store {tmp_path / 'none.omni'} --branch ": [],
        "omnigraph query --store s3://lake/team.omni --branch ": [],
        "omnigraph query --server https://example.com/graphs/team --branch ": [],
    }

    check_lines(cases)


def test_the_chosen_graph_and_configured_names_are_offered(run: Run, forked: str) -> None:
    run("use", "--store", forked)
    assert offered("omnigraph query --branch ") == ["main", "review"]
    assert offered("omnigraph profile show ") == []


def test_stored_queries_of_a_server_here_are_offered(forked: str, tmp_path: Path) -> None:
    (tmp_path / "stored.gq").write_text(QUERIES)
    with serving(GraphSpec("team", forked, queries=(tmp_path / "stored.gq",))) as live:
        line = f"omnigraph query --server {live.url}/graphs/team"
        assert offered(f"{line} o") == ["older"]
        assert offered(f"{line} --branch r") == ["review"]


def test_what_completes_a_value_belongs_to_a_command() -> None:
    """No entry of the table is about a flag or an argument that is gone."""
    known: set[str] = set()

    def look(command: Any, name: str) -> None:
        if isinstance(command, Group):
            for each in command.commands:
                look(command.commands[each], f"{name} {each}".strip())
        for each in command.params:
            known.update({str(each.metavar), f"{name} {each.metavar}"})
            known.update(f"{flag} {each.metavar}" for flag in each.opts)

    look(root_command(), "")
    assert set(completion._VALUES) <= known


def test_each_shell_gets_the_words_in_its_form(run: Run, forked: str) -> None:
    line = f"omnigraph query --store {forked} --branch=r"
    assert run("complete", "bash", line).out == "review\n"
    assert run("complete", "fish", line).out == "--branch=review\n"
    assert (
        run("complete", "zsh", "omnigraph branch li").out == "list:List the branches, one a line\n"
    )
    assert run("complete", "fish", "omnigraph branch li").out.startswith("list\tList")
    for shell in SHELLS:
        assert f"omnigraph complete {shell} " in run("completion", shell).out
    assert run("completion", "tcsh").code == 2


@pytest.mark.slow
def test_bash_completes_with_the_script_that_is_printed(forked: str) -> None:
    line = f"omnigraph branch delete --store {forked} re"
    script = f"""
    PATH={Path(sys.executable).parent}:$PATH
    eval "$(omnigraph completion bash)"
    COMP_LINE={line!r} COMP_POINT={len(line)}
    _omnigraph
    printf '%s\\n' "${{COMPREPLY[@]}}"
    complete -p omnigraph
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout == "review\ncomplete -o default -F _omnigraph omnigraph\n"
