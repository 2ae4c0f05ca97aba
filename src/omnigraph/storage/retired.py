"""Datasets that graphs of an older shape have, and that nothing reads once they are migrated."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import StorageError
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.layout import MAIN
from omnigraph.storage.legacy import COMMIT_ACTORS, COMMITS, AcceptedTables, OlderGraph
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.snapshot import ManifestState

RETIRED = ("_graph_runs.lance", "_graph_run_actors.lance", COMMITS, COMMIT_ACTORS)
"""In the order they go: the authors of commits last, which the commits are verified with."""


def retired_datasets(store: ObjectStore) -> list[str]:
    """Those that a graph still has."""
    return [name for name in RETIRED if store.exists(name)]


def require_folded(
    lance: LanceStore,
    root_uri: str,
    accepted: AcceptedTables,
    states: Mapping[str, ManifestState],
) -> None:
    """Raise `StorageError` unless the manifests tell every commit that the old datasets tell."""
    older = OlderGraph(lance, root_uri, accepted)
    for name, state in states.items():
        for recorded in older.recorded_commits(MAIN if state.ref is None else state.ref):
            known = state.commits.get(recorded.commit_id)
            if known is None or _told(known) != _told(recorded):
                raise StorageError(
                    f"commit {recorded.commit_id} of {name} is not in the manifest as it was "
                    "recorded before the migration",
                    hint="the datasets it was recorded in are kept; compare them by hand",
                )


def remove_retired(store: ObjectStore, name: str) -> None:
    """Remove one; what is left of an interrupted removal cannot be opened, and goes next time."""
    store.delete_prefix(f"{name}/_versions")
    store.delete_prefix(name)


def _told(commit: CommitRow) -> tuple[object, ...]:
    return (
        commit.parent_commit_id,
        commit.merged_parent_commit_id,
        commit.actor_id,
        commit.created_at,
    )
