"""Migrating an older graph to the current internal schema, in place.

| Step | Effect |
| --- | --- |
| 1 → 2 | `object_id` becomes the unenforced primary key of `__manifest` |
| 2 → 3 | the refs of abandoned runs (`__run__*`) are removed |
| 3 → 4 | rows get identities and positions, lineage is folded into them, branches are registered |

Every step is idempotent: it reads the current state and adds what is missing. The stamp of main is
written last: while it is 3 there may be work left, and when it is 4 the migration is complete. If
two processes migrate concurrently, the one that loses a commit reads again and continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.effects.clock import IdMint
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import RowLevelCasContention, StorageError, UnsupportedStorageVersion
from omnigraph.model.ids import INTERNAL_SCHEMA_VERSION
from omnigraph.model.records import dataclass
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.failures import count_lance
from omnigraph.storage.layout import MAIN, MANIFEST
from omnigraph.storage.legacy import COMMIT_ACTORS, COMMITS, RUN_PREFIX, AcceptedTables, OlderGraph
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import (
    SCHEMA,
    STAMP_KEY,
    BranchRow,
    CommitRow,
    ManifestRow,
    encode_rows,
    is_current,
    read_stamp,
    require_unmoved,
)
from omnigraph.storage.transactions import (
    CommitLost,
    CommitNotOwned,
    CommitOutcomeUnknown,
    DatasetRef,
)

KEY_COLUMN = "object_id"
_KEY_METADATA = "lance-schema:unenforced-primary-key"
_ATTEMPTS_MAX = 10
"""More than a migration has commits, so losing all attempts has another cause than concurrency."""

_Stage: TypeAlias = Callable[[LanceDataset], Transaction | None]
"""Computes a change of the given manifest; None if there is nothing left to change."""


@dataclass(frozen=True, slots=True)
class Migration:
    """Migrates one graph; the caller excludes all other writers."""

    lance: LanceStore
    store: ObjectStore
    accepted: AcceptedTables
    ids: IdMint

    @property
    def main(self) -> DatasetRef:
        """The manifest of main."""
        return DatasetRef(f"{self.lance.root.uri}/{MANIFEST}")

    def run(self) -> None:
        """Run every step that is due, first on main and then on every branch."""
        self._commit(self.main, self._annotate_key)
        self._sweep_runs()
        self._fold_all()

    def check(self) -> None:
        """Raise `RootMoved` before writing anything: refs of a moved graph have old addresses."""
        branches = [name for name in self.branches() if name != MAIN]
        require_unmoved(self._older().recorded_roots(branches), self.lance.root)

    def branches(self) -> list[str]:
        """The branches after the migration, main included."""
        stamp = read_stamp(self.lance.open(self.main))
        refs = self._older().forks
        return sorted([MAIN, *(name for name in refs if stamp > 2 or not is_run(name))])

    def _older(self) -> OlderGraph:
        return OlderGraph(self.lance, self.lance.root.uri, self.accepted)

    # --- 1 → 2 --------------------------------------------------------------------------------

    def _annotate_key(self, handle: LanceDataset) -> Transaction | None:
        if read_stamp(handle) >= 2:
            return None
        if require_key(handle):
            return self._metadata(handle, 2, {})
        field_id = next(f.id() for f in handle.lance_schema.fields() if f.name() == KEY_COLUMN)
        return self._metadata(handle, 2, {field_id: _update_map(_KEY_METADATA, "true")})

    # --- 2 → 3 --------------------------------------------------------------------------------

    def _sweep_runs(self) -> None:
        if read_stamp(self.lance.open(self.main)) >= 3:
            return
        runs = [name for name in self.lance.refs(self.main) if is_run(name)]
        # Lance refuses to remove a ref that others were forked from, so repeat: youngest first.
        while removed := [name for name in runs if self._remove_ref(name)]:
            runs = [name for name in runs if name not in removed]
        for name in runs:
            # A branch was forked from the run. Removing only the entry hides the ref and keeps the
            # files that the branch shares.
            self.store.delete(f"{MANIFEST}/_refs/branches/{quote(name, safe='')}.json")
        self._stamp(self.main, 3)

    def _remove_ref(self, name: str) -> bool:
        try:
            self.lance.delete_ref(self.main.on(name))
        except StorageError:
            return False
        return True

    # --- 3 → 4 --------------------------------------------------------------------------------

    def _fold_all(self) -> None:
        older = self._older()
        registered: list[BranchRow] = []

        def fold_main(handle: LanceDataset) -> Transaction | None:
            registered.clear()
            if is_current(handle):
                # Another process has completed the migration, on all branches.
                return None
            require_key(handle)
            rows = older.rows(handle, MAIN)
            registered.extend(row for row in rows if isinstance(row, BranchRow))
            return self._rewrite(handle, rows, read_stamp(handle))

        self._commit(self.main, fold_main)
        for branch in registered:

            def fold_branch(handle: LanceDataset, branch: BranchRow = branch) -> Transaction | None:
                if is_current(handle):
                    return None
                require_key(handle)
                rows = older.rows(handle, branch.name)
                return self._rewrite(handle, rows, INTERNAL_SCHEMA_VERSION)

            self._commit(self.main.on(branch.ref), fold_branch)
        self._stamp(self.main, INTERNAL_SCHEMA_VERSION)

    def _rewrite(
        self, handle: LanceDataset, rows: list[ManifestRow], stamp: int
    ) -> Transaction | None:
        """Replace the rows of a manifest, its columns and its stamp in one transaction."""
        table = encode_rows(rows)
        is_stamped = read_stamp(handle) == stamp
        if is_stamped and handle.schema.names == SCHEMA.names and _same(handle, table):
            return None
        schema = SCHEMA.with_metadata({STAMP_KEY: str(stamp).encode()})
        count_lance("stage", handle.uri)
        # In the manifest's present file format: a dataset cannot mix formats.
        fragments = write_fragments(table.cast(schema), handle, mode="overwrite")
        operation = LanceOperation.Overwrite(schema, fragments)
        return Transaction(handle.version, operation, uuid=self.ids.ulid())

    # --- committing ---------------------------------------------------------------------------

    def _stamp(self, where: DatasetRef, stamp: int) -> None:
        def stage(handle: LanceDataset) -> Transaction | None:
            return None if read_stamp(handle) >= stamp else self._metadata(handle, stamp, {})

        self._commit(where, stage)

    def _metadata(
        self, handle: LanceDataset, stamp: int, fields: dict[int, LanceOperation.UpdateMap]
    ) -> Transaction:
        operation = LanceOperation.UpdateConfig(
            schema_metadata_updates=_update_map(STAMP_KEY.decode(), str(stamp)),
            field_metadata_updates=fields or None,
        )
        return Transaction(handle.version, operation, uuid=self.ids.ulid())

    def _commit(self, where: DatasetRef, stage: _Stage) -> None:
        """Stage on the newest version and commit; after losing a commit, stage again."""
        for _ in range(_ATTEMPTS_MAX):
            handle = self.lance.open(where)
            transaction = stage(handle)
            if transaction is None:
                return
            try:
                self.lance.commit(handle, transaction)
            except CommitLost as lost:
                if not lost.details.get("conflict"):
                    raise
            except (CommitNotOwned, CommitOutcomeUnknown):
                # The next read of the manifest shows whether it landed.
                continue
            else:
                return
        raise RowLevelCasContention(
            f"{_ATTEMPTS_MAX} attempts to migrate {where.address} lost to other writers",
            hint="let no older version of Omnigraph write to this graph, and open it again",
        )


def is_run(ref: str) -> bool:
    """Whether a ref of a graph before schema 3 belongs to an abandoned run."""
    return ref.startswith(RUN_PREFIX)


def require_key(handle: LanceDataset) -> bool:
    """Whether `object_id` is the manifest's key; raises an error for another key."""
    keyed = [
        field.name
        for field in handle.schema
        if (field.metadata or {}).get(_KEY_METADATA.encode()) is not None
    ]
    if set(keyed) - {KEY_COLUMN}:
        raise UnsupportedStorageVersion(
            f"the manifest is keyed on {', '.join(keyed)} instead of {KEY_COLUMN}",
            hint="restore the graph from a copy, or export it with the version that wrote it",
            details={"key": keyed, "expected": [KEY_COLUMN]},
        )
    return bool(keyed)


