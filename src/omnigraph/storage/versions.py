"""Versions of datasets: their size, their history, and removing old ones with their files.

Lance keeps the newest version, and versions from which listed refs were forked. It does not know
which other versions are needed, so the versions to remove are given one by one. Files that no
version lists may belong to an unfinished write, and are kept for a week.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from lance import LanceDataset, LanceOperation

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.model.records import dataclass
from omnigraph.storage.failures import count_lance, lance_errors, version_named
from omnigraph.storage.fragments import fragments_of
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import Manifest, ManifestState
from omnigraph.storage.table_upkeep import TARGET_ROWS_PER_FRAGMENT
from omnigraph.storage.transactions import DatasetRef, latest_version

_ALL_VERSIONS = 2**31
"""More versions than any dataset has."""


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """An existing version."""

    number: int
    created_at: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """The files and bytes that were removed, or would be."""

    bytes: int = 0
    versions: int = 0


def stored_versions(handle: LanceDataset) -> list[StoredVersion]:
    """All versions of a handle's ref, newest first."""
    with lance_errors(handle, "list_versions"):
        found: list[dict[str, Any]] = handle.versions()  # type: ignore[assignment]
    versions = [
        # Lance returns times in the local time zone, without a zone.
        StoredVersion(each["version"], each["timestamp"].astimezone().timestamp())
        for each in found
    ]
    return sorted(versions, key=lambda version: version.number, reverse=True)


def reclaimable(handle: LanceDataset, versions: Sequence[int]) -> Reclaimed:
    """The result `reclaim` would have; removes nothing."""
    if not versions:
        return Reclaimed()
    with lance_errors(handle, "explain_cleanup"):
        explained = handle.explain_cleanup_old_versions(
            versions=list(versions), error_if_tagged_old_versions=False
        )
    return Reclaimed(explained.stats.bytes_removed, explained.stats.old_versions)


def reclaim(handle: LanceDataset, versions: Sequence[int]) -> Reclaimed:
    """Remove versions of a dataset, which is open at its newest, and unreferenced files.

    May be interrupted and repeated. Raises `StorageError` if the store did not remove files.
    """
    hit(Failpoint.CLEANUP_TABLE_GC)
    with lance_errors(handle, "cleanup"):
        if versions:
            stats = handle.cleanup_old_versions(
                versions=list(versions), error_if_tagged_old_versions=False
            )
        else:
            stats = handle.cleanup_old_versions(
                retain_versions=_ALL_VERSIONS, error_if_tagged_old_versions=False
            )
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
    """The current state of every live branch, main first.

    Raises `StorageError` if one cannot be resolved, since the versions it needs are then unknown.
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


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of one version."""

    fragments: int
    small_fragments: int
    """Fragments that a compaction would rewrite."""
    deleted_rows: int
    bytes: int


def size_of(handle: LanceDataset) -> TableSize:
    """The size of a handle's version."""
    with lance_errors(handle):
        fragments = [fragment.metadata for fragment in handle.get_fragments()]
    return TableSize(
        len(fragments),
        sum(fragment.num_rows < TARGET_ROWS_PER_FRAGMENT for fragment in fragments),
        sum(fragment.num_deletions for fragment in fragments),
        sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.files),
    )


def version_numbers(store: ObjectStore, where: DatasetRef) -> list[int]:
    """The existing versions of a dataset: one listing, without reading them."""
    folder = f"{where.address}/_versions".removeprefix(f"{store.root.uri}/")
    names = (PurePosixPath(name) for name in store.list(folder))
    return sorted(
        version_named(name.stem)
        for name in names
        if name.suffix == ".manifest" and name.stem.isdecimal()
    )


def version_count(store: ObjectStore, where: DatasetRef) -> int:
    """The number of existing versions."""
    return len(version_numbers(store, where))


RESERVATION = "ReserveFragments"
"""The operation that reserves fragment ids for a rewrite; Lance does not expose its name."""

PRESERVING = frozenset({RESERVATION, "Rewrite"})
"""Operations that do not change any row."""

_UNREADABLE = (OSError, ValueError, TypeError, RuntimeError)
"""Errors of reading a transaction; a type error if Lance cannot convert its operation to Python."""


@dataclass(frozen=True, slots=True)
class TableOperation:
    """The transaction that made one version."""

    version: int
    name: str | None
    """The operation; None if it cannot be read."""
    uuid: str | None


def operations_since(handle: LanceDataset, version: int) -> list[TableOperation]:
    """The operations after ``version`` up to the newest, oldest first."""
    newest = latest_version(handle)
    return [_operation(handle, later) for later in range(version + 1, newest + 1)]


def _operation(handle: LanceDataset, version: int) -> TableOperation:
    count_lance("read_transaction", handle.uri)
    try:
        transaction = handle.read_transaction(version)
        if transaction is None:
            return TableOperation(version, None, None)
        operation = transaction.operation
        name: str | None = type(operation).__name__
        if type(operation) is LanceOperation.BaseOperation:
            # Its operation has no name in Python: a reservation if it changed nothing.
            name = RESERVATION if _is_same(handle, version - 1, version) else None
        return TableOperation(version, name, str(transaction.uuid))
    except _UNREADABLE:
        return TableOperation(version, None, None)


def _is_same(handle: LanceDataset, before: int, after: int) -> bool:
    old, new = handle.checkout_version(before), handle.checkout_version(after)
    return bool(old.schema.equals(new.schema)) and fragments_of(old) == fragments_of(new)


def has_columns_of(handle: LanceDataset, version: int) -> bool:
    """Whether a table still has the columns of ``version``; True if that version was removed."""
    try:
        before = handle.checkout_version(version)
    except _UNREADABLE:
        return True
    return _columns(before) == _columns(handle)


def _columns(handle: LanceDataset) -> list[tuple[str, object]]:
    return [(field.name, field.type) for field in handle.schema]
