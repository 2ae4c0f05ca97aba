"""What an open handle keeps, what it notices, and what pruning cannot take away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

from omnigraph.commit.kernel import Kernel
from omnigraph.effects.uri import Root
from omnigraph.errors import HistoricalVersionReclaimed, StorageError
from omnigraph.graph import Graph, init, open_graph
from omnigraph.storage import publisher
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.transactions import DatasetRef
from tests.storage.legacy_graphs import SCHEMA, older_graph


@pytest.fixture
def graph(root: Path) -> Graph:
    return init(root, SCHEMA)


def add(graph: Graph, name: str, branch: str = "main") -> str:
    receipt = graph.mutate(f'query q {{ insert Person {{ name: "{name}" }} }}', branch=branch)
    assert receipt.commit is not None
    return receipt.commit.graph_commit_id


def reader_at(graph: Graph, branch: str, commit_id: str | None = None) -> SnapshotReader:
    kernel = graph._kernel
    state = kernel.manifest.branch(branch).refresh()
    snapshot = state.head_snapshot() if commit_id is None else state.snapshot_at(commit_id)
    return SnapshotReader(kernel.lance, kernel.root.uri, snapshot)


def people(graph: Graph, branch: str = "main", commit_id: str | None = None) -> list[str]:
    return sorted(reader_at(graph, branch, commit_id).ids("node:Person").to_pylist())


# --- snapshots ------------------------------------------------------------------------------------


def test_c_sto_011_a_snapshot_keeps_its_own_data_across_later_writes(graph: Graph) -> None:
    add(graph, "ada")
    held = reader_at(graph, "main")
    untouched = SnapshotReader(graph._kernel.lance, graph._kernel.root.uri, held.snapshot)
    assert held.ids("node:Person").to_pylist() == ["ada"]
    add(graph, "bob")
    graph.mutate('query q { delete Person where name = "ada" }')
    graph.load(data=b'{"type":"Person","data":{"name":"cyd"}}\n', mode="overwrite")
    assert people(graph) == ["cyd"]
    # Both the tables it had opened and those it opens only now.
    assert held.ids("node:Person").to_pylist() == ["ada"]
    assert untouched.ids("node:Person").to_pylist() == ["ada"]


def test_c_sto_012_state_and_lineage_move_together_and_stay_together_after_a_failed_refresh(
    graph: Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = add(graph, "ada")
    reader = open_graph(root, "read_only")
    branch = reader._kernel.manifest.main
    before = (branch.handle, branch.state)
    add(graph, "bob")

    def torn(self: lance.LanceDataset, *_: Any, **__: Any) -> Any:
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(lance.LanceDataset, "scanner", torn)
        with pytest.raises(StorageError, match="connection reset"):
            branch.refresh()
    assert (branch.handle, branch.state) == before
    assert branch.handle.version == branch.state.version
    assert branch.state.head.commit_id == first
    assert branch.state.head_snapshot().commit_id == first
    assert people(reader) == ["ada", "bob"]
    assert branch.handle.version == branch.state.version


def test_c_sto_012_a_failed_first_read_leaves_nothing_half_read(
    graph: Graph, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel.of(Root.parse(root))
    with monkeypatch.context() as patched:
        patched.setattr(ManifestBranch, "_scan", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            kernel.manifest.main.refresh()
    assert kernel.manifest.main.refresh().version == kernel.manifest.main.handle.version


def test_c_sto_013_a_branch_made_anew_at_the_same_version_is_noticed_by_a_warm_handle(
    graph: Graph, root: Path
) -> None:
    graph.create_branch("feature")
    # A new branch starts two versions later: the registry changed twice.
    for name in ("old", "older", "oldest"):
        add(graph, name, "feature")
    warm = [open_graph(root, "read_only"), open_graph(root)]
    old = [handle._kernel.manifest.branch("feature").refresh() for handle in warm]
    assert [people(handle, "feature") for handle in warm] == [["old", "older", "oldest"]] * 2
    graph.delete_branch("feature")
    graph.create_branch("feature")
    add(graph, "new", "feature")
    for handle, before in zip(warm, old, strict=True):
        after = handle._kernel.manifest.branch("feature").refresh()
        assert after.version == before.version
        assert after.ref != before.ref
        assert people(handle, "feature") == ["new"]
    add(warm[1], "also", "feature")
    assert people(graph, "feature") == ["also", "new"]


def test_c_sto_014_a_reclaimed_version_is_told_as_such_and_the_rest_stays_readable(
    graph: Graph, root: Path
) -> None:
    first = add(graph, "ada")
    add(graph, "bob")
    graph.create_branch("feature")
    on_branch = add(graph, "cyd", "feature")
    add(graph, "dan", "feature")
    for branch, commit in (("main", first), ("feature", on_branch)):
        entry = reader_at(graph, branch, commit).snapshot.table("node:Person")
        where = DatasetRef(graph._kernel.table_uri(entry.location), entry.ref)
        lance.dataset(where.address).cleanup_old_versions(versions=[entry.version])
        for handle in (graph, open_graph(root, "read_only")):
            with pytest.raises(HistoricalVersionReclaimed) as told:
                b"".join(handle.export(branch=branch, snapshot=commit))
            assert told.value.code == "historical_version_reclaimed"
            assert f"version {entry.version} " in told.value.message
    assert people(graph) == ["ada", "bob"]
    assert people(graph, "feature") == ["ada", "bob", "cyd", "dan"]


# --- compacting and pruning the manifest ----------------------------------------------------------


@pytest.fixture
def eager_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compact the manifest on nearly every publish, and keep next to nothing of its past."""
    monkeypatch.setenv("OMNIGRAPH_MANIFEST_COMPACT_EVERY", "2")
    monkeypatch.setattr(publisher, "VERSIONS_KEPT", 1)


