"""The tables of a write, and what is staged for each of them before anything is owned.

Staging writes files that no version names yet: whatever is staged can be thrown away, staged again
on a newer version, or taken over by the next attempt at the same write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from omnigraph.commit.change_set import ChangeSet, TableChange, WrittenRows
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import WriterQueue
from omnigraph.commit.plan import TableEffects
from omnigraph.effects.requests import concurrently
from omnigraph.storage import tables
from omnigraph.storage.datasets import Handle, StagedTransaction
from omnigraph.storage.row_places import stage_exchange
from omnigraph.storage.snapshot import TableEntry
from omnigraph.storage.table_upkeep import stage_ahead
from omnigraph.storage.tables import holds_any, restage_new_rows
from omnigraph.storage.written import (
    delete_written,
    stage_written_append,
    stage_written_replace,
    stage_written_upsert,
)


@dataclass(slots=True)
class StagedTable:
    """One table of a write, staged or ready to be staged; the `TableExecution` of its effects."""

    effects: TableEffects
    entry: TableEntry
    change: TableChange
    stage: Callable[[StagedTable], None]
    handle: Handle | None = None
    staged: list[StagedTransaction | None] = field(default_factory=list)
    """By number. None for a step of upkeep that can only be staged on the result of those before;
    nothing at all for a table without a fork on this branch yet."""
    landed: Handle | None = None

    @property
    def is_first_touch(self) -> bool:
        """Whether the branch still shares this table with the one it was forked from."""
        return self.effects.first_touch is not None

    def transaction(self, at: int, handle: Handle) -> StagedTransaction:
        """The planned transaction number ``at``."""
        if not self.staged:
            self.stage(self)
        uuid = self.effects.transactions[at].uuid
        return self.staged[at] or self.change.steps[at].stage(handle, uuid)


class TableStaging:
    """The tables of one attempt at a write."""

    def __init__(
        self,
        kernel: Kernel,
        capture: Capture,
        changes: ChangeSet,
        *,
        earlier: TableStaging | None,
        queue: WriterQueue,
    ) -> None:
        self._kernel = kernel
        self._capture = capture
        self._earlier = earlier
        """Of an attempt at the same write that lost. Data files it wrote may be used again."""
        self._queue = queue
        self.tables = [self._plan(change) for _, change in sorted(changes.tables.items())]

    def _plan(self, change: TableChange) -> StagedTable:
        entry = self._capture.snapshot.table(change.table_key)
        uuids = [self._kernel.ids.ulid() for _ in range(max(1, len(change.steps)))]
        effects = TableEffects.of(
            entry, self._capture.branch.where.ref, uuids, self._kernel.ids.ulid()
        )
        return StagedTable(effects, entry, change, self.stage)

    def stage_all(
        self, tables_at_once: int | None, progress: Callable[[int, int], None] | None
    ) -> None:
        """Stage every table that the branch has already, so many at once; tells the progress."""
        due = [table for table in self.tables if not table.is_first_touch]
        finished = count(1)  # taken from by several threads, each number once

        def stage(table: StagedTable) -> None:
            self.stage(table)
            if progress is not None:
                progress(next(finished), len(due))

        concurrently(
            *(partial(stage, table) for table in due),
            threads=self._kernel.is_remote or tables_at_once is not None,
            work_max=tables_at_once,
        )

    def stage(self, table: StagedTable) -> None:
        """Stage one table: what workers or an earlier attempt have written, or anew."""
        handle = table.handle
        if handle is None:
            handle = table.handle = self._capture.reader.handle(table.entry.table_key)
        if table.change.written is not None:
            table.staged = [self._stage_written(table, handle, table.change.written)]
        elif (restaged := self._restaged(table, handle)) is not None:
            table.staged = [restaged]
        else:
            table.staged = self._stage_anew(table, handle)

    def _stage_written(
        self, table: StagedTable, handle: Handle, written: WrittenRows
    ) -> StagedTransaction:
        """Rows that workers wrote to the ref of this branch, maybe before the ref existed."""
        uuid = table.effects.transactions[0].uuid
        if table.change.kind == "append":
            return stage_written_append(handle, written.fragments, uuid)
        if table.change.kind == "replace":
            return stage_written_replace(handle, written.fragments, uuid)
        assert table.change.kind == "upsert"
        updated, removed = list(written.updated), list(written.removed)
        if written.deleted:
            options = self._kernel.root.storage_options()
            updated, removed = delete_written(handle, written.deleted, options)
        return stage_written_upsert(handle, written.fragments, updated, removed, uuid)

    def _restaged(self, table: StagedTable, handle: Handle) -> StagedTransaction | None:
        """What the earlier attempt staged for the same rows, if it still means the same here."""
        earlier = self._earlier.staged_like(table, self._capture) if self._earlier else None
        if earlier is None:
            return None
        assert earlier.handle is not None and earlier.staged[0] is not None
        # Rows to append have been proved to be new by preparing them on this version.
        ids = table.change.ids.combine_chunks() if table.change.kind == "upsert" else None
        uuid = table.effects.transactions[0].uuid
        return restage_new_rows(earlier.staged[0], earlier.handle, handle, ids, uuid)

    def staged_like(self, table: StagedTable, capture: Capture) -> StagedTable | None:
        """The table for which this attempt has staged the same change."""
        for own in self.tables:
            if (
                own.staged
                and own.effects.location == table.effects.location
                and own.effects.ref == table.effects.ref
                and own.change.kind == table.change.kind
                and self._capture.schema_hash == capture.schema_hash
                and own.change.rows.equals(table.change.rows)
            ):
                return own
        return None

    def _stage_anew(self, table: StagedTable, handle: Handle) -> list[StagedTransaction | None]:
        rows, uuids = table.change.rows, [each.uuid for each in table.effects.transactions]
        match table.change.kind:
            case "append":
                return [tables.stage_append(handle, rows, uuids[0])]
            case "upsert":
                # Rows that are new are staged much faster if that is known, and can be committed
                # on a newer version as they are. Without other writers it is not worth asking.
                ids = table.change.ids.combine_chunks()
                is_new = self._queue.is_crowded and not holds_any(handle, ids)
                stage = tables.stage_append if is_new else tables.stage_upsert
                return [stage(handle, rows, uuids[0])]
            case "delete":
                return [tables.stage_delete(handle, rows["id"].combine_chunks(), uuids[0])]
            case "replace":
                return [tables.stage_replace(handle, rows, uuids[0])]
            case "exchange":
                assert table.change.exchanged is not None
                gone = table.change.exchanged.positions
                return [stage_exchange(handle, rows, gone, uuids[0])]
            case "upkeep":
                return list(stage_ahead(handle, table.change.steps, uuids))
