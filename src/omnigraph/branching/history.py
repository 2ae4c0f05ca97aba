"""Finding commits: which branch knows one, and what it showed."""

from __future__ import annotations

from omnigraph.branching.branches import list_branches
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import NotFound
from omnigraph.model.ids import is_ulid
from omnigraph.storage.layout import MAIN
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import ManifestState, Snapshot


def state_with(kernel: Kernel, commit_id: str) -> ManifestState:
    """The newest state of a branch that has a commit, main if it has it; raises `NotFound`."""
    main = kernel.manifest.refreshed(MAIN).state
    if commit_id in main.commits:
        return main
    for name in list_branches(kernel):
        state = kernel.manifest.refreshed(name).state
        if commit_id in state.commits:
            return state
    raise NotFound(
        f"there is no commit {commit_id}", hint="list commits with `omnigraph commit list`"
    )


def snapshot_of(kernel: Kernel, name: str) -> Snapshot:
    """The head of a branch, or a commit of any branch; raises `NotFound`.

    A branch is meant where a name is both.
    """
    if is_ulid(name.upper()) and name not in list_branches(kernel):
        commit_id = name.upper()
        return state_with(kernel, commit_id).snapshot_at(commit_id)
    return kernel.manifest.refreshed(name).state.head_snapshot()


def reader_of(kernel: Kernel, snapshot: Snapshot) -> SnapshotReader:
    """A reader of a snapshot's tables."""
    return SnapshotReader(kernel.lance, kernel.root.uri, snapshot)
