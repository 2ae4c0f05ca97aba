"""The notebooks run from top to bottom, show what they tell, and are committed as written.

They carry no outputs: what a cell prints is found out by running it, which is done here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"
NAMES = ("communities", "review", "spark")
SMALL_SESSIONS = {
    "OMNIGRAPH_SPARK_CONF_spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "OMNIGRAPH_SPARK_CONF_spark_sql_shuffle_partitions": "2",
}
"""For so few rows, more compilation and more tasks only take time."""
LINK = re.compile(r"\]\((?P<target>[^)#]+)")


def path_of(name: str) -> Path:
    return NOTEBOOKS / f"{name}.ipynb"


def read(name: str) -> Any:
    return nbformat.read(path_of(name), as_version=4)


@cache
def shown(name: str) -> dict[str, str]:
    """What each cell showed, by its id; errors and noise on stderr are failures."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out.ipynb"
        program = [sys.executable, "-m", "tests.examples.run_notebook"]
        settings = os.environ | {"OMNIGRAPH_DURABILITY": "process"} | SMALL_SESSIONS
        done = subprocess.run(
            [*program, str(path_of(name)), str(out)],
            cwd=ROOT,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        notebook = nbformat.read(out, as_version=4)
    return {cell["id"]: "\n".join(map(text_of, cell.get("outputs", ()))) for cell in notebook.cells}


def text_of(output: Any) -> str:
    assert output.get("name") != "stderr", output["text"]
    return str(
        output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
    )


def everything(name: str) -> str:
    return "\n".join(shown(name).values())


def test_every_notebook_is_known_here():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_are_committed_without_outputs(name: str):
    notebook = read(name)
    nbformat.validate(notebook)
    assert [cell["id"] for cell in notebook.cells] == [
        f"{name}-{number:02}" for number in range(1, len(notebook.cells) + 1)
    ]
    for cell in notebook.cells:
        assert not cell.get("outputs") and cell.get("execution_count") is None, cell["id"]
    written = path_of(name).read_text(encoding="utf-8")
    assert written == nbformat.writes(notebook, indent=1) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_links_of_notebooks_lead_somewhere(name: str):
    texts = [cell["source"] for cell in read(name).cells if cell["cell_type"] == "markdown"]
    targets = [link["target"] for text in texts for link in LINK.finditer(text)]
    assert targets
    assert [target for target in targets if not (NOTEBOOKS / target).exists()] == []


def test_agents_on_branches_are_reviewed_and_merged():
    said = everything("review")
    assert "no rule lets actor `act-prices` do `change` on branch `main`" in said
    assert "update Part G-210 {'title': 'Gear Z40', 'weight_g': 310}" in said
    assert "agent/scout cannot be merged into main: 1 conflict" in said
    assert "agent/prices ['act-prices', 'act-prices', 'act-ana', None]" in said
    tables = [text for text in shown("review").values() if "rows from branch main" in text]
    assert "G-210  | Gear Z40 |    12.1 |        310" in tables[-2]
    # Undone: what the second agent found. Not undone: the prices of the first.
    assert "G-210  | Gear    |    12.1 |       null" in tables[-1] and "W-005" not in tables[-1]


def test_a_csv_file_ends_in_communities_that_can_be_asked_for():
    said = everything("communities")
    assert "edge Flight: Airport -> Airport {" in said
    assert "AMS, BER, BGO, MUC, OSL, TRD\nCDG, GVA, NTE\nFRA, LYS, ZRH\n" in said
    assert "node Airport |        0 |      12 |       0" in said
    assert "GVA       |        3 | 0.108" in said
    assert "BER    | FRA" in said and "['CDG', 'LYS', 'ZRH', 'MUC']" in said


@pytest.mark.long
@pytest.mark.spark
def test_spark_loads_analyses_and_writes_back():
    said = everything("spark")
    assert re.search(r"Paper +3,000 inserted\nCites +14,995 inserted\nWrote +6,000 inserted", said)
    assert "5 rows from branch main via foundations" in said
    assert "node Paper |        0 |    3000 |       0" in said
    assert re.search(r"10.5555/0000000 \| robots +\| +69", said)
