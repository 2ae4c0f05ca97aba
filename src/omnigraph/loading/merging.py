"""The rows a merge in process writes: new ones, and those that differ from the committed ones.

What a record lacks (`records.absence`) is the stored value of its entity, so every row is checked
and written as it will be stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.plan import Budget, WriteLimits
from omnigraph.commit.unchanged import unchanged_rows
from omnigraph.loading.edge_identity import match_texts
from omnigraph.loading.records.absence import Absent, Mask, completed, is_needed
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.schema.catalog import TableType
from omnigraph.storage.reader import SnapshotReader


@dataclass(frozen=True, slots=True)
class MergedRows:
    """The complete rows to write, and the counts for the receipt."""

    rows: pa.Table
    ids: pa.ChunkedArray
    """The id of each record; an edge that was found by its key has an id of its own."""
    inserted: int
    updated: int
    unchanged: int
    kept: int
    missing: tuple[tuple[int, str], ...]
    """Records that would be new and lack a required property: the position, and its name."""
    refused_ids: pa.ChunkedArray
    """Their ids."""


class Merging:
    """Records of one type with unique ids, and the committed rows of these ids."""

    def __init__(
        self,
        type: TableType,
        rows: pa.Table,
        absent: pa.ChunkedArray,
        given_ids: pa.Array,
        matched_by: tuple[str, ...] = (ID,),
    ) -> None:
        """``given_ids`` are the ids of ``rows`` that committed entities may have.

        ``matched_by`` is `(ID,)`, or the key of an edge type: then the ids were minted.
        """
        self._key = type.table_key
        self._type = type
        self._rows = rows
        self._absent = Absent(type, absent)
        self._given_ids = given_ids
        self._matched_by = matched_by
        self._blobs = [prop.name for prop in type.properties.values() if prop.type.is_blob]
        self._columns = [name for name in rows.schema.names if name not in self._blobs]

    def result(self, view: SnapshotReader, limits: WriteLimits | None) -> MergedRows:
        """Raises `LimitExceeded` if blobs that are kept exceed ``limits``."""
        if self._matched_by != (ID,):
            self._adopt_ids(view)
        # Blobs are not read for a comparison: a record that has one is always written.
        compares = set(self._blobs) <= set(self._absent.names)
        columns = self._columns if compares or self._absent.names else [ID]
        existing = self._existing(view, columns)
        at = pc.index_in(self._rows[ID], value_set=existing[ID]).fill_null(-1).to_numpy()
        is_known = at >= 0
        rows = self._completed(existing, at)
        is_same = np.zeros(rows.num_rows, np.bool_)
        if compares and existing.num_rows:
            is_same = np.asarray(unchanged_rows(rows.select(self._columns), existing))
            is_same = np.logical_and.reduce([is_same, *map(self._absent.lacking, self._blobs)])
        missing = tuple(self._missing(is_known))
        is_refused = np.zeros(rows.num_rows, np.bool_)
        is_refused[[row for row, _ in missing]] = True
        is_written = ~is_same & ~is_refused
        written = rows.filter(pa.array(is_written))
        for name in self._blobs:
            is_stored = (self._absent.lacking(name) & is_known)[is_written]
            if is_stored.any():
                written = self._with_stored_blobs(written, name, is_stored, view, limits)
        known, unchanged = int(is_known.sum()), int(is_same.sum())
        return MergedRows(
            written,
            rows[ID],
            inserted=rows.num_rows - known,
            updated=known - unchanged,
            unchanged=unchanged,
            kept=int((self._absent.rows & is_known).sum()),
            missing=missing,
            refused_ids=rows[ID].filter(pa.array(is_refused)),
        )

    def _adopt_ids(self, view: SnapshotReader) -> None:
        """Give the records of edges that exist, by their key, the ids of these edges."""
        if view.is_empty(self._key):
            return
        ends = [pc.unique(self._rows[name]) for name in (SRC, DST)]
        at = 0 if len(ends[0]) >= len(ends[1]) else 1  # the more there are, the fewer edges each
        columns = list(dict.fromkeys((ID, *self._matched_by)))
        found = view.rows_where_in(self._key, (SRC, DST)[at], ends[at], columns)
        texts = match_texts(self._type, self._matched_by, found)
        wanted = match_texts(self._type, self._matched_by, self._rows)
        adopted = found[ID].take(pc.index_in(wanted, value_set=texts, skip_nulls=True))
        self._rows = _with(self._rows, ID, pc.coalesce(adopted, self._rows[ID]))
        self._given_ids = adopted.drop_null().combine_chunks()

    def _existing(self, view: SnapshotReader, columns: list[str]) -> pa.Table:
        """The committed rows with ids of the input; minted ids cannot match."""
        if not len(self._given_ids) or view.is_empty(self._key):
            return self._rows.schema.empty_table().select(columns)
        return view.rows_where_in(self._key, ID, self._given_ids, columns)

    def _completed(self, existing: pa.Table, at: npt.NDArray[np.int64]) -> pa.Table:
        """The records with the stored values of what they lack, blobs excepted."""
        rows = self._rows
        if not existing.num_rows:
            return rows
        for name in self._absent.names:
            if name not in self._blobs:
                is_stored = self._absent.lacking(name) & (at >= 0)
                stored = existing[name].take(pa.array(at[is_stored]))
                rows = _with(rows, name, completed(rows[name], stored, is_stored))
        return rows

    def _missing(self, is_known: Mask) -> Iterator[tuple[int, str]]:
        for name in self._absent.names:
            if is_needed(self._type.properties[name]):
                is_missing = self._absent.lacking(name) & ~is_known
                yield from ((row, name) for row in np.flatnonzero(is_missing).tolist())

    def _with_stored_blobs(
        self,
        rows: pa.Table,
        name: str,
        is_stored: Mask,
        view: SnapshotReader,
        limits: WriteLimits | None,
    ) -> pa.Table:
        ids = rows[ID].filter(pa.array(is_stored)).combine_chunks()
        if limits is not None:
            size = pc.sum(view.blob_sizes(self._key, name, ids), min_count=0).as_py()
            Budget(limits, self._key).charge(rows=rows.num_rows, bytes=rows.nbytes + size)
        stored = pa.chunked_array([view.blobs(self._key, name, ids)])
        return _with(rows, name, completed(rows[name], stored, is_stored))


def _with(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), column)
