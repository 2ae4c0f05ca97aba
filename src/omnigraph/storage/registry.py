"""The branch registry: rows on main that map a branch's name to its physical ref.

The row is the only authority. The ref of `__manifest` behind it is made before the row and is
unreachable without it, so that a crash in between leaves nothing anyone can see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from omnigraph.errors import AlreadyExists, NotFound, RowLevelCasContention
from omnigraph.storage.datasets import CommitLost, CommitOutcomeUnknown
from omnigraph.storage.manifest import Manifest, ManifestBranch
from omnigraph.storage.manifest_merge import stage_merge
from omnigraph.storage.manifest_rows import (
    BranchRow,
    HeadRow,
    ManifestRow,
    RegistryRow,
    branch_object_id,
)
from omnigraph.storage.publisher import PUBLISHER_RETRY_BUDGET, require_unfenced
from omnigraph.storage.snapshot import ManifestState


def fork_manifest(manifest: Manifest, source: ManifestBranch, name: str, ref: str) -> HeadRow:
    """Make the manifest ref of a new branch at the source's head, with a head row of its own."""
    state = source.refresh()
    manifest.lance.create_ref(source.where, ref, state.version)
    forked = ManifestBranch(manifest.lance, manifest.root_uri, name, ref)
    head = HeadRow(name, state.head.commit_id, 0, state.head.commit_seq)
    handle = forked.handle
    manifest.lance.commit(handle, stage_merge(handle, [head]))
    return head


def register_branch(manifest: Manifest, row: BranchRow, epoch: int) -> None:
    """Publish a new branch, as the owner of main: from here on it exists."""

    def change(state: ManifestState) -> bool:
        known = state.branches.get(row.name)
        if known is not None and known.ref == row.ref:
            return False
        if known is not None:
            raise AlreadyExists(f"branch `{row.name}` already exists")
        return True

    _publish_registry(manifest.main, [row], None, change, epoch)


def unregister_branch(manifest: Manifest, row: BranchRow, epoch: int) -> None:
    """Remove a branch, as the owner of main: from here on it is gone.

    Raises `NotFound` if another one has its name.
    """

    def change(state: ManifestState) -> bool:
        known = state.branches.get(row.name)
        if known is not None and known.ref != row.ref:
            raise NotFound(f"branch `{row.name}` was deleted and created again")
        return known is not None

    _publish_registry(manifest.main, [], row.name, change, epoch)


def _publish_registry(
    main: ManifestBranch,
    rows: list[ManifestRow],
    removed: str | None,
    is_needed: Callable[[ManifestState], bool],
    epoch: int,
) -> None:
    for _ in range(PUBLISHER_RETRY_BUDGET):
        main.refresh()
        handle, state = main.current
        if not is_needed(state):
            return
        require_unfenced(state, epoch)
        # The head row is rewritten: a publish on main and a registry change then contend for one
        # row, and neither can slip under the other unseen, or past a takeover.
        head = replace(state.head, fence_epoch=epoch)
        changed = [*rows, RegistryRow(state.registry_changes + 1), head]
        gone = None if removed is None else branch_object_id(removed)
        transaction = stage_merge(handle, changed, without=gone)
        try:
            landed = main.lance.commit(handle, transaction)
        except (CommitLost, CommitOutcomeUnknown):
            # Either somebody was first, or the next look at the registry shows that we were.
            continue
        following = state.with_rows(landed.version, changed)
        main.adopt(landed, following if removed is None else following.without_branch(removed))
        return
    raise RowLevelCasContention(
        f"{PUBLISHER_RETRY_BUDGET} attempts to change the branch registry lost to other writers",
        hint="try again",
    )
