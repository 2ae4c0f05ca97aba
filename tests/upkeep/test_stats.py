"""A graph in numbers, and what of it needs attention."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.effects.failpoints import armed
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import open_graph
from omnigraph.model.upkeep import GraphStats, TableStats
from omnigraph.storage import versions
from omnigraph.storage.indexes import indexes_of
from tests.crash import processes
from tests.crash.operations import seeded
from tests.storage.footprint import footprint
from tests.upkeep.behind_the_back import compacted, deleted

SCHEMA = """
node Memo { code: String @key  body: String? @index  size: I32? @index }
edge Replies: Memo -> Memo
"""
ADD = 'query add($code: String) { insert Memo { code: $code, body: "new" } }'
DROP = "query drop($code: String) { delete Memo where code = $code }"


def load(graph: og.Graph, *codes: str, branch: str | None = None) -> None:
    records = [{"type": "Memo", "data": {"code": code, "body": code, "size": 1}} for code in codes]
    graph.load(data="\n".join(map(json.dumps, records)), mode="merge", branch=branch)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Ten memos, indexed."""
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    load(graph, *(f"m{n}" for n in range(10)))
    graph.ensure_indices()
    return graph


def table(stats: GraphStats, type_key: str = "node:Memo") -> TableStats:
    (found,) = [each for each in stats.tables if each.type_key == type_key]
    return found


def findings(stats: GraphStats) -> list[tuple[str, str, str]]:
    """What they are, about what, and the verb and flags that mend them."""
    return [(found.code, found.subject, _without_place(found.command)) for found in stats.findings]


def _without_place(command: str) -> str:
    words = shlex.split(command)
    at = words.index("--store")
    return " ".join([*words[:at], *words[at + 2 :]])


def mend(stats: GraphStats) -> None:
    """Run every command that is named, as somebody would who pastes it."""
    for command in dict.fromkeys(found.command for found in stats.findings):
        assert main(shlex.split(command)[1:]) == 0, command


def test_c_mnt_046_a_healthy_graph_in_numbers_and_without_findings(graph: og.Graph) -> None:
    stats = graph.stats()
    memos = table(stats)
    assert (memos.rows, memos.fragments, memos.deleted_rows) == (10, 1, 0)
    assert memos.bytes > 0
    assert memos.published_dataset_version == memos.lance_head_version
    assert memos.versions == memos.published_dataset_version == 3
    covered = {
        str(index.spec): (index.rows_covered, index.rows_uncovered) for index in memos.indexes
    }
    assert len(covered) == 5
    assert set(covered.values()) == {(10, 0)}
    assert (stats.branch, stats.branches, stats.commits) == ("main", ("main",), 3)
    assert stats.graph_commit_id == graph.list_commits()[0].graph_commit_id
    assert stats.internal_schema_version == 4
    assert (stats.pending, stats.leases, stats.findings) == ((), (), ())


def test_c_mnt_046_stats_write_nothing_whatever_they_find(graph: og.Graph) -> None:
    deleted(graph, "node:Memo", "code = 'm1'")
    graph.create_branch("review")
    load(graph, "x", branch="review")
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        load(graph, "y", branch="review")
    before = footprint(Path(graph.uri))
    reader = open_graph(graph.uri, "read_only")
    assert reader.stats().findings
    reader.stats("review")
    assert footprint(Path(graph.uri)) == before


def test_the_stats_of_a_branch_show_what_it_has_and_shares(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, "x", "y", branch="review")
    stats = graph.stats("review")
    assert table(stats).rows == 12
    assert table(stats).versions == 2
    assert table(graph.stats()).rows == 10
    assert stats.branches == ("main", "review")
    assert stats.commits == 4


@pytest.mark.parametrize("empty", ["edge:Replies"])
def test_an_empty_table_needs_no_index(graph: og.Graph, empty: str) -> None:
    assert table(graph.stats(), empty).indexes == ()


# --- findings, and the commands that mend them ----------------------------------------------------


def test_c_mnt_046_missing_indexes_lead_to_index(graph: og.Graph) -> None:
    graph.create_branch("review")
    fresh = og.init(Path(graph.uri).parent / "fresh.omni", schema=SCHEMA)
    load(fresh, "a", "b")
    stats = fresh.stats()
    assert findings(stats) == [("index_missing", "node:Memo", "omnigraph index")]
    mend(stats)
    assert open_graph(fresh.uri).stats().findings == ()


