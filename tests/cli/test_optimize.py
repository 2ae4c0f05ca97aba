"""`omnigraph optimize`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.effects.failpoints import armed
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import open_graph


@pytest.fixture
def scattered(run, full_graph: str, tmp_path: Path) -> str:
    """A graph whose persons lie in several fragments."""
    for name in ("cleo", "dora"):
        data = tmp_path / f"{name}.jsonl"
        data.write_text(json.dumps({"type": "Person", "data": {"name": name}}) + "\n")
        assert run("load", full_graph, "--data", data, "--mode", "append").code == 0
    return full_graph


def test_optimize_says_what_it_did_and_then_that_nothing_is_due(run, scattered: str):
    done = run("optimize", scattered)
    assert done.code == 0
    assert done.err == f"omnigraph optimize → {scattered} (direct, local)\n"
    header, *rows = (line.split() for line in done.out.splitlines())
    assert header == ["table", "removed", "added", "version"]
    assert rows[0][:4] == ["node", "Person", "3", "1"]
    assert rows[-2] == ["3", "tables", "optimized"]
    assert rows[-1][0] == "commit"
    assert run("optimize", scattered).out == "nothing to optimize\n"


def test_optimize_and_cleanup_tell_how_many_tables_are_done(scattered: str):
    graph, told = open_graph(scattered), list[tuple[int, int]]()
    graph.optimize(progress=lambda *done: told.append(done))
    assert sorted(told) == [(done, 2) for done in (1, 2)]
    told.clear()
    for confirm in (False, True):
        graph.cleanup(keep=1, confirm=confirm, progress=lambda *done: told.append(done))
    assert told == [(done, 4) for done in (1, 2, 3, 4)] * 2


def test_optimize_as_json(run, scattered: str):
    document = json.loads(run("optimize", scattered, "--json").out)
    assert document["uri"] == scattered
    (person,) = [row for row in document["datasets"] if row["type_key"] == "node:Person"]
    assert set(person) == {
        *("type_key", "fragments_removed", "fragments_added", "committed", "skipped"),
        *("published_dataset_version", "lance_head_version", "pending_indexes"),
        "adjacency_saved",
    }
    assert person["committed"]
    assert document["datasets"][-1]["type_key"] == "__manifest"
    assert document["summary"]["graph_commit_id"]


def test_a_table_changed_behind_the_graphs_back_is_named_as_skipped(run, scattered: str):
    reader = open_graph(scattered)._opened.reader("main")
    reader.handle("node:Person").delete("name = 'ada'")
    done = run("optimize", scattered)
    assert done.code == 0
    assert "skipped: node Person: version " in done.out
    assert "omnigraph repair" in done.out


def test_c_mnt_011_optimize_does_not_settle_by_itself(run, scattered: str):
    graph = open_graph(scattered)
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        graph.mutate('query q { insert City { name: "Rome" } }')
    done = run("optimize", scattered)
    assert done.code == 1
    assert "omnigraph recover" in done.err
    assert run("recover", scattered).code == 0
    assert run("optimize", scattered).code == 0


def test_c_cli_005_and_006_optimize_has_no_actor_and_no_server(run, scattered: str):
    assert run("optimize", scattered, "--as", "act-ana").code == 2
    assert run("optimize", "http://localhost/graphs/team").code == 2