def manifest_versions(graph: Graph, branch: str = "main") -> list[int]:
    where = graph._kernel.manifest.branch(branch).where
    return [version["version"] for version in lance.dataset(where.address).versions()]


@pytest.mark.usefixtures("eager_upkeep")
def test_c_sto_047_every_commit_reads_the_same_after_the_manifest_was_pruned(
    graph: Graph, root: Path
) -> None:
    expected: dict[str, dict[str, list[str]]] = {"main": {}, "feature": {}, "late": {}}

    def note(branch: str, commit: str) -> None:
        expected[branch][commit] = people(graph, branch)

    for at in range(4):
        note("main", add(graph, f"m{at}"))
    graph.create_branch("feature")
    expected["feature"] = dict(expected["main"])
    for at in range(6):
        note("feature", add(graph, f"f{at}", "feature"))
        note("main", add(graph, f"n{at}"))
    graph.create_branch("late", "feature")
    expected["late"] = dict(expected["feature"])
    for at in range(3):
        note("late", add(graph, f"l{at}", "late"))
        note("feature", add(graph, f"g{at}", "feature"))
    graph.mutate('query q { delete Person where name = "m0" }')
    for handle in (graph, open_graph(root), open_graph(root, "read_only")):
        for branch, commits in expected.items():
            for commit, seen in commits.items():
                assert people(handle, branch, commit) == seen
    # It was really pruned: most versions that commits were published as are gone.
    published = {commit.graph_manifest_version for commit in graph.list_commits()}
    assert len(published & set(manifest_versions(graph))) < len(published) / 2
    assert len(manifest_versions(graph, "feature")) < 6
    for branch in expected:
        where = graph._kernel.manifest.branch(branch).where
        assert len(lance.dataset(where.address).get_fragments()) <= 3


@pytest.mark.usefixtures("eager_upkeep")
def test_c_sto_047_a_handle_left_behind_by_pruning_catches_up(graph: Graph, root: Path) -> None:
    graph.create_branch("feature")
    first = add(graph, "p0")
    stale = open_graph(root, "read_only")
    assert people(stale) == ["p0"]
    for at in range(1, 6):
        add(graph, f"p{at}")
    assert stale._kernel.manifest.main.state.version not in manifest_versions(graph)
    assert people(stale) == [f"p{at}" for at in range(6)]
    assert people(stale, "main", first) == ["p0"]
    assert stale.list_branches() == ["feature", "main"]


@pytest.mark.usefixtures("eager_upkeep")
def test_c_sto_047_a_migrated_graph_keeps_its_history_when_its_manifest_is_pruned(
    root: Path,
) -> None:
    older = older_graph(root, 3)
    graph = open_graph(root)
    for branch in ("main", "feature"):
        for at in range(4):
            add(graph, f"x{at}", branch)
    for branch in ("main", "feature", "review/1"):
        for commit in older.lines[branch]:
            found = people(open_graph(root, "read_only"), branch, commit.commit_id)
            assert found == commit.ids["node:Person"]
