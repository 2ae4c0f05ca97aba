"""Reading the tables of one snapshot by their current columns.

Columns have the stable id of their property, so an older version is read correctly although
properties were renamed since, even if a new property has the name of an old one.
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
    """The name, in a version with ``schema``, of the current column ``field``.

    None if that version does not have it. In tables of older graphs, columns without a property id
    are matched by name.
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
    """A current column that a version of its table stores differently or does not have."""

    today: str
    stored: str | None
    """Its name in that version; None if the version does not have it."""
    type: pa.DataType
    """Its current type."""
    absent: pa.Scalar
    """The value of all rows if the version does not have it."""


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """How the columns of one version of a table differ from the current ones."""

    differing: tuple[DifferingColumn, ...] = ()

    @classmethod
    def between(
        cls, stored: pa.Schema, today: pa.Schema, absent: Mapping[str, pa.Scalar] | None = None
    ) -> StoredColumns:
        """Compare the schema of a version with that of today.

        ``absent`` are values for columns that the version does not have; null by default.
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
        """Whether the version has every current column, with the same name and type."""
        return not self.differing

    def name(self, column: str) -> str | None:
        """The name of a current column in that version; None if the version does not have it."""
        for each in self.differing:
            if each.today == column:
                return each.stored
        return column

    def as_today(self, column: str, values: pa.Array) -> pa.Array:
        """Stored values cast to the column's current type."""
        for each in self.differing:
            if each.today == column:
                return values.cast(each.type)
        return values

    def read(self, columns: Sequence[str], read: Callable[[list[str]], pa.Table]) -> pa.Table:
        """Current columns, by a read of the stored ones."""
        if self.is_same:
            return read(list(columns))
        # The id is always read, since it gives the number of rows.
        return self.shown(columns, read(self.names(columns)))

    def names(self, columns: Sequence[str]) -> list[str]:
        """The stored columns to read for some current columns."""
        return list(dict.fromkeys([ID, *filter(None, map(self.name, columns))]))

    def shown(self, columns: Sequence[str], rows: pa.Table) -> pa.Table:
        """Current columns from stored ones; absent columns have one value for all rows."""
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
    # Blobs are read separately, and Lance gives them another type.
    return bool(stored == today or pa.types.is_struct(today))


SAME = StoredColumns()
"""For a version with the current columns."""