def test_c_mnt_046_missing_indexes_of_a_branch_lead_to_index_with_the_branch(
    tmp_path: Path,
) -> None:
    graph = og.init(tmp_path / "fresh.omni", schema=SCHEMA)
    graph.create_branch("review")
    load(graph, "a", branch="review")
    stats = graph.stats("review")
    expected = ("index_missing", "node:Memo on review", "omnigraph index --branch review")
    assert findings(stats) == [expected]
    mend(stats)
    assert open_graph(graph.uri).stats("review").findings == ()


def test_c_mnt_046_stale_indexes_and_many_fragments_lead_to_optimize(graph: og.Graph) -> None:
    for number in range(20):
        graph.mutate(ADD, {"code": f"later{number}"})
    stats = graph.stats()
    assert findings(stats) == [
        ("index_stale", "node:Memo", "omnigraph optimize"),
        ("fragments", "node:Memo", "omnigraph optimize"),
    ]
    mend(stats)
    again = open_graph(graph.uri)
    assert again.stats().findings == ()
    assert {
        index.rows_uncovered for index in indexes_of(again._opened.reader().handle("node:Memo"))
    } == {0}


def test_many_fragments_that_are_as_large_as_they_should_be_need_nothing(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        graph.mutate(ADD, {"code": f"later{number}"})
    found = table(graph.stats())
    assert found.fragments == found.small_fragments > 16
    assert "fragments" in [finding.code for finding in graph.stats().findings]
    monkeypatch.setattr(versions, "TARGET_ROWS_PER_FRAGMENT", 1)
    assert table(graph.stats()).small_fragments == 0
    assert "fragments" not in [finding.code for finding in graph.stats().findings]


def test_c_mnt_046_many_deleted_rows_lead_to_optimize(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.upkeep.stats.DELETED_ROWS_FEW", 2)
    for code in ("m1", "m2", "m3"):
        graph.mutate(DROP, {"code": code})
    stats = graph.stats()
    assert table(stats).deleted_rows == 3
    assert findings(stats) == [("fragments", "node:Memo", "omnigraph optimize")]
    mend(stats)
    assert open_graph(graph.uri).stats().findings == ()


@pytest.mark.parametrize(
    ("drift", "flags"), [(compacted, "--confirm"), (deleted, "--force --confirm")]
)
def test_c_mnt_046_drift_leads_to_repair(graph: og.Graph, drift, flags: str) -> None:
    for code in ("one", "two"):
        load(graph, code)
    drift(graph, "node:Memo")
    stats = graph.stats()
    assert findings(stats)[0] == ("drift", "node:Memo", f"omnigraph repair {flags}")
    assert stats.findings[0].severity == "problem"
    assert table(stats).lance_head_version > table(stats).published_dataset_version
    mend(stats)
    assert "drift" not in [found.code for found in open_graph(graph.uri).stats().findings]


def test_c_mnt_046_an_interrupted_operation_leads_to_recover(graph: og.Graph) -> None:
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        load(graph, "y")
    reader = open_graph(graph.uri, "read_only")
    stats = reader.stats()
    assert [each.writer_kind for each in stats.pending] == ["Load"]
    # The operation explains why its tables are ahead: that is not told as a drift beside it.
    assert [found.code for found in stats.findings] == ["unsettled"]
    mend(stats)
    after = open_graph(graph.uri).stats()
    assert "unsettled" not in [found.code for found in after.findings]
    assert table(after).rows == 11


def test_c_mnt_046_a_lease_of_a_dead_owner_leads_to_recover_and_a_live_one_to_nothing(
    tmp_path: Path,
) -> None:
    root = tmp_path / "graph.omni"
    seeded(str(root))
    open_graph(root).ensure_indices()
    pause = processes.Pause(tmp_path)
    writer = processes.start("insert", root, f"recovery.sidecar_write={pause.at()}")
    pause.reached()
    reader = open_graph(root, "read_only")
    (holder,) = reader.stats().leases
    assert (holder.scope, holder.is_alive) == ("branch/main", True)
    assert reader.stats().findings == ()
    writer.kill()
    stats = reader.stats()
    assert stats.leases[0].is_alive is False
    assert findings(stats) == [("lease_abandoned", "branch/main", "omnigraph recover")]
    mend(stats)
    assert (reader.stats().leases, reader.stats().findings) == ((), ())
    processes.start("insert", root).finished()
