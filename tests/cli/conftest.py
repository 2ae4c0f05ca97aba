"""Ways to run the command line: in this process for speed, as a program where it matters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import main

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "omnigraph.cli"]


@dataclass(frozen=True)
class Outcome:
    """What a finished command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line here, from the root of the repository."""
    monkeypatch.chdir(ROOT)

    def call(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return call


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Start the command line as a program of its own."""

    def call(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        settings: dict[str, Any] = {
            "cwd": ROOT,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        return subprocess.Popen([*PROGRAM, *map(str, arguments)], **(settings | options))

    return call


@pytest.fixture
def spawn(start: Callable[..., subprocess.Popen[bytes]]) -> Run:
    """Run the command line as a program of its own, with its output in pipes."""

    def call(*arguments: object, **options: Any) -> Outcome:
        process = start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return Outcome(process.returncode, (out or b"").decode(), (err or b"").decode())

    return call