def _same(handle: LanceDataset, table: Any) -> bool:
    """Whether a manifest has exactly these rows, in any order."""
    count_lance("scan", handle.uri)
    stored = handle.to_table().to_pylist()
    return len(stored) == table.num_rows and _by_key(stored) == _by_key(table.to_pylist())


def _by_key(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {record[KEY_COLUMN]: record for record in records}


def _update_map(key: str, value: str) -> LanceOperation.UpdateMap:
    return LanceOperation.UpdateMap({key: value})


# --- retired datasets: a migration keeps them, cleanup removes them -------------------------------

RETIRED = ("_graph_runs.lance", "_graph_run_actors.lance", COMMITS, COMMIT_ACTORS)
"""In the order of removal: authors last, since verifying commits needs them."""


def retired_datasets(store: ObjectStore) -> list[str]:
    """The retired datasets that a graph still has."""
    return [name for name in RETIRED if store.exists(name)]


def require_folded(
    lance: LanceStore, root_uri: str, accepted: AcceptedTables, states: Mapping[str, ManifestState]
) -> None:
    """Raise `StorageError` unless the manifests have every commit of the retired datasets."""
    older = OlderGraph(lance, root_uri, accepted)
    for name, state in states.items():
        for recorded in older.recorded_commits(MAIN if state.ref is None else state.ref):
            known = state.commits.get(recorded.commit_id)
            if known is None or _lineage(known) != _lineage(recorded):
                raise StorageError(
                    f"commit {recorded.commit_id} of {name} is not in the manifest as it was "
                    "recorded before the migration",
                    hint="the datasets it was recorded in are kept; compare them by hand",
                )


def remove_retired(store: ObjectStore, name: str) -> None:
    """Remove a retired dataset; after an interruption the next call removes the rest."""
    store.delete_prefix(f"{name}/_versions")
    store.delete_prefix(name)


def _lineage(commit: CommitRow) -> tuple[object, ...]:
    return (
        commit.parent_commit_id,
        commit.merged_parent_commit_id,
        commit.actor_id,
        commit.created_at,
    )
