"""Reading the tables of one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.model.values import BlobUri
from omnigraph.storage import blobs, tables
from omnigraph.storage.blobs import BlobCell
from omnigraph.storage.datasets import DatasetRef, LanceStore
from omnigraph.storage.snapshot import Snapshot, TableEntry
from omnigraph.storage.stored_columns import SAME, StoredColumns


class SnapshotReader:
    """The rows a snapshot pins. Each table is opened at most once and kept."""

    def __init__(self, lance: LanceStore, root_uri: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lance = lance
        self._root_uri = root_uri
        self._handles: dict[str, LanceDataset] = {}

    def where(self, entry: TableEntry) -> DatasetRef:
        """The dataset behind an entry, on the ref that holds its version."""
        return DatasetRef(f"{self._root_uri}/{entry.location}", entry.ref)

    def handle(self, table_key: str) -> LanceDataset:
        """The table of a type at its pinned version."""
        known = self._handles.get(table_key)
        if known is None:
            entry = self.snapshot.table(table_key)
            known = self._lance.open(self.where(entry), entry.version)
            self._handles[table_key] = known
        return known

    def columns(self, table_key: str) -> StoredColumns:
        """How the columns of the pinned version differ from those a caller names."""
        return SAME

    def available(self, table_key: str, columns: Iterable[str]) -> list[str]:
        """Those of ``columns`` that the pinned version has."""
        stored, names = self.columns(table_key), self.handle(table_key).schema.names
        return [column for column in columns if stored.name(column) in names]

    def is_empty(self, table_key: str) -> bool:
        """Whether the pinned table has no rows, known without opening it."""
        return self.snapshot.table(table_key).row_count == 0

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type."""
        return tables.scan(self.handle(table_key), columns)

    def batches(self, table_key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows of a type, a bounded number at a time."""
        yield from tables.batches(self.handle(table_key), columns)

    def ids(self, table_key: str) -> pa.ChunkedArray:
        """The ids of a type; an id's place in here is its row's position."""
        return self.scan(table_key, [tables.ID])[tables.ID]

    def take(self, table_key: str, positions: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows at ``positions``, in that order."""
        return tables.take(self.handle(table_key), positions, columns)

    def blob_sizes(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """Bytes of each entity's blob, known without reading it; null for a null blob."""
        return blobs.sizes(self.handle(table_key), column, ids)

    def blobs(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """The blobs of some entities, bytes or URIs, in the order of ``ids``."""
        return blobs.values(self.handle(table_key), column, ids)

    def blobs_at(
        self, table_key: str, column: str, positions: pa.Array
    ) -> Iterator[bytes | BlobUri | None]:
        """The blobs at ``positions``, one after another, each read when asked for."""
        return blobs.values_at(self.handle(table_key), column, positions)

    def blob_sizes_at(self, table_key: str, column: str, positions: pa.Array) -> pa.Array:
        """Bytes of each blob at ``positions``, known without reading it; none for a null blob."""
        return blobs.sizes_at(self.handle(table_key), column, positions)

    def stored_blobs_at(self, table_key: str, column: str, positions: pa.Array) -> pa.Array:
        """The blobs at ``positions``, bytes or URIs, as they are written."""
        return blobs.stored_at(self.handle(table_key), column, positions)

    def blob_cell(self, table_key: str, column: str, id: str) -> BlobCell | None:
        """What one entity has in a blob column, not read yet; None if there is no such entity."""
        return None if self.is_empty(table_key) else blobs.cell(self.handle(table_key), column, id)

    def rows_where(
        self, table_key: str, wanted: pc.Expression | None, columns: Sequence[str]
    ) -> pa.Table:
        """Rows of a type that pass a filter on their stored columns; all of them without one."""
        return tables.rows_where(self.handle(table_key), wanted, columns)

    def rows_where_in(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """Rows of a type whose ``column`` holds one of ``values``."""
        return tables.rows_where_in(self.handle(table_key), column, values, columns)
