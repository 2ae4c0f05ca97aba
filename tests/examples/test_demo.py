"""`make demo` runs, shows what it promises, and advises commands that work."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from examples import demo
from omnigraph.cli.main import main as omnigraph

ROOT = Path(__file__).parents[2]


def test_demo_runs_from_anywhere_and_exits_with_0(tmp_path: Path):
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert run.stderr == ""
    assert str(ROOT) not in run.stdout


def test_demo_shows_every_stop_of_the_tour(capsys: pytest.CaptureFixture[str]):
    assert demo.main() == 0
    text = capsys.readouterr().out
    for promised in (
        "node Person by handle",
        "Expand $me -Knows{2,2}- $other: Person",
        "returns  handle (string), name (string)",
        "T4: unknown edge `lieks`",
        "^^^^^",
        "did you mean `likes`?",
        "rename node Client to Customer",
        "OG-MF-103",
        "load     36 entities",
        "its operation was rolled forward",
        "agent/1  7 persons",
        "main     7 persons",
    ):
        assert promised in text


def test_demo_runs_where_the_terminal_knows_only_ascii():
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py")],
        env={"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert b"Omnigraph" in run.stdout


@pytest.mark.parametrize("line", demo.NEXT_STEPS)
def test_demo_advises_commands_that_work(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(ROOT)
    program, *arguments = shlex.split(line)
    assert program == "omnigraph"
    assert omnigraph(arguments) == 0
    assert capsys.readouterr().out
