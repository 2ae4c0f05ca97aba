"""Ctrl-C at every stage of a load, pressed for real: all or nothing, and it is said which."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

import omnigraph
from omnigraph.graph import Graph
from tests.support.forked import Command

SCHEMA = "node A { k: String @key }\nnode B { k: String @key }"

NOTHING = "interrupted: nothing was written"
TOO_LATE = "interrupted too late: the load is commit"

MOMENTS = {
    "branch_create.post_native": NOTHING,
    "mutation.post_stage_pre_effect_gate": NOTHING,
    "mutation.post_sidecar_pre_fork": NOTHING,
    "mutation.post_table_commit": NOTHING,
    "mutation.post_finalize_pre_publisher": TOO_LATE,
    "graph_publish.after_manifest_commit": TOO_LATE,
}
"""Where the load is held, in the order in which it gets there: after planning, in its commit."""


@pytest.fixture(autouse=True)
def on_threads(on_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here needs no workers."""
    monkeypatch.delenv("OMNIGRAPH_SPARK_THRESHOLD_BYTES")


@pytest.mark.parametrize("moment", MOMENTS)
def test_c_pip_033_ctrl_c_leaves_all_or_nothing_and_says_which(moment, tmp_path: Path):
    graph = omnigraph.init(tmp_path / "g.omni", SCHEMA)
    graph.load(data=b'{"type": "A", "data": {"k": "old"}}\n', mode="append")
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"k\n{name}1\n")
    is_early = moment.startswith("branch_create")
    branch = ["--branch", "review", "--from", "main"] if is_early else []
    code, err = interrupted(tmp_path, moment, *branch)
    assert code == 130
    assert MOMENTS[moment] in err and "Traceback" not in err
    again = omnigraph.open(graph.uri)
    assert again.list_branches() == ["main"]
    expected = ["a1", "b1", "old"] if MOMENTS[moment] == TOO_LATE else ["old"]
    assert keys(again) == expected
    assert not again._kernel.sidecars.names()
    assert not (tmp_path / "g.omni" / "__load").exists()
    again.load(nodes={"A": tmp_path / "a.csv"}, mode="merge")
    assert "a1" in keys(again)


def interrupted(directory: Path, moment: str, *arguments: str) -> tuple[int, str]:
    """The exit code and the words of a load that got SIGINT while it was held at a failpoint."""
    marker = directory / "held"
    command = Command(
        *("load", "g.omni", "--mode", "append", "--node", "A=a.csv", "--node", "B=b.csv"),
        *arguments,
        cwd=directory,
        env={**os.environ, "OMNIGRAPH_FAILPOINTS": f"{moment}=pause:{marker}"},
    )
    while not marker.exists():
        assert command.poll() is None, command.communicate()[1]
        time.sleep(0.01)
    command.send_signal(signal.SIGINT)
    _, err = command.communicate()
    return command.wait(), err.decode()


def keys(graph: Graph) -> list[str]:
    found = [
        graph._opened.reader().handle(f"node:{name}").to_table(columns=["id"])["id"]
        for name in ("A", "B")
    ]
    return sorted(key for column in found for key in column.to_pylist())
