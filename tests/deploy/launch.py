"""Runs the entrypoint as a container does: its environment is all it gets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ENTRYPOINT = DEPLOY / "entrypoint.py"
PAGE = ROOT / "docs" / "guide" / "deployment.md"
PATIENCE_SECONDS = 120
REAL_PROGRAMS = str(Path(sys.executable).parent)
LISTEN = re.compile(r"OMNIGRAPH_LISTEN_ADDR=(\S+)\n")

FAKE = """#!{python}
import json, os, pathlib, sys

with pathlib.Path({calls!r}).open("a") as file:
    file.write(json.dumps(dict(argv=sys.argv[1:], environment=dict(os.environ))) + chr(10))
if sys.argv[1] == "init" and {answer!r}:
    print({answer!r})
    sys.exit("error: what init says")
"""


@dataclass(frozen=True)
class Fake:
    """A program called `omnigraph` that notes how it was called."""

    folder: Path

    @property
    def calls(self) -> list[dict[str, Any]]:
        noted = self.folder / "calls"
        return (
            [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []
        )

    @property
    def commands(self) -> list[list[str]]:
        return [call["argv"] for call in self.calls]


def fake_program(folder: Path, init_answer: object = None) -> Fake:
    """One whose `init` succeeds, or fails with this JSON on stdout."""
    folder.mkdir()
    program = folder / "omnigraph"
    answer = "" if init_answer is None else json.dumps(init_answer)
    program.write_text(
        FAKE.format(python=sys.executable, calls=str(folder / "calls"), answer=answer)
    )
    program.chmod(0o755)
    return Fake(folder)


def surroundings(programs: str, settings: Mapping[str, str]) -> dict[str, str]:
    """An environment of these settings alone; a test run by root says so."""
    plain = {"PATH": programs, "LANG": "C.UTF-8"}
    if os.geteuid() == 0:
        accepted = settings.get("OMNIGRAPH_ACCEPT")
        plain["OMNIGRAPH_ACCEPT"] = ",".join(["root", *([accepted] if accepted else [])])
    return {**settings, **plain}


def run(
    programs: str, settings: Mapping[str, str], *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ENTRYPOINT), *arguments],
        env=surroundings(programs, settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        cwd=cwd,
    )


@contextmanager
def serving(settings: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A real server that the entrypoint started, and its address."""
    process = subprocess.Popen(
        [sys.executable, str(ENTRYPOINT)],
        env=surroundings(REAL_PROGRAMS, settings) | {"OMNIGRAPH_DURABILITY": "process"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = LISTEN.fullmatch(process.stdout.readline())
        assert line is not None, process.stderr.read()
        yield process, line[1]
    finally:
        process.kill()
        process.communicate()