class SnapshotReader:
    """The rows of a snapshot. Each table is opened at most once and cached."""

    def __init__(self, lance: LanceStore, root_uri: str, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._lance = lance
        self._root_uri = root_uri
        self._handles: dict[str, LanceDataset] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """For workers, which open the tables themselves."""
        return SnapshotReader, (self._lance, self._root_uri, self._portable)

    @property
    def _portable(self) -> Snapshot:
        return replace(self.snapshot, tables=dict(self.snapshot.tables))

    @property
    def root_uri(self) -> str:
        """The root of the graph."""
        return self._root_uri

    @property
    def hides_rows(self) -> bool:
        """Whether this reader hides rows of the snapshot."""
        return False

    def hides_rows_of(self, table_key: str) -> bool:
        """Whether this reader hides rows of a type."""
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
        """The sorted edges that `optimize` saved for an edge type."""
        return AdjacencyFiles(open_store(self._lance.root), self.snapshot.table(table_key).location)

    def columns(self, table_key: str) -> StoredColumns:
        """How the columns of the pinned version differ from those a caller names."""
        return SAME

    def available(self, table_key: str, columns: Iterable[str]) -> list[str]:
        """The columns among ``columns`` that the pinned version has."""
        stored, names = self.columns(table_key), self.handle(table_key).schema.names
        return [column for column in columns if stored.name(column) in names]

    def is_empty(self, table_key: str) -> bool:
        """Whether the pinned table has no rows; does not open it."""
        return self.snapshot.table(table_key).row_count == 0

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type."""
        if columns is None:
            return fragments.rows_where(self.handle(table_key), None, None)
        return self.rows_where(table_key, None, columns)

    def batches(
        self, table_key: str, columns: Sequence[str], rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows of a type in batches of bounded size."""
        stored = self.columns(table_key)
        if stored.is_same:
            yield from fragments.batches(self.handle(table_key), columns, rows_max)
            return
        names = stored.names(columns)
        for batch in fragments.batches(self.handle(table_key), names, rows_max):
            yield from stored.shown(columns, pa.Table.from_batches([batch])).to_batches()

    def ids(self, table_key: str) -> pa.ChunkedArray:
        """The ids of a type; the index of an id is the position of its row."""
        return self.scan(table_key, [ID])[ID]

    def places(self, table_key: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """The ids of a type, and the positions of their rows, ascending."""
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
        """Rows of a type that pass a filter; all rows without one.

        In a version whose columns differ from the current ones, the result may have further rows.
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

        For each end in ``narrowed_by``, edges with none of its ids may be left out, so that an edge
        is found without reading all other edges of a node with many.
        """
        handle = self.handle(table_key)
        return self.columns(table_key).read(
            columns,
            lambda names: fragments.rows_where_in(
                handle, column, values, names, narrowed_by=narrowed_by
            ),
        )

    def blob_sizes(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """The size of each entity's blob, without reading it; null for a null blob."""
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
        """The blobs at ``positions``, each read when the iterator reaches it."""
        name = self.columns(table_key).name(column)
        if name is None:
            return iter([None] * len(positions))
        return blobs.values_at(self.handle(table_key), name, positions)

    def blob_sizes_at(self, table_key: str, column: str, positions: pa.Array) -> pa.Array:
        """The size of each blob at ``positions``, without reading it; 0 for a null blob."""
        name = self.columns(table_key).name(column)
        if name is None:
            return pa.array([0] * len(positions), pa.int64())
        return blobs.sizes_at(self.handle(table_key), name, positions)

    def stored_blobs_at(self, table_key: str, column: str, positions: pa.Array) -> pa.Array:
        """The blobs at ``positions``, bytes or URIs, in the form in which they are written."""
        name = self.columns(table_key).name(column)
        if name is None:
            return pa.nulls(len(positions), BLOB_STORAGE)
        return blobs.stored_at(self.handle(table_key), name, positions)

    def blob_cell(self, table_key: str, column: str, id: str) -> BlobCell | None:
        """The blob cell of one entity, without its bytes; None if there is no such entity."""
        if table_key not in self.snapshot.tables or self.is_empty(table_key):
            return None
        name = self.columns(table_key).name(column)
        if name is not None:
            return blobs.cell(self.handle(table_key), name, id)
        found = self.rows_where_in(table_key, ID, pa.array([id]), [ID])
        return BlobCell(None) if found.num_rows else None


@dataclass(frozen=True, slots=True)
class TableToday:
    """The current form of a type."""

    identity: TableIdentity
    schema: pa.Schema
    defaults: Mapping[str, pa.Scalar] | None = None
    """By column: the value of rows from before it was added; null by default."""


class PastReader(SnapshotReader):
    """The rows of an older snapshot under current names and types.

    Tables are found by identity, not by name: a type that was dropped is not confused with a new
    type of the same name.
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
        """For workers, which open the tables themselves."""
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
        """How the columns of the older version differ from the current ones."""
        known = self._columns.get(table_key)
        if known is None:
            stored, today = self.handle(table_key).schema, self._today[table_key]
            known = StoredColumns.between(stored, today.schema, today.defaults)
            self._columns[table_key] = known
        return known

    def rows_then(self, table_key: str, snapshot: Snapshot, ids: pa.Array) -> pa.Table:
        """Some entities with all properties of that time, except blobs; also of dropped types.

        ``snapshot`` is the one this reader was created from. Properties have their current names;
        those dropped since, their last ones.
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
        """All rows of a type; with all current columns if ``columns`` is None."""
        today = self._today[table_key].schema.names
        return super().scan(table_key, today if columns is None else columns)


def _reclaimed(table_key: str) -> HistoricalVersionReclaimed:
    return HistoricalVersionReclaimed(
        f"the rows of {table_key} at this commit no longer exist",
        hint="its type was dropped for good; read a newer commit",
    )


def names_then(stored: pa.Schema, today: pa.Schema | None) -> dict[str, str]:
    """By column of a version: its current name, or its own if it was dropped since. Blobs are left
    out."""
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
