"""The rows of one type that differ between two snapshots.

Candidates are found by their location: rows in fragments that both versions list are equal, on any
branch (`storage.row_places`). The remaining rows of both sides are joined by id, and pairs are
compared value by value. The cost depends on the changes, not on the size of the type.

Candidates beyond the memory budget are joined in ranges of ids (`spill`). Then only three numbers
per differing entity stay in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import Mask, RowsAt, TableRows, same_rows
from omnigraph.model.arrow import ID
from omnigraph.model.records import dataclass
from omnigraph.storage.fragments import Positions
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.row_places import (
    ALWAYS,
    NOWHERE,
    PLACES,
    POSITION,
    UPDATED_AT,
    positions_in,
    unshared_rows,
)
from omnigraph.views import ViewedReader

INSERT, UPDATE, DELETE = range(3)
"""Operations, in the order of `model.changes.CHANGE_OPS`."""

SAMPLED = 32
"""Ids sampled per range, so that ranges have about equal sizes."""


@dataclass(frozen=True, eq=False)
class Changes:
    """Differing entities of one type, as columns with one entry each."""

    ids: pa.ChunkedArray
    ops: npt.NDArray[np.int8]
    before: Positions
    """Row positions in the older version; undefined for inserted entities."""
    after: Positions
    """Row positions in the newer version; undefined for deleted entities."""

    def __len__(self) -> int:
        return len(self.ops)

    def at(self, places: npt.NDArray[np.int64]) -> Changes:
        """The entries at some indexes, in the given order."""
        ids = self.ids.take(pa.array(places))
        return Changes(ids, self.ops[places], self.before[places], self.after[places])

    def chosen(self, mask: Mask) -> Changes:
        """The entries for which ``mask`` holds."""
        return self.at(np.flatnonzero(mask))

    def count(self, op: int) -> int:
        """The number of entries with an operation."""
        return int((self.ops == op).sum())

    @classmethod
    def joined(cls, parts: Sequence[Changes]) -> Changes:
        """Concatenate one or more parts."""
        return cls(
            pa.chunked_array([chunk for part in parts for chunk in part.ids.chunks], pa.string()),
            np.concatenate([part.ops for part in parts]),
            np.concatenate([part.before for part in parts]),
            np.concatenate([part.after for part in parts]),
        )


_NOWHERE_AT_ALL: Positions = np.zeros(0, np.int64)
NO_CHANGES = Changes(
    pa.chunked_array([], pa.string()), np.zeros(0, np.int8), _NOWHERE_AT_ALL, _NOWHERE_AT_ALL
)


@dataclass(frozen=True, eq=False)
class TableDelta:
    """The differences from one version of a type to another."""

    before: TableRows
    after: TableRows
    changes: Changes
    """In ascending order of ids."""
    places: pa.Table
    """Rows of the newer version that are not in shared fragments, changed or not."""

    @property
    def is_empty(self) -> bool:
        """Whether both versions have the same content."""
        return not len(self.changes)

    def where_now(self, ids: pa.ChunkedArray, before: Positions) -> Positions:
        """The row positions of unchanged entities in the newer version.

        ``before`` are their positions in the older version.
        """
        positions = positions_in(self.before.handle, before, self.after.handle)
        moved = np.flatnonzero(positions == NOWHERE)
        if len(moved):
            at = pc.index_in(ids.take(pa.array(moved)), value_set=self.places[ID])
            positions[moved] = _numbers(self.places[POSITION])[_numbers(at)]
        return positions


@dataclass(frozen=True)
class IdRange:
    """Ids from ``low`` (inclusive) to ``high`` (exclusive); None for no bound."""

    low: str | None = None
    high: str | None = None

    def of(self, rows: pa.Table) -> pa.Table:
        """The rows whose ids are in the range."""
        bounds = []
        if self.low is not None:
            bounds.append(pc.greater_equal(rows[ID], self.low))
        if self.high is not None:
            bounds.append(pc.less(rows[ID], self.high))
        return rows.filter(reduce(pc.and_, bounds)) if bounds else rows


@dataclass(frozen=True, eq=False)
class Candidates:
    """The rows of two versions of one type that may differ, as they are not shared."""

    before: TableRows
    after: TableRows
    left: pa.Table
    """Rows of the older version, as `PLACES`."""
    right: pa.Table
    """Rows of the newer version."""

    @classmethod
    def of(cls, before: TableRows, after: TableRows, spill: Spill) -> Candidates:
        """Collect all candidates."""
        if pin(before) == pin(after):
            nothing = PLACES.empty_table()
            return cls(before, after, *visible_candidates((before, nothing), (after, nothing)))
        tables = []
        for mine, other in ((before, after), (after, before)):
            rows = spill.rows(PLACES)
            for part in unshared_rows(mine.handle, other.handle):
                rows.add(part)
            tables.append(rows.table())
        sides = zip((before, after), tables, strict=True)
        return cls(before, after, *visible_candidates(*sides))

    def within(self, ids: IdRange) -> TableDelta:
        """The actual differences among the candidates in a range."""
        left, right = ids.of(self.left), ids.of(self.right)
        at_left = pc.index_in(right[ID], value_set=left[ID])
        is_new = at_left.is_null().to_numpy(zero_copy_only=False)
        partner = _numbers(at_left.drop_null())
        is_gone = np.ones(left.num_rows, np.bool_)
        is_gone[partner] = False
        pairs = Changes(
            right[ID].filter(pa.array(~is_new)),
            np.full(len(partner), UPDATE, np.int8),
            _numbers(left[POSITION])[partner],
            _numbers(right[POSITION])[~is_new],
        )
        pairs = pairs.chosen(self._may_differ(left, right, partner, ~is_new))
        same = same_rows(RowsAt(self.before, pairs.before), RowsAt(self.after, pairs.after))
        changes = Changes.joined(
            [
                _one_sided(right, is_new, INSERT),
                pairs.chosen(~same),
                _one_sided(left, is_gone, DELETE),
            ]
        )
        order = pc.sort_indices(changes.ids).to_numpy()
        return TableDelta(self.before, self.after, changes.at(order), right)

    def _may_differ(
        self, left: pa.Table, right: pa.Table, at_left: Positions, at_right: Mask
    ) -> Mask:
        """Which pairs may come from different versions, as far as row versions tell."""
        if ref_of(self.before) != ref_of(self.after):
            return np.ones(len(at_left), np.bool_)
        # Compared by inequality: after a restore, a newer version contains older rows.
        mine = _numbers(left[UPDATED_AT])[at_left]
        theirs = _numbers(right[UPDATED_AT])[at_right]
        different: Mask = (mine != theirs) | (mine == ALWAYS)
        return different


def table_delta(before: TableRows, after: TableRows, spill: Spill) -> TableDelta:
    """The differences between two versions of one type, possibly on different branches."""
    return _delta(Candidates.of(before, after, spill), spill)


def lifetime_delta(rows: TableRows, op: int, spill: Spill) -> TableDelta:
    """All entities of a type that only one of two snapshots has, as inserted or deleted."""
    found = spill.rows(PLACES)
    if isinstance(rows.reader, ViewedReader):
        found.add(_visible_places(rows))
    elif not rows.reader.is_empty(rows.key):
        for batch in rows.reader.batches(rows.key, [ID]):
            positions = np.arange(found.num_rows, found.num_rows + batch.num_rows)
            found.add(pa.table([batch[ID], positions, positions.astype(np.uint64)], schema=PLACES))
    everything, nothing = found.table(), PLACES.empty_table()
    sides = (nothing, everything) if op == INSERT else (everything, nothing)
    return _delta(Candidates(rows, rows, *sides), spill)


def visible_candidates(
    before: tuple[TableRows, pa.Table], after: tuple[TableRows, pa.Table]
) -> tuple[pa.Table, pa.Table]:
    """The visible candidates of two versions.

    An unwritten edge also differs if a node at one of its ends became visible or hidden, which is
    found by scanning all edges.
    """
    sides = (before, after)
    readers = [rows.reader for rows, _ in sides]
    if not all(isinstance(reader, ViewedReader) for reader in readers):
        return before[1], after[1]
    places = [_visible_among(*side) for side in sides]
    if _ends_moved(before[0], after[0]):
        whole = [_visible_places(rows) for rows, _ in sides]
        for at, other in ((0, 1), (1, 0)):
            appeared = pc.invert(
                pc.or_(
                    pc.is_in(whole[at][ID], value_set=whole[other][ID]),
                    pc.is_in(whole[at][POSITION], value_set=places[at][POSITION]),
                )
            )
            places[at] = pa.concat_tables([places[at], whole[at].filter(appeared)])
    return places[0], places[1]


def _visible_among(rows: TableRows, places: pa.Table) -> pa.Table:
    reader = rows.reader
    assert isinstance(reader, ViewedReader)
    if not reader.restricts(rows.key) or not places.num_rows:
        return places
    return places.filter(reader.mask_at(rows.key, _numbers(places[POSITION])))


def _visible_places(rows: TableRows) -> pa.Table:
    """All visible rows of a type, as `PLACES`."""
    if rows.reader.is_empty(rows.key):
        return PLACES.empty_table()
    ids, positions = rows.reader.places(rows.key)
    written = np.full(len(ids), ALWAYS, np.uint64)
    return pa.table([ids, positions, written], schema=PLACES)


def _ends_moved(before: TableRows, after: TableRows) -> bool:
    """Whether the visible nodes at the ends of edges may have changed."""
    view = before.reader.view if isinstance(before.reader, ViewedReader) else None
    if view is None:
        return False
    nodes = [node.table_key for ends in view.ends(before.key).values() for node in ends]
    return any(
        view.restricts(key) and _version(before.reader, key) != _version(after.reader, key)
        for key in nodes
    )


def _version(reader: SnapshotReader, table_key: str) -> tuple[str, str | None, int] | None:
    entry = reader.snapshot.tables.get(table_key)
    return None if entry is None else (reader.root_uri, entry.ref, entry.version)


def _delta(candidates: Candidates, spill: Spill) -> TableDelta:
    ids = spill.rows(pa.schema([(ID, pa.string())]))
    numbers = [NO_CHANGES]
    for range in id_ranges([candidates.left, candidates.right], spill.part_bytes):
        changes = candidates.within(range).changes
        # Keep the ids in the spillable collection.
        ids.add(pa.table({ID: changes.ids}))
        numbers.append(replace(changes, ids=NO_CHANGES.ids))
    changes = replace(Changes.joined(numbers), ids=ids.table()[ID])
    return TableDelta(candidates.before, candidates.after, changes, candidates.right)


def id_ranges(tables: Sequence[pa.Table], bytes_max: int) -> Iterator[IdRange]:
    """Ranges that cover all ids in ascending order, each with about ``bytes_max`` of ``tables``."""
    rows = sum(table.num_rows for table in tables)
    size = sum(table.nbytes for table in tables)
    wanted = min(-(-size // bytes_max), rows)
    if wanted <= 1:
        yield IdRange()
        return
    step = max(1, rows // (wanted * SAMPLED))
    sampled = [table[ID].take(pa.array(np.arange(0, table.num_rows, step))) for table in tables]
    ids = pc.unique(pa.chunked_array([chunk for ids in sampled for chunk in ids.chunks]))
    ids = ids.take(pc.sort_indices(ids))
    at = np.unique(np.arange(1, wanted) * len(ids) // wanted)
    bounds: list[str | None] = ids.take(pa.array(at[at > 0])).to_pylist()
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        yield IdRange(low, high)


def ref_of(rows: TableRows) -> tuple[str, str | None]:
    """The location of the table, including its graph, and the ref of its version."""
    return rows.root_uri, rows.entry.ref


def pin(rows: TableRows) -> tuple[str, str | None, int]:
    """The table version that a snapshot shows."""
    return *ref_of(rows), rows.entry.version


def _one_sided(rows: pa.Table, mask: Mask, op: int) -> Changes:
    """Entities that only one of two versions has."""
    positions = _numbers(rows[POSITION])[mask]
    ops = np.full(len(positions), op, np.int8)
    return Changes(rows[ID].filter(pa.array(mask)), ops, positions, positions)


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = column.to_numpy()
    return numbers
