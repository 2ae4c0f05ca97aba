"""Reading an older snapshot with the types of today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.errors import HistoricalVersionReclaimed, NotFound
from omnigraph.model.arrow import BLOB_STORAGE, property_id
from omnigraph.model.values import BlobUri
from omnigraph.storage import tables
from omnigraph.storage.blobs import BlobCell
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.manifest_rows import TableIdentity
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import Snapshot
from omnigraph.storage.stored_columns import StoredColumns


@dataclass(frozen=True, slots=True)
class TableToday:
    """A type as it is now."""

    identity: TableIdentity
    schema: pa.Schema


class PastReader(SnapshotReader):
    """The rows of an older snapshot under the names and types of today.

    A table is found by its identity: one that took over the name of another is not in its past.
    """

    def __init__(
        self,
        lance: LanceStore,
        root_uri: str,
        snapshot: Snapshot,
        today: Mapping[str, TableToday],
    ) -> None:
        known = {
            key: entry
            for key, entry in snapshot.tables.items()
            if key in today and today[key].identity == entry.identity
        }
        super().__init__(lance, root_uri, replace(snapshot, tables=known))
        self._today = today
        self._columns: dict[str, StoredColumns] = {}

    def handle(self, table_key: str) -> LanceDataset:
        """The table of a type at its pinned version; raises `HistoricalVersionReclaimed`."""
        try:
            return super().handle(table_key)
        except NotFound:
            if table_key not in self.snapshot.tables:
                raise
            raise _reclaimed(table_key) from None

    def columns(self, table_key: str) -> StoredColumns:
        """How the table of that time differs from today's."""
        known = self._columns.get(table_key)
        if known is None:
            stored = self.handle(table_key).schema
            known = StoredColumns.between(stored, self._today[table_key].schema)
            self._columns[table_key] = known
        return known

    def rows_then(self, table_key: str, snapshot: Snapshot, ids: pa.Array) -> pa.Table:
        """Some entities with all they had, blobs left out; also of a type that is gone today.

        ``snapshot`` is the one this reader was made of. Properties have the names of today, and
        those that were dropped since the names they had.
        """
        today = self._today.get(table_key)
        if today is not None:
            stored = self.handle(table_key)
        else:
            entry = snapshot.table(table_key)
            try:
                stored = self._lance.open(self.where(entry), entry.version)
            except NotFound:
                raise _reclaimed(table_key) from None
        names = names_then(stored.schema, None if today is None else today.schema)
        rows = tables.rows_where_in(stored, tables.ID, ids, list(names))
        return rows.rename_columns([names[name] for name in rows.column_names])

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type."""
        wanted = self._today[table_key].schema.names if columns is None else columns
        read = super().scan
        return self.columns(table_key).read(wanted, lambda names: read(table_key, names))

    def batches(self, table_key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows of a type, a bounded number at a time."""
        stored = self.columns(table_key)
        if stored.is_same:
            yield from super().batches(table_key, columns)
        else:
            yield from self.scan(table_key, columns).to_batches()

    def take(self, table_key: str, positions: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows at ``positions``, in that order."""
        read = super().take
        return self.columns(table_key).read(
            columns, lambda names: read(table_key, positions, names)
        )

    def rows_where(
        self, table_key: str, wanted: pc.Expression | None, columns: Sequence[str]
    ) -> pa.Table:
        """Rows of a type that pass a filter, and where columns have changed others, too."""
        stored = self.columns(table_key)
        read, chosen = super().rows_where, wanted if stored.is_same else None
        return stored.read(columns, lambda names: read(table_key, chosen, names))

    def rows_where_in(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """Rows of a type whose ``column``, which has not changed, holds one of ``values``."""
        read = super().rows_where_in
        return self.columns(table_key).read(
            columns, lambda names: read(table_key, column, values, names)
        )

    def blob_sizes(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """Bytes of each entity's blob."""
        name = self.columns(table_key).name(column)
        if name is None:
            return pa.nulls(len(ids), pa.int64())
        return super().blob_sizes(table_key, name, ids)

    def blobs(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """The blobs of some entities, in the order of ``ids``."""
        name = self.columns(table_key).name(column)
        if name is None:
            return pa.nulls(len(ids), BLOB_STORAGE)
        return super().blobs(table_key, name, ids)

    def blobs_at(
        self, table_key: str, column: str, positions: pa.Array
    ) -> Iterator[bytes | BlobUri | None]:
        """The blobs at ``positions``, one after another."""
        name = self.columns(table_key).name(column)
        if name is None:
            return iter([None] * len(positions))
        return super().blobs_at(table_key, name, positions)

    def blob_cell(self, table_key: str, column: str, id: str) -> BlobCell | None:
        """What one entity had in a blob column; null in one that was added since."""
        if table_key not in self.snapshot.tables:
            return None
        name = self.columns(table_key).name(column)
        if name is not None:
            return super().blob_cell(table_key, name, id)
        ids = pa.array([id])
        found = self.rows_where_in(table_key, tables.ID, ids, [tables.ID])
        return BlobCell(None) if found.num_rows else None


def _reclaimed(table_key: str) -> HistoricalVersionReclaimed:
    return HistoricalVersionReclaimed(
        f"the rows of {table_key} at this commit no longer exist",
        hint="its type was dropped for good; read a newer commit",
    )


def names_then(stored: pa.Schema, today: pa.Schema | None) -> dict[str, str]:
    """For each column of a version the name it is shown by: today's, or of what was dropped its
    own. Blobs are left out."""
    renamed: dict[int | None, str] = {}
    if today is not None:
        renamed = {property_id(field): field.name for field in today}
        renamed.pop(None, None)
    shown: dict[str, str] = {}
    for field in stored:
        if isinstance(field.type, pa.ExtensionType):
            continue
        name = renamed.get(property_id(field), field.name)
        if name not in shown.values():
            shown[field.name] = name
    return shown
