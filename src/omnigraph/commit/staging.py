"""The tables of a write, and what is staged for each of them before anything is owned.

Staging writes files that no version names yet: whatever is staged can be thrown away, staged again
on a newer version, or taken over by the next attempt at the same write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

from omnigraph.commit.change_set import ChangeSet, TableChange, WrittenRows
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import Line
from omnigraph.commit.sidecar import SidecarTable
from omnigraph.storage import blobs, tables
from omnigraph.storage.datasets import DatasetRef, Handle, StagedTransaction, name_after
from omnigraph.storage.restaging import holds_any, restage_new_rows
from omnigraph.storage.row_places import stage_exchange
from omnigraph.storage.snapshot import TableEntry
from omnigraph.storage.table_upkeep import UpkeepStep, stage_ahead
from omnigraph.storage.written import (
    stage_written_append,
    stage_written_replace,
    stage_written_upsert,
)
from omnigraph.storage.written_upserts import delete_written


@dataclass(slots=True)
class LaterStep:
    """A transaction of upkeep that follows another one of the same table."""

    step: UpkeepStep
    uuid: str
    staged: StagedTransaction | None = None
    """None for a step that can only be staged on the result of those before it."""


@dataclass(slots=True)
class PlannedTable:
    """One table of the write, staged or ready to be staged."""

    entry: TableEntry
    where: DatasetRef
    """The dataset on the ref of the branch that is written."""
    change: TableChange
    uuid: str
    restore_uuid: str
    later: list[LaterStep]
    handle: Handle | None = None
    staged: StagedTransaction | None = None
    """None for a table this branch has never written: its ref does not exist yet."""
    landed: Handle | None = None

    @property
    def is_first_touch(self) -> bool:
        """Whether the branch still shares this table with the one it was forked from."""
        return self.entry.ref != self.where.ref

    def claim(self) -> SidecarTable:
        """What the sidecar says of it."""
        uuids = [self.uuid, *(later.uuid for later in self.later)]
        return SidecarTable.claiming(self.entry, self.where.ref, uuids, self.restore_uuid)


class Staging:
    """The tables of one attempt at a write."""

    def __init__(
        self,
        kernel: Kernel,
        capture: Capture,
        changes: ChangeSet,
        operation_id: str,
        *,
        earlier: Staging | None,
        line: Line,
    ) -> None:
        self._kernel = kernel
        self._capture = capture
        self._operation_id = operation_id
        self._earlier = earlier
        """Of an attempt at the same write that was thrown away. Files it wrote may be of use."""
        self._line = line
        self.tables = [self._plan(change) for _, change in sorted(changes.tables.items())]

    def _plan(self, change: TableChange) -> PlannedTable:
        entry = self._capture.snapshot.table(change.table_key)
        ref = self._capture.branch.where.ref
        return PlannedTable(
            entry,
            DatasetRef(self._kernel.table_uri(entry.location), ref),
            change,
            self._kernel.ids.ulid(),
            self._kernel.ids.ulid(),
            [LaterStep(step, self._kernel.ids.ulid()) for step in change.steps[1:]],
        )

    def stage_all(
        self, tables_at_once: int | None, progress: Callable[[int, int], None] | None
    ) -> None:
        """Stage every table that the branch has already, so many at once; tells the progress."""
        due = [table for table in self.tables if not table.is_first_touch]
        finished = count(1)  # taken from by several threads, each number once

        def stage(table: PlannedTable) -> None:
            self.stage(table)
            if progress is not None:
                progress(next(finished), len(due))

        with self._kernel.at_once(tables_at_once) as side:
            staged = [side.start(partial(stage, table)) for table in due]
        for done in staged:
            done()

    def stage(self, table: PlannedTable) -> None:
        """Stage one table: what workers or an earlier attempt have written, or anew."""
        handle = table.handle
        if handle is None:
            handle = table.handle = self._capture.reader.handle(table.entry.table_key)
        if table.change.written is not None:
            table.staged = self._stage_written(table, handle, table.change.written)
        else:
            table.staged = self._restaged(table, handle)
        if table.staged is None:
            self._stage_anew(table, handle)
        assert table.staged is not None
        name_after(table.staged, self._operation_id)

    def _stage_written(
        self, table: PlannedTable, handle: Handle, written: WrittenRows
    ) -> StagedTransaction:
        """Rows that workers wrote to the ref of this branch, maybe before the ref existed."""
        if table.change.kind == "append":
            return stage_written_append(handle, written.fragments, table.uuid)
        if table.change.kind == "replace":
            return stage_written_replace(handle, written.fragments, table.uuid)
        assert table.change.kind == "upsert"
        updated, removed = list(written.updated), list(written.removed)
        if written.deleted:
            options = self._kernel.root.storage_options()
            updated, removed = delete_written(handle, written.deleted, options)
        return stage_written_upsert(handle, written.fragments, updated, removed, table.uuid)

    def _restaged(self, table: PlannedTable, handle: Handle) -> StagedTransaction | None:
        """What the earlier attempt staged for the same rows, if it still means the same here."""
        earlier = self._earlier.staged_like(table, self._capture) if self._earlier else None
        if earlier is None:
            return None
        assert earlier.handle is not None and earlier.staged is not None
        # Rows to append have been proved to be new by preparing them on this version.
        ids = table.change.ids.combine_chunks() if table.change.kind == "upsert" else None
        return restage_new_rows(earlier.staged, earlier.handle, handle, ids, table.uuid)

    def staged_like(self, table: PlannedTable, capture: Capture) -> PlannedTable | None:
        """The table for which this attempt has staged the same change."""
        for own in self.tables:
            if (
                own.staged is not None
                and own.where == table.where
                and own.change.kind == table.change.kind
                and self._capture.schema_hash == capture.schema_hash
                and own.change.rows.equals(table.change.rows)
            ):
                return own
        return None

    def _stage_anew(self, table: PlannedTable, handle: Handle) -> None:
        rows, uuid = table.change.rows, table.uuid
        match table.change.kind:
            case "append":
                table.staged = tables.stage_append(handle, rows, uuid)
            case "upsert":
                # Rows that are new are staged much faster if that is known, and can be committed
                # on a newer version as they are. Where nobody else writes, it is not worth asking.
                ids = table.change.ids.combine_chunks()
                is_new = self._line.is_crowded and not holds_any(handle, ids)
                stage = tables.stage_append if is_new else blobs.stage_upsert
                table.staged = stage(handle, rows, uuid)
            case "delete":
                table.staged = tables.stage_delete(handle, rows["id"].combine_chunks(), uuid)
            case "replace":
                table.staged = tables.stage_replace(handle, rows, uuid)
            case "exchange":
                assert table.change.exchanged is not None
                gone = table.change.exchanged.positions
                table.staged = stage_exchange(handle, rows, gone, uuid)
            case "upkeep":
                uuids = [uuid, *(later.uuid for later in table.later)]
                table.staged, *ahead = stage_ahead(handle, table.change.steps, uuids)
                for later, staged in zip(table.later, ahead, strict=True):
                    later.staged = staged
