"""`make demo` runs, shows what it promises, and advises commands that work."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og
from examples import demo
from examples.papers.library import make_library
from omnigraph.cli.main import main as omnigraph

ROOT = Path(__file__).parents[2]

# One worker runs the demo.
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("demo")]


@pytest.fixture(scope="module")
def anywhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that a tour has left its graph in."""
    folder = tmp_path_factory.mktemp("anywhere")
    left = folder / demo.GRAPH
    left.mkdir(parents=True)
    (left / "rest").write_text("of the tour before")
    return folder


@pytest.fixture(scope="module")
def tour(anywhere: Path) -> subprocess.CompletedProcess[bytes]:
    """The demo on a small library, run from anywhere, on a terminal that knows only ASCII."""
    settings = {name: os.environ[name] for name in ("OMNIGRAPH_DURABILITY", "JDK_JAVA_OPTIONS")}
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), "--papers", "1500"],
        cwd=anywhere,
        env={"PYTHONIOENCODING": "ascii", **settings},
        capture_output=True,
        timeout=240,
        check=True,
    )


def test_demo_says_nothing_on_stderr_and_names_no_folder(
    tour: subprocess.CompletedProcess[bytes],
):
    assert tour.stderr == b""
    assert str(ROOT) not in tour.stdout.decode()


def test_demo_shows_every_stop_of_the_tour(tour: subprocess.CompletedProcess[bytes]):
    text = tour.stdout.decode()
    for promised in (
        "2,000 authors and papers, 10,495 edges",
        "Cites        7,495 inserted",
        "foundations: ",
        "about: ",
        "| climate",
        "reading_list: ",
        "T4: unknown edge `citse`",
        "^^^^^",
        "did you mean `cites`?",
        "its operation was rolled forward",
        "rows     equal",
        "killed   by signal 9, with 500 of the rows committed",
        "again    1000 of 1000 rows, each once",
        "21 rows from 3 sources, 3 checks passed",
        "second   no change",
        "main     has the commits merge, genesis, and no branch is left",
        "diff     1 Paper inserted since the merge base",
        "state    open, clean",
        "omnigraph studio --store build/demo/papers.omni",
        "Try it yourself",
    ):
        assert promised in text
    heads = [line.split() for line in text.splitlines() if line.strip().startswith("head ")]
    papers = {branch: int(count) for _, branch, _, count, *_ in heads}
    assert papers["agent/1"] == papers["main"] + 1


def test_the_graph_of_the_tour_stays_with_an_open_review(
    tour: subprocess.CompletedProcess[bytes], anywhere: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(anywhere)
    (review,) = og.open(demo.GRAPH).reviews.list()
    assert (review.source, review.state, review.author) == ("agent/1", "open", "agent")
    for line in demo.STUDIO_STEPS[1:]:
        assert omnigraph(shlex.split(line)[1:]) == 0
    assert demo.STUDIO_STEPS[0] == "omnigraph studio --store build/demo/papers.omni"
    assert not (demo.GRAPH / "rest").exists()


def test_demo_advises_commands_that_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for line in demo.NEXT_STEPS:
        program, *arguments = shlex.split(line)
        assert program == "omnigraph"
        assert omnigraph(arguments) == 0, line
        assert capsys.readouterr().out


def test_the_library_is_the_same_every_time_and_as_large_as_it_says(tmp_path: Path):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = (make_library(folder, 300) for folder in folders)
    assert (one.node_count, one.edge_count) == (400, 2_095)
    for path, other in zip(
        [*one.nodes.values(), *one.edges.values()],
        [*two.nodes.values(), *two.edges.values()],
        strict=True,
    ):
        assert path.read_bytes() == other.read_bytes()
