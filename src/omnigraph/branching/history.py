"""Finding commits: which branch knows one, and what it showed."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from omnigraph.branching.branches import list_branches
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import NotFound
from omnigraph.model.ids import is_ulid
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import CommitRow
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


def commit_of(kernel: Kernel, name: str) -> tuple[ManifestState, CommitRow]:
    """The head of a branch, or a commit of any branch, and a state that has it.

    A branch is meant where a name is both. Raises `NotFound`.
    """
    if is_ulid(name.upper()) and name not in list_branches(kernel):
        state = state_with(kernel, name.upper())
        return state, state.commits[name.upper()]
    state = kernel.manifest.refreshed(name).state
    return state, state.commits[state.head.commit_id]


def first_commit(state: ManifestState) -> CommitRow:
    """Where the history of a graph begins."""
    return min(state.commits.values(), key=attrgetter("commit_seq"))


def first_parents(state: ManifestState, commit_id: str) -> Iterator[CommitRow]:
    """A commit and those it follows on its line, newest first."""
    commit = state.commits.get(commit_id)
    while commit is not None:
        yield commit
        commit = state.commits.get(commit.parent_commit_id or "")


def reader_of(kernel: Kernel, snapshot: Snapshot) -> SnapshotReader:
    """A reader of a snapshot's tables."""
    return SnapshotReader(kernel.lance, kernel.root.uri, snapshot)
