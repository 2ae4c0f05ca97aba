"""Looking at older graphs before and after they are migrated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.schema.contract import accepted_tables
from omnigraph.effects.uri import Root
from omnigraph.graph import Graph
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import STAMP_KEY
from omnigraph.storage.reader import SnapshotReader
from tests.storage import legacy_graphs
from tests.storage.legacy_graphs import ShownCommit

STAMPS = [1, 2, 3]
RUNS = ["__run__01", "__run__02", "__run__03"]
BRANCHES = ["feature", "main", "review/1"]


def manifest_of(graph: legacy_graphs.OlderGraph, branch: str = "main") -> lance.LanceDataset:
    return lance.dataset(graph.uri("__manifest", branch))


def stamp_of(graph: legacy_graphs.OlderGraph, branch: str = "main") -> bytes | None:
    metadata: dict[bytes, bytes] = manifest_of(graph, branch).schema.metadata or {}
    return metadata.get(STAMP_KEY)


def set_stamp(graph: legacy_graphs.OlderGraph, stamp: str, branch: str = "main") -> None:
    manifest_of(graph, branch).update_schema_metadata({STAMP_KEY.decode(): stamp})


def rows_of(graph: legacy_graphs.OlderGraph, branch: str = "main") -> dict[str, dict[str, Any]]:
    """The stored rows of a manifest by key; a key that is there twice fails."""
    rows = manifest_of(graph, branch).to_table().to_pylist()
    by_key = {row["object_id"]: row for row in rows}
    assert len(by_key) == len(rows), "a manifest row is there twice"
    return by_key


def ids_at(graph: Graph, branch: str, commit_id: str) -> dict[str, list[str]]:
    """The entities of a commit, by type key, also of types the schema does not know any more."""
    kernel = graph._kernel
    snapshot = kernel.manifest.branch(branch).refresh().snapshot_at(commit_id)
    reader = SnapshotReader(kernel.lance, kernel.root.uri, snapshot)
    return {key: sorted(reader.ids(key).to_pylist()) for key in snapshot.tables}


def shown(graph: Graph, branch: str) -> list[ShownCommit]:
    """The history of a branch as users see it, oldest first."""
    return [
        ShownCommit(
            commit.graph_commit_id,
            commit.parent_commit_id,
            commit.merged_parent_commit_id,
            commit.actor_id,
            commit.created_at,
            ids_at(graph, branch, commit.graph_commit_id),
        )
        for commit in reversed(graph.list_commits(branch))
    ]


def state_of(graph: Graph, branch: str = "main") -> ManifestState:
    return graph._kernel.manifest.branch(branch).refresh()


def legacy_accepted(root: Path) -> Any:
    """The tables of the schema that a graph accepted."""
    return accepted_tables(Kernel.of(Root.parse(root)).accepted_schema())
