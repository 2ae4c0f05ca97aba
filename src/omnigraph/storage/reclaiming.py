"""Removing old versions of datasets, and the files that only they use.

Lance keeps the newest version, and what refs were forked from as long as the refs are listed. Which
other versions are needed it cannot know: they are named one by one. Files that no version lists may
belong to a write that is on its way, and stay for a week.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lance import LanceDataset

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.io_counters import count
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.storage.datasets import lance_failure
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import Manifest
from omnigraph.storage.snapshot import ManifestState

_ALL_VERSIONS = 2**31
"""More than any dataset has."""


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version that is still there."""

    number: int
    created_at: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What was removed, or would be."""

    bytes: int = 0
    versions: int = 0


def stored_versions(handle: LanceDataset) -> list[StoredVersion]:
    """All versions of the ref a handle belongs to, newest first."""
    count("lance", "list_versions", handle.uri)
    try:
        found: list[dict[str, Any]] = handle.versions()  # type: ignore[assignment]
    except (OSError, ValueError) as error:
        raise lance_failure(handle, error) from error
    versions = [
        # Lance gives times in the zone of this machine, without saying so.
        StoredVersion(each["version"], each["timestamp"].astimezone().timestamp())
        for each in found
    ]
    return sorted(versions, key=lambda version: version.number, reverse=True)


def reclaimable(handle: LanceDataset, versions: Sequence[int]) -> Reclaimed:
    """What `reclaim` would remove."""
    if not versions:
        return Reclaimed()
    count("lance", "explain_cleanup", handle.uri)
    try:
        explained = handle.explain_cleanup_old_versions(
            versions=list(versions), error_if_tagged_old_versions=False
        )
    except (OSError, ValueError) as error:
        raise lance_failure(handle, error) from error
    return Reclaimed(explained.stats.bytes_removed, explained.stats.old_versions)


def reclaim(handle: LanceDataset, versions: Sequence[int]) -> Reclaimed:
    """Remove versions of a dataset, which is open at its newest, and files nobody refers to.

    It can be interrupted at any point and repeated. Raises `StorageError` if the store kept files
    that should have gone.
    """
    hit(Failpoint.CLEANUP_TABLE_GC)
    count("lance", "cleanup", handle.uri)
    try:
        if versions:
            stats = handle.cleanup_old_versions(
                versions=list(versions), error_if_tagged_old_versions=False
            )
        else:
            stats = handle.cleanup_old_versions(
                retain_versions=_ALL_VERSIONS, error_if_tagged_old_versions=False
            )
    except (OSError, ValueError) as error:
        raise lance_failure(handle, error) from error
    if stats.failed_deletes:
        raise StorageError(
            f"{stats.failed_deletes} files of {handle.uri} could not be removed",
            hint="run cleanup again",
        )
    return Reclaimed(stats.bytes_removed, stats.old_versions)


def holds_unlisted_files(store: ObjectStore, handle: LanceDataset) -> bool:
    """Whether a ref has data files that its newest version does not list."""
    listed = {file.path for each in handle.get_fragments() for file in each.data_files()}
    folder = f"{handle.uri}/data".removeprefix(f"{store.root.uri}/")
    found = {name.removeprefix(f"{folder}/") for name in store.list(folder)}
    return bool(found - listed)


def live_states(manifest: Manifest) -> dict[str, ManifestState]:
    """Every live branch as it is now, main first.

    Raises `StorageError` if one of them cannot be resolved: nobody knows then what it needs.
    """
    main = manifest.main.refresh()
    states = {MAIN: main}
    for name in sorted(main.branches.keys() - {SCHEMA_APPLY_LOCK}):
        try:
            hit(Failpoint.CLEANUP_RESOLVE_BRANCH_SNAPSHOT)
            state = manifest.refreshed(name).state
            state.head_snapshot()
        except (OmnigraphError, OSError, ValueError) as error:
            reason = error.message if isinstance(error, OmnigraphError) else str(error)
            raise StorageError(
                f"it cannot be told what branch `{name}` needs: {reason}",
                hint="nothing was removed; repair the branch, or delete it, and run cleanup again",
            ) from error
        states[name] = state
    return states
