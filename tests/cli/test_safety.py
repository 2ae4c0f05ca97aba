"""What a write says before it starts, and what it asks."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from omnigraph import graph as facade
from omnigraph.cli.main import main

REMOTE = "s3://lake/graphs/team.omni"


class Reached(Exception):
    """The command went on to open the graph."""


@pytest.fixture
def no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a graph is noticed, and gets no further."""

    def reached(*arguments: object, **options: object) -> None:
        raise Reached

    monkeypatch.setattr(facade, "open_graph", reached)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    """Sit at a terminal and type an answer."""

    class Keyboard(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    def answer(text: str) -> Screen:
        screen = Screen()
        monkeypatch.setattr(sys, "stdin", Keyboard(io.BytesIO(text.encode())))
        monkeypatch.setattr(sys, "stderr", screen)
        return screen

    return answer


def destructive(people: Path) -> list[list[str]]:
    return [
        ["load", REMOTE, "--data", str(people), "--mode", "overwrite"],
        ["ingest", REMOTE, "--data", str(people), "--mode", "overwrite"],
        ["branch", "delete", "review", "--uri", REMOTE],
    ]


def test_c_cli_039_destructive_writes_to_shared_storage_need_consent(run, people, no_storage):
    for command in destructive(people):
        done = run(*command)
        assert done.code == 1
        assert f"on {REMOTE} needs consent" in done.err
        assert "hint: pass `--yes` to give it" in done.err
        envelope = run(*command, "--json")
        assert envelope.code == 1
        assert json.loads(envelope.out)["hint"] == "pass `--yes` to give it"


def test_c_cli_039_consent_lets_them_through(run, people, no_storage):
    for command in destructive(people):
        assert "Reached" in run(*command, "--yes").err


def test_c_cli_039_other_writes_and_local_ones_need_none(run, people, no_storage):
    for command in (
        ["load", REMOTE, "--data", people, "--mode", "merge"],
        ["load", "local.omni", "--data", people, "--mode", "overwrite"],
        ["branch", "delete", "review", "--uri", "file:///local.omni"],
        ["branch", "create", "review", "--uri", REMOTE],
    ):
        assert "Reached" in run(*command).err


@pytest.mark.parametrize("word", ["y", "yes", "YES"])
def test_c_cli_039_a_user_at_a_terminal_is_asked(people, no_storage, terminal, word: str):
    screen = terminal(f"{word}\n")
    assert main(["branch", "delete", "review", "--uri", REMOTE]) == 1
    assert f"`branch delete review` on {REMOTE}. Continue? [y/N]" in screen.getvalue()
    assert "Reached" in screen.getvalue()


@pytest.mark.parametrize("text", ["n\n", "\n", "", "yesterday\n"])
def test_c_cli_039_any_other_answer_is_no(no_storage, terminal, text: str):
    screen = terminal(text)
    assert main(["branch", "delete", "review", "--uri", REMOTE]) == 1
    assert "without consent, nothing was done" in screen.getvalue()


def test_c_cli_039_with_json_no_question_is_asked(no_storage, terminal, capsys):
    screen = terminal("yes\n")
    assert main(["branch", "delete", "review", "--uri", REMOTE, "--json"]) == 1
    assert "Continue?" not in screen.getvalue()
    assert "needs consent" in json.loads(capsys.readouterr().out)["error"]


def test_c_cli_041_writes_say_where_they_go(run, full_graph: str, people: Path):
    add = ["-e", 'query q() { insert City { name: "Rome" } }']
    for command, verb in [
        (["load", full_graph, "--data", str(people), "--mode", "merge"], "load"),
        (["mutate", "--store", full_graph, *add], "mutate"),
        (["branch", "create", "review", "--uri", full_graph], "branch create"),
        (["branch", "delete", "review", "--uri", full_graph], "branch delete"),
        (["recover", full_graph], "recover"),
    ]:
        done = run(*command)
        assert done.code == 0
        assert done.err.splitlines()[0] == f"omnigraph {verb} → {full_graph} (direct, local)"


def test_c_cli_041_the_echo_knows_remote_places(run, people: Path, no_storage):
    done = run("load", REMOTE, "--data", people, "--mode", "merge")
    assert done.err.startswith(f"omnigraph load → {REMOTE} (direct, remote)\n")


def test_c_cli_041_quiet_removes_the_echo_and_reads_have_none(run, full_graph: str, people: Path):
    load = ["load", full_graph, "--data", people, "--mode", "merge"]
    assert run(*load, "--quiet").err == ""
    assert run("--quiet", *load).err == ""
    assert run("snapshot", full_graph).err == ""
