"""A branch without a head row of its own, as other writers of this format may leave one."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from lance import LanceDataset

from omnigraph.commit.kernel import Kernel
from omnigraph.effects.uri import Root
from omnigraph.graph import Graph, OpenMode, init, open_graph
from omnigraph.storage.manifest_rows import head_object_id
from omnigraph.storage.transactions import commit_strict

SCHEMA = "node Person { name: String @key }"
ADD = "query add($n: String) { insert Person { name: $n } }"


def people(graph: Graph, branch: str | None = None) -> list[str]:
    lines = b"".join(graph.export(branch=branch)).splitlines()
    return [orjson.loads(line)["data"]["name"] for line in lines]


def manifest_of(graph: Graph, branch: str) -> LanceDataset:
    return Kernel.of(Root.parse(graph.uri)).manifest.branch(branch).handle


def head_rows(graph: Graph, branch: str) -> list[str]:
    found = manifest_of(graph, branch).to_table(["object_id"], "object_type = 'graph_head'")
    return [name for name in found["object_id"].to_pylist() if name == head_object_id(branch)]


@pytest.fixture
def headless(tmp_path: Path) -> Graph:
    """A graph whose branch `review` has lost its head row; main went on since."""
    graph = init(tmp_path / "graph", SCHEMA)
    graph.mutate(ADD, {"n": "ana"})
    graph.create_branch("review")
    graph.mutate(ADD, {"n": "later"})
    handle = manifest_of(graph, "review")
    key = handle.to_table(["object_id"], f"object_id = '{head_object_id('review')}'")
    assert key.num_rows == 1
    delete, _ = handle.merge_insert("object_id").when_matched_delete().execute_uncommitted(key)
    commit_strict(handle, delete)
    assert head_rows(graph, "review") == []
    return graph


def test_it_shows_what_it_was_created_with_and_reading_adds_nothing(headless: Graph) -> None:
    version = manifest_of(headless, "review").version
    modes: tuple[OpenMode, ...] = ("read_only", "read_write")
    for mode in modes:
        graph = open_graph(headless.uri, mode=mode)
        assert people(graph, "review") == ["ana"]
        inherited = [commit.graph_commit_id for commit in graph.list_commits("review")]
        assert inherited == [commit.graph_commit_id for commit in graph.list_commits()[1:]]
    assert manifest_of(headless, "review").version == version


def test_its_first_write_gives_it_one_and_continues_its_line(headless: Graph) -> None:
    graph = open_graph(headless.uri)
    inherited = graph.list_commits("review")
    for name in ("ben", "cleo"):
        graph.mutate(ADD, {"n": name}, branch="review")
        assert len(head_rows(graph, "review")) == 1
    again = open_graph(graph.uri)
    assert people(again, "review") == ["ana", "ben", "cleo"]
    assert people(again) == ["ana", "later"]
    newest, middle, *rest = again.list_commits("review")
    assert rest == inherited
    assert newest.parent_commit_id == middle.graph_commit_id
    assert middle.parent_commit_id == inherited[0].graph_commit_id


def test_a_branch_can_be_created_from_it_and_it_can_be_deleted(headless: Graph) -> None:
    headless.create_branch("nested", from_="review")
    headless.mutate(ADD, {"n": "ben"}, branch="nested")
    assert people(headless, "nested") == ["ana", "ben"]
    headless.delete_branch("nested")
    headless.delete_branch("review")
    assert headless.list_branches() == ["main"]
