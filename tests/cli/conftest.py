"""Ways to run the command line: in this process for speed, as a program where it matters."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.addressing import PROFILE_VARIABLE
from omnigraph.cli.main import main
from omnigraph.cli.operator_config import HOME_VARIABLE
from omnigraph.graph import Graph, init
from tests.support.forked import Command
from tests.support.templates import copy_of

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "omnigraph.cli"]


@dataclass(frozen=True)
class Outcome:
    """What a finished command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""
PEOPLE = """\
{"type": "Person", "data": {"name": "ada", "age": 36}}
{"type": "Person", "data": {"name": "bo"}}
{"edge": "Knows", "from": "ada", "to": "bo", "data": {"id": "k1", "since": "2024-05-01"}}
"""


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep the settings of whoever runs the tests out of them; the folder they would lie in."""
    home = tmp_path / "home"
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    monkeypatch.delenv(PROFILE_VARIABLE, raising=False)
    return home


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line here, from the root of the repository."""
    monkeypatch.chdir(ROOT)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start the command line as a program of its own."""
    # A shell starts its background jobs with interrupts ignored, and what is ignored is inherited.
    # A handler is not: with one here, the program starts as it does at a prompt.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)

    def call(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        settings: dict[str, Any] = {
            "cwd": ROOT,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        return subprocess.Popen([*PROGRAM, *map(str, arguments)], **(settings | options))

    yield call
    signal.signal(signal.SIGINT, inherited)


@pytest.fixture
def spawn() -> Run:
    """Run a command in a process of its own, with its output in pipes."""

    def call(*arguments: object, **options: Any) -> Outcome:
        command = Command(*arguments, **options)
        out, err = command.communicate()
        return Outcome(command.wait(), out.decode(), err.decode())

    return call


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    """A small schema."""
    path = tmp_path / "schema.pg"
    path.write_text(SCHEMA, encoding="utf-8")
    return path


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Two persons who know each other, as strict JSON lines."""
    path = tmp_path / "people.jsonl"
    path.write_text(PEOPLE, encoding="utf-8")
    return path


@pytest.fixture
def graph(tmp_path: Path, schema_file: Path) -> str:
    """An empty graph, beside the file of its schema."""
    copy_of(_empty_graph, tmp_path / "graph.omni")
    return str(tmp_path / "graph.omni")


@pytest.fixture
def full_graph(tmp_path: Path, schema_file: Path, people: Path) -> str:
    """A graph with two persons, beside the files that it was made from."""
    copy_of(_full_graph, tmp_path / "graph.omni")
    return str(tmp_path / "graph.omni")


def _empty_graph(root: Path) -> Graph:
    return init(root, SCHEMA)


def _full_graph(root: Path) -> None:
    _empty_graph(root).load(data=PEOPLE, mode="append")
