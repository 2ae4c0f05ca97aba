"""The visible rows of a snapshot for an actor.

A `ViewedReader` behaves like the reader of the whole snapshot, without the rows that a view hides:
for a lookup it tests the found rows, for a scan all rows. An edge is visible if it and the nodes at
both ends are. Positions are those in the whole table.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.model.arrow import BLOB_STORAGE, DST, ID, SRC, arrow_type
from omnigraph.model.references import ShownEnds, qualified
from omnigraph.query.evaluate import ColumnExpression, holds
from omnigraph.query.expressions import PropertyValue, walk
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.storage.blobs import BlobCell
from omnigraph.storage.reader import SnapshotReader, StoredColumns
from omnigraph.views.view import RowGrant, View

_LOOKUP_IDS_MAX = 2_000
"""For more nodes than this, all visible ids of the type are read."""

_ROWS_PER_READ = 65_536

_UNUSED_NOW = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""A placeholder: conditions on rows that read the time are refused."""

Rows: TypeAlias = "pa.Table | pa.RecordBatch"


def granted(grants: Sequence[RowGrant], ends: ShownEnds, rows: Rows) -> pa.Array:
    """A mask without nulls of the rows for which any of the conditions holds.

    A condition that fails on a row, for example by an overflow, does not grant it.
    """
    mask: pa.Array | None = None
    for grant in grants:
        one = _granted(grant, ends, rows)
        mask = one if mask is None else pc.or_(mask, one)
    return pa.repeat(False, rows.num_rows) if mask is None else mask


def _granted(grant: RowGrant, ends: ShownEnds, rows: Rows) -> pa.Array:
    def column(leaf: ColumnExpression) -> pa.Array | pa.ChunkedArray:
        return ends.column(leaf.property if isinstance(leaf, PropertyValue) else ID, rows)

    try:
        found = holds(grant.predicate, column, grant.parameters, _UNUSED_NOW, rows.num_rows)
    except InputError:
        if rows.num_rows <= 1:
            return pa.repeat(False, rows.num_rows)
        half = rows.num_rows // 2
        parts = (rows.slice(0, half), rows.slice(half))
        return pa.concat_arrays([_granted(grant, ends, part) for part in parts])
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def columns_tested(grants: Sequence[RowGrant], ends: ShownEnds) -> dict[str, pa.DataType]:
    """The stored columns that conditions read."""
    columns: dict[str, pa.DataType] = {}
    for part in (part for each in grants for part in walk(each.predicate)):
        if isinstance(part, PropertyValue):
            name = ends.stored(part.property)
            columns[name] = pa.string() if name in (ID, SRC, DST) else arrow_type(part.type)
    return columns


def columns_read(view: View, table_key: str) -> list[str]:
    """The stored columns that determine the visibility of a type's rows."""
    type = view.types[table_key].type
    ends = ShownEnds.of(type)
    read = columns_tested(view.conditions(table_key) or (), ends)
    return list(dict.fromkeys([*read, *hiding_ends(view, table_key)]))


def hiding_ends(view: View, table_key: str) -> list[str]:
    """The ends of an edge type whose nodes may be hidden."""
    type = view.types[table_key].type
    if not isinstance(type, EdgeType):
        return []
    declared = {"src": type.source, "dst": type.target}
    return [
        end
        for end, nodes in view.ends(table_key).items()
        if len(nodes) < len(view.whole.node_types(declared[end]))
        or any(view.restricts(node.table_key) for node in nodes)
    ]


