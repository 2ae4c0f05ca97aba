"""Schemas of the past go with the last commit that can be shown in their words."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.model.upkeep import CleanedTable
from omnigraph.storage.layout import PAST_SCHEMAS, past_source_name
from omnigraph.upkeep import cleanup as cleanup_module

FIRST = "node Memo { code: String @key  size: I32? }"
SECOND = "node Memo { code: String @key  size: I32?  note: String? }"
THIRD = "node Memo { code: String @key  size: I32?  note: String?  mark: String? }"
ADD = "query add($code: String) { insert Memo { code: $code, size: 1 } }"
SIZE = "query size($n: I32) { update Memo set { size: $n } where size >= 0 }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A memo written with each of three schemas, all resized with the last."""
    graph = og.init(tmp_path / "graph.omni", schema=FIRST)
    graph.mutate(ADD, {"code": "a"})
    for schema, code in ((SECOND, "b"), (THIRD, "c")):
        graph.apply_schema(schema)
        graph.mutate(ADD, {"code": code})
    graph.mutate(SIZE, {"n": 5})
    return graph


def kept(graph: og.Graph) -> int:
    """How many schemas are kept, each with its source."""
    names = graph._kernel.store.list(PAST_SCHEMAS)
    kept = [name for name in names if name.endswith(".json")]
    assert sorted(names) == sorted([*kept, *map(past_source_name, kept)])
    return len(kept)


def test_schemas_go_when_no_row_of_their_time_is_left(graph: og.Graph) -> None:
    preview = graph.cleanup(keep=1)
    assert preview.tables[-1] == CleanedTable(PAST_SCHEMAS, 0, 2) and kept(graph) == 2
    done = graph.cleanup(keep=1, confirm=True)
    assert done.tables[-1].old_versions_removed == 2 and done.tables[-1].bytes_removed > 100
    assert kept(graph) == 0
    assert graph.query("query q { match { $m: Memo } return { count($m) as n } }").to_pylist() == [
        {"n": 3}
    ]
    # Nothing is left to do, and the graph goes on.
    assert all(row.type_key != PAST_SCHEMAS for row in graph.cleanup(keep=1).tables)
    graph.apply_schema(FIRST, allow_data_loss=True)
    assert kept(graph) == 1


def test_a_schema_stays_while_a_version_of_its_time_does(graph: og.Graph) -> None:
    graph.cleanup(keep=50, confirm=True)
    assert kept(graph) == 2
    newest = graph.list_commits()[0].graph_commit_id
    changes = [each.op for each in graph.commit_changes(newest)]
    assert changes == ["update", "update", "update"]


def test_only_the_schemas_before_the_oldest_rows_go(graph: og.Graph) -> None:
    versions = graph._kernel.manifest.main.state.versions
    assert len(versions) == 7
    # The newest four: two of the last schema, its change, and the last of the second one.
    graph.cleanup(keep=4, confirm=True)
    assert kept(graph) == 1
    inserts = graph.list_commits()[1].graph_commit_id
    assert [each.op for each in graph.commit_changes(inserts)] == ["insert"]
    history = graph.entity_history("Memo", "c")
    assert [each.change.op for each in history] == ["update", "insert"]


def test_a_type_without_writes_keeps_the_schemas_it_was_written_with(
    tmp_path: Path,
) -> None:
    still = "\nnode Label { name: String @key }"
    graph = og.init(tmp_path / "still.omni", schema=FIRST + still)
    graph.mutate("query q { insert Label { name: 'x' } }".replace("'", '"'))
    graph.apply_schema(SECOND + still)
    for code in "abc":
        graph.mutate(ADD, {"code": code})
    graph.mutate(SIZE, {"n": 5})
    graph.cleanup(keep=1, confirm=True)
    assert kept(graph) == 1
    assert [each.change.op for each in graph.entity_history("Label", "x")] == ["insert"]


def test_a_branch_keeps_the_schemas_of_what_it_was_forked_from(graph: og.Graph) -> None:
    graph.create_branch("old")
    graph.mutate(SIZE, {"n": 6})
    graph.cleanup(keep=1, confirm=True)
    assert kept(graph) == 0, "the branch was made with the schema of today"
    assert len(graph.list_commits("old")) == len(graph.list_commits()) - 1


def test_schemas_stay_when_a_table_could_not_be_cleaned(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StorageError("the disk is tired")

    monkeypatch.setattr(cleanup_module, "reclaim", fails)
    assert graph.cleanup(keep=1, confirm=True).has_errors
    assert kept(graph) == 2


def test_an_object_that_belongs_to_no_commit_is_left_alone(graph: og.Graph) -> None:
    graph._kernel.store.write(f"{PAST_SCHEMAS}/mine.json", b"{}")
    graph.cleanup(keep=1, confirm=True)
    assert graph._kernel.store.list(PAST_SCHEMAS) == [f"{PAST_SCHEMAS}/mine.json"]
