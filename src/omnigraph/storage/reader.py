"""Reading the tables of one snapshot, with the columns of today.

Columns carry the stable id of their property: in an older version, a renamed property is found
under the name it had, and one that took over the name of another is not confused with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.effects.objects import open_store
from omnigraph.errors import HistoricalVersionReclaimed, NotFound
from omnigraph.model.arrow import BLOB_STORAGE, ID, property_id
from omnigraph.model.records import dataclass
from omnigraph.model.values import BlobUri
from omnigraph.storage import blobs, fragments
from omnigraph.storage.blobs import BlobCell
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.manifest import Snapshot, TableEntry
from omnigraph.storage.manifest_rows import TableIdentity
from omnigraph.storage.saved_adjacency import AdjacencyFiles
from omnigraph.storage.transactions import DatasetRef


def column_at(schema: pa.Schema, field: pa.Field) -> str | None:
    """The name, in a version with ``schema``, of the column that is ``field`` today.

    None if that version does not have it. Tables of older graphs have columns without a property
    id; those go by their names.
    """
    wanted = property_id(field)
    same_name: str | None = None
    for stored in schema:
        known = property_id(stored)
        if wanted is not None and known == wanted:
            return str(stored.name)
        if stored.name == field.name and (known is None or wanted is None):
            same_name = field.name
    return same_name


class DifferingColumn(NamedTuple):
    """A column of today that a version of its table has otherwise, or not at all."""

    today: str
    stored: str | None
    """Its name in that version."""
    type: pa.DataType
    """Its type today."""
    absent: pa.Scalar
    """The value of all rows where the version does not have it."""


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """How one version of a table differs from the columns of today."""

    differing: tuple[DifferingColumn, ...] = ()

    @classmethod
    def between(
        cls, stored: pa.Schema, today: pa.Schema, absent: Mapping[str, pa.Scalar] | None = None
    ) -> StoredColumns:
        """What differs between a version and today.

        ``absent`` are the values of columns that the version does not have, null without one.
        """
        values = absent or {}
        found = ((field, column_at(stored, field)) for field in today)
        return cls(
            tuple(
                DifferingColumn(
                    field.name,
                    name,
                    field.type,
                    values.get(field.name, pa.scalar(None, field.type)),
                )
                for field, name in found
                if name != field.name or not _same_type(stored.field(name).type, field.type)
            )
        )

    @property
    def is_same(self) -> bool:
        """Whether every column of today is there, as it is today."""
        return not self.differing

    def name(self, column: str) -> str | None:
        """The name a column of today has in that version; None if it is not there."""
        for each in self.differing:
            if each.today == column:
                return each.stored
        return column

    def as_today(self, column: str, values: pa.Array) -> pa.Array:
        """Stored values with the type the column has today."""
        for each in self.differing:
            if each.today == column:
                return values.cast(each.type)
        return values

    def read(self, columns: Sequence[str], read: Callable[[list[str]], pa.Table]) -> pa.Table:
        """Columns of today out of a read of stored ones."""
        if self.is_same:
            return read(list(columns))
        # The id is always read: it tells how many rows there are.
        return self.shown(columns, read(self.names(columns)))

    def names(self, columns: Sequence[str]) -> list[str]:
        """The stored columns to read for columns of today."""
        return list(dict.fromkeys([ID, *filter(None, map(self.name, columns))]))

    def shown(self, columns: Sequence[str], rows: pa.Table) -> pa.Table:
        """Columns of today out of stored ones; what was not there has one value for all rows."""
        absent = {each.today: each.absent for each in self.differing}
        names = {column: self.name(column) for column in columns}
        return pa.table(
            {
                column: pa.repeat(absent[column], rows.num_rows)
                if stored is None
                else self.as_today(column, rows[stored])
                for column, stored in names.items()
            }
        )


def _same_type(stored: pa.DataType, today: pa.DataType) -> bool:
    # A blob is read by other means, and Lance gives it a type of its own.
    return bool(stored == today or pa.types.is_struct(today))


SAME = StoredColumns()
"""Nothing differs."""


class SnapshotReader:
    """The rows a snapshot pins. Each table is opened at most once and kept."""

    def __init__(self, lance: LanceStore, root_uri: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lance = lance
        self._root_uri = root_uri
        self._handles: dict[str, LanceDataset] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """For a worker, which opens the tables itself."""
        return SnapshotReader, (self._lance, self._root_uri, self._portable)

    @property
    def _portable(self) -> Snapshot:
        return replace(self.snapshot, tables=dict(self.snapshot.tables))

    @property
    def root_uri(self) -> str:
        """The graph whose tables these are."""
        return self._root_uri

    @property
    def hides_rows(self) -> bool:
        """Whether it leaves out rows of the snapshot."""
        return False

    def hides_rows_of(self, table_key: str) -> bool:
        """Whether it leaves out rows of a type."""
        return False

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

    def saved_adjacency(self, table_key: str) -> AdjacencyFiles:
        """What `optimize` saved beside the table of an edge type."""
        return AdjacencyFiles(open_store(self._lance.root), self.snapshot.table(table_key).location)

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
        if columns is None:
            return fragments.rows_where(self.handle(table_key), None, None)
        return self.rows_where(table_key, None, columns)

    def batches(
        self, table_key: str, columns: Sequence[str], rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows of a type, a bounded number at a time."""
        stored = self.columns(table_key)
        if stored.is_same:
            yield from fragments.batches(self.handle(table_key), columns, rows_max)
            return
        names = stored.names(columns)
        for batch in fragments.batches(self.handle(table_key), names, rows_max):
            yield from stored.shown(columns, pa.Table.from_batches([batch])).to_batches()

    def ids(self, table_key: str) -> pa.ChunkedArray:
        """The ids of a type; an id's place in here is its row's position."""
        return self.scan(table_key, [ID])[ID]

    def places(self, table_key: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """The ids of a type, and the position of the row of each, ascending."""
        found = self.ids(table_key)
        ids = pa.concat_arrays(found.chunks) if len(found) else pa.array([], pa.string())
        return ids, np.arange(len(ids), dtype=np.int64)

    def take(self, table_key: str, positions: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows at ``positions``, in that order."""
        handle = self.handle(table_key)
        return self.columns(table_key).read(
            columns, lambda names: fragments.take(handle, positions, names)
        )

    def rows_where(
        self, table_key: str, wanted: pc.Expression | None, columns: Sequence[str]
    ) -> pa.Table:
        """Rows of a type that pass a filter, all of them without one.

        In a version whose columns differ from those of today, rows that do not pass come as well.
        """
        handle, stored = self.handle(table_key), self.columns(table_key)
        chosen = wanted if stored.is_same else None
        return stored.read(columns, lambda names: fragments.rows_where(handle, chosen, names))

    def rows_where_in(
        self,
        table_key: str,
        column: str,
        values: pa.Array,
        columns: Sequence[str],
        *,
        narrowed_by: Mapping[str, pa.Array] | None = None,
    ) -> pa.Table:
        """Rows of a type whose ``column``, which has not changed, holds one of ``values``.

        Edges that hold none of the ids of ``narrowed_by`` at one of its ends may be left out: an
        edge of a node with many is found without reading the others.
        """
        handle = self.handle(table_key)
        return self.columns(table_key).read(
            columns,
            lambda names: fragments.rows_where_in(
                handle, column, values, names, narrowed_by=narrowed_by
            ),
        )

    def blob_sizes(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """Bytes of each entity's blob, known without reading it; null for a null blob."""
        name = self.columns(table_key).name(column)
        if name is None:
            return pa.nulls(len(ids), pa.int64())
        return blobs.sizes(self.handle(table_key), name, ids)

    def blobs(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """The blobs of some entities, bytes or URIs, in the order of ``ids``."""
        name = self.columns(table_key).name(column)
        if name is None:
            return pa.nulls(len(ids), BLOB_STORAGE)
        return blobs.values(self.handle(table_key), name, ids)

    def blobs_at(
        self, table_key: str, column: str, positions: pa.Array
    ) -> Iterator[bytes | BlobUri | None]:
        """The blobs at ``positions``, one after another, each read when asked for."""
        name = self.columns(table_key).name(column)
        if name is None:
            return iter([None] * len(positions))
        return blobs.values_at(self.handle(table_key), name, positions)

    def blob_sizes_at(self, table_key: str, column: str, positions: pa.Array) -> pa.Array:
        """Bytes of each blob at ``positions``, known without reading it; none for a null blob."""
        name = self.columns(table_key).name(column)
        if name is None:
            return pa.array([0] * len(positions), pa.int64())
        return blobs.sizes_at(self.handle(table_key), name, positions)

    def stored_blobs_at(self, table_key: str, column: str, positions: pa.Array) -> pa.Array:
        """The blobs at ``positions``, bytes or URIs, as they are written."""
        name = self.columns(table_key).name(column)
        if name is None:
            return pa.nulls(len(positions), BLOB_STORAGE)
        return blobs.stored_at(self.handle(table_key), name, positions)

    def blob_cell(self, table_key: str, column: str, id: str) -> BlobCell | None:
        """What one entity has in a blob column, not read yet; None if there is no such entity."""
        if table_key not in self.snapshot.tables or self.is_empty(table_key):
            return None
        name = self.columns(table_key).name(column)
        if name is not None:
            return blobs.cell(self.handle(table_key), name, id)
        found = self.rows_where_in(table_key, ID, pa.array([id]), [ID])
        return BlobCell(None) if found.num_rows else None


@dataclass(frozen=True, slots=True)
class TableToday:
    """A type as it is now."""

    identity: TableIdentity
    schema: pa.Schema
    defaults: Mapping[str, pa.Scalar] | None = None
    """By column, what rows have from before it was added; null where nothing is said."""


class PastReader(SnapshotReader):
    """The rows of an older snapshot under the names and types of today.

    A table is found by its identity: one that took over the name of another is not in its past.
    """

    def __init__(
        self, lance: LanceStore, root_uri: str, snapshot: Snapshot, today: Mapping[str, TableToday]
    ) -> None:
        known = {
            key: entry
            for key, entry in snapshot.tables.items()
            if key in today and today[key].identity == entry.identity
        }
        super().__init__(lance, root_uri, replace(snapshot, tables=known))
        self._today = today
        self._columns: dict[str, StoredColumns] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """For a worker, which opens the tables itself."""
        return PastReader, (self._lance, self._root_uri, self._portable, dict(self._today))

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
            stored, today = self.handle(table_key).schema, self._today[table_key]
            known = StoredColumns.between(stored, today.schema, today.defaults)
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
        rows = fragments.rows_where_in(stored, ID, ids, list(names))
        return rows.rename_columns([names[name] for name in rows.column_names])

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type, without ``columns`` with all that it has today."""
        today = self._today[table_key].schema.names
        return super().scan(table_key, today if columns is None else columns)


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