class ViewedReader(SnapshotReader):
    """The visible rows of a snapshot. Thread-safe."""

    def __init__(self, whole: SnapshotReader, view: View) -> None:
        shown = {key: entry for key, entry in whole.snapshot.tables.items() if view.shows(key)}
        snapshot = replace(whole.snapshot, tables=shown)
        super().__init__(whole._lance, whole.root_uri, snapshot)
        self.whole = whole
        self.view = view
        self._visible: dict[str, pa.Array] = {}
        """The visible node ids, by the keys of restricted types."""
        self._versions: dict[str, VisibleVersion] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without open tables, which a worker opens itself."""
        return ViewedReader, (self.whole, self.view)

    @property
    def hides_rows(self) -> bool:
        """Whether any rows of the snapshot are hidden."""
        return self.view.restricts_rows

    def hides_rows_of(self, table_key: str) -> bool:
        """Whether rows of a type are hidden."""
        return not self.view.shows(table_key) or self.view.restricts(table_key)

    def restricted_version(self, table_key: str) -> VisibleVersion | None:
        """A cache key for the visible rows of a type: the view, the version of its table, and those
        of the nodes at the ends of its edges. None for a type without hidden rows.
        """
        known = self._versions.get(table_key)
        if known is None and self.view.restricts(table_key):
            ends = {
                node.table_key for nodes in self.view.ends(table_key).values() for node in nodes
            }
            pins = [
                (entry.location, entry.ref, entry.version, self.whole.columns(key))
                for key in (table_key, *sorted(ends))
                for entry in [self.snapshot.table(key)]
            ]
            known = self._versions[table_key] = VisibleVersion((self.view.key, *pins))
        return known

    # --- visibility of rows -----------------------------------------------------------------------

    def restricts(self, table_key: str) -> bool:
        """Whether rows of a type may be hidden."""
        return self.view.restricts(table_key)

    def mask(self, table_key: str, rows: Rows) -> pa.Array:
        """A mask of the visible ``rows`` of a restricted type, which need its `columns_read`."""
        type = self.view.types[table_key].type
        grants = self.view.conditions(table_key)
        mask = (
            pa.repeat(True, rows.num_rows)
            if grants is None
            else granted(grants, ShownEnds.of(type), rows)
        )
        if isinstance(type, EdgeType):
            ends = self.view.ends(table_key)
            for end in hiding_ends(self.view, table_key):
                mask = pc.and_(mask, self._has_end(type, end, ends[end], rows[end]))
        return mask

    def kept(self, table_key: str, rows: pa.Table) -> pa.Table:
        """The visible ones of a type's ``rows``, which need its `columns_read`."""
        return rows.filter(self.mask(table_key, rows)) if self.restricts(table_key) else rows

    def _has_end(
        self, edge: EdgeType, end: str, nodes: Sequence[NodeType], values: Any
    ) -> pa.Array:
        """A mask of the edges whose node at one end is visible."""
        flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        prefixes = edge.end_types.get(end)
        if prefixes is None:
            (node,) = nodes
            return pc.is_in(flat, value_set=self.visible_ids(node.table_key, pc.unique(flat)))
        mask = pa.repeat(False, len(flat))
        for node in nodes:
            prefix = prefixes[node.name]
            own = pc.starts_with(flat, pattern=prefix)
            if self.restricts(node.table_key):
                references = pc.unique(flat.filter(own))
                ids = pc.utf8_slice_codeunits(references, start=len(prefix))
                visible = qualified(self.visible_ids(node.table_key, ids), prefix)
                if isinstance(visible, pa.ChunkedArray):
                    visible = visible.combine_chunks()
                own = pc.is_in(flat, value_set=visible)
            mask = pc.or_(mask, own)
        return mask

    def visible_ids(self, table_key: str, ids: pa.Array) -> pa.Array:
        """The visible node ids of a type: those among ``ids``, possibly with others."""
        if not self.restricts(table_key) or table_key not in self.snapshot.tables:
            return ids
        known = self._visible.get(table_key)
        if known is not None:
            return known
        if self.is_empty(table_key):
            return ids.slice(0, 0)
        if len(ids) <= _LOOKUP_IDS_MAX:
            return _flat(self.rows_where_in(table_key, ID, ids, [ID])[ID])
        found = self._visible[table_key] = _flat(self.ids(table_key))
        return found

    # --- reading ----------------------------------------------------------------------------------

    def handle(self, table_key: str) -> Any:
        """The table of a type at its pinned version, including hidden rows."""
        return self.whole.handle(table_key)

    def columns(self, table_key: str) -> StoredColumns:
        """The mapping from a caller's column names to those of the pinned version."""
        return self.whole.columns(table_key)

    def batches(
        self, table_key: str, columns: Sequence[str], rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All visible rows of a type, in batches of bounded size."""
        if not self.restricts(table_key):
            yield from self.whole.batches(table_key, columns, rows_max)
            return
        for batch in self.whole.batches(
            table_key, self.with_columns_read(table_key, columns), rows_max
        ):
            found = batch.filter(self.mask(table_key, batch))
            if found.num_rows:
                yield found.select(list(columns))

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All visible rows of a type."""
        if columns is None or not self.restricts(table_key):
            rows = self.whole.scan(table_key, columns)
            return self.kept(table_key, rows)
        rows = self.whole.scan(table_key, self.with_columns_read(table_key, columns))
        return self.kept(table_key, rows).select(list(columns))

    def take(self, table_key: str, positions: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows at positions in the whole table; the caller ensures that they are visible."""
        return self.whole.take(table_key, positions, columns)

    def places(self, table_key: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """The ids of the visible rows of a type, and their positions in the whole table."""
        if not self.restricts(table_key):
            return self.whole.places(table_key)
        ids, positions = [pa.array([], pa.string())], [np.zeros(0, np.int64)]
        at = 0
        for batch in self.whole.batches(table_key, self.with_columns_read(table_key, [ID])):
            shown = self.mask(table_key, batch)
            ids.append(batch[ID].filter(shown))
            positions.append(at + np.flatnonzero(shown.to_numpy(zero_copy_only=False)))
            at += batch.num_rows
        return pa.concat_arrays(ids), np.concatenate(positions)

    def mask_at(self, table_key: str, positions: npt.NDArray[np.int64]) -> pa.Array:
        """A mask of the visible rows of a restricted type, at positions in the whole table."""
        read = self.with_columns_read(table_key, [ID])
        masks = [
            self.mask(table_key, self.whole.take(table_key, pa.array(part), read))
            for part in np.array_split(positions, len(positions) // _ROWS_PER_READ + 1)
        ]
        return pa.concat_arrays(masks)

    def row_count(self, table_key: str) -> int:
        """The number of visible rows of a type."""
        if not self.restricts(table_key):
            return self.snapshot.table(table_key).row_count
        return sum(batch.num_rows for batch in self.batches(table_key, [ID]))

    def rows_where(
        self, table_key: str, wanted: pc.Expression | None, columns: Sequence[str]
    ) -> pa.Table:
        """Visible rows of a type that pass a filter; all without one."""
        if not self.restricts(table_key):
            return self.whole.rows_where(table_key, wanted, columns)
        rows = self.whole.rows_where(table_key, wanted, self.with_columns_read(table_key, columns))
        return self.kept(table_key, rows).select(list(columns))

    def rows_where_in(
        self,
        table_key: str,
        column: str,
        values: pa.Array,
        columns: Sequence[str],
        *,
        narrowed_by: Mapping[str, pa.Array] | None = None,
    ) -> pa.Table:
        """Visible rows of a type whose ``column`` is one of ``values``."""
        read = (
            columns if not self.restricts(table_key) else self.with_columns_read(table_key, columns)
        )
        rows = self.whole.rows_where_in(table_key, column, values, read, narrowed_by=narrowed_by)
        return self.kept(table_key, rows).select(list(columns))

    def with_columns_read(self, table_key: str, columns: Sequence[str]) -> list[str]:
        """``columns``, and those that determine visibility."""
        return list(dict.fromkeys([*columns, *columns_read(self.view, table_key), ID]))

    # --- blobs ------------------------------------------------------------------------------------

    def blob_sizes(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """The size of each entity's blob; null for a null blob and a hidden entity."""
        return self._for_visible(table_key, ids, self.whole.blob_sizes, column, pa.int64())

    def blobs(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """The blobs of entities, in the order of ``ids``; null for a hidden entity."""
        return self._for_visible(table_key, ids, self.whole.blobs, column, BLOB_STORAGE)

    def _for_visible(
        self, table_key: str, ids: pa.Array, read: Any, column: str, type: pa.DataType
    ) -> pa.Array:
        if not self.restricts(table_key):
            found: pa.Array = read(table_key, column, ids)
            return found
        visible = _flat(self.rows_where_in(table_key, ID, ids, [ID])[ID])
        own = read(table_key, column, visible) if len(visible) else pa.nulls(0, type)
        return own.take(pc.index_in(ids, value_set=visible))

    def blobs_at(self, table_key: str, column: str, positions: pa.Array) -> Any:
        """The blobs at positions in the whole table; the caller ensures that they are visible."""
        return self.whole.blobs_at(table_key, column, positions)

    def blob_sizes_at(self, table_key: str, column: str, positions: pa.Array) -> pa.Array:
        """The sizes of blobs at positions in the whole table."""
        return self.whole.blob_sizes_at(table_key, column, positions)

    def stored_blobs_at(self, table_key: str, column: str, positions: pa.Array) -> pa.Array:
        """The blobs at positions in the whole table, in the form for writing."""
        return self.whole.stored_blobs_at(table_key, column, positions)

    def blob_cell(self, table_key: str, column: str, id: str) -> BlobCell | None:
        """The blob cell of a visible entity; None if there is no such entity."""
        if table_key not in self.snapshot.tables or self.is_empty(table_key):
            return None
        if self.restricts(table_key):
            found = self.rows_where_in(table_key, ID, pa.array([id]), [ID])
            if not found.num_rows:
                return None
        return self.whole.blob_cell(table_key, column, id)


class VisibleVersion:
    """A cache key that computes its hash once."""

    __slots__ = ("_facts", "_hash")

    def __init__(self, facts: tuple[object, ...]) -> None:
        self._facts = facts
        self._hash = hash(facts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VisibleVersion) and self._facts == other._facts


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
