"""The nodes of one type at one snapshot: existence and property values by slot.

There are two implementations with the same results. `CachedNodes` holds whole columns in memory and
serves warm graphs. `FetchedNodes` reads only the rows a query needs through Lance's indexes, which
serves the first query of a process and graphs larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.ids import ABSENT, IdSpace, Slots
from omnigraph.engines.local.rows import Load, Mask, Positions, RowView
from omnigraph.model.arrow import ID
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import FragmentState, stored_rows
from omnigraph.storage.reader import SnapshotReader


class NodeTable(Protocol):
    """One node type at one snapshot."""

    @property
    def space(self) -> IdSpace:
        """The slots of the type."""
        ...

    def present(self, slots: Slots) -> Mask | None:
        """Which of these nodes exist; None if all of them do."""
        ...

    def values(self, property: str, type: pa.DataType, slots: Slots) -> pa.Array:
        """A property of some nodes; null for `ABSENT`."""
        ...


class RowNumbers:
    """The row position of each slot in one version."""

    def __init__(self, rows: Positions, same: bool) -> None:
        # One extra entry at the end, which `ABSENT` (-1) reads.
        self._rows = rows
        self._same = same
        """Whether every slot equals its row, as in a table written once."""

    @classmethod
    def build(cls, slots: Slots, positions: Positions, space_size: int) -> RowNumbers:
        """From the slots of all positions, and the positions that exist."""
        rows = np.full(space_size + 1, ABSENT, np.int32)
        rows[slots[positions]] = positions
        same = len(positions) == len(slots) == space_size and bool((slots == positions).all())
        return cls(rows, same)

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return int(self._rows.nbytes)

    def slots(self) -> Slots:
        """The slots that have a row, ascending."""
        return np.flatnonzero(self._rows[:-1] >= 0).astype(np.int32)

    def of(self, slots: Slots, space_size: int) -> Positions:
        """The rows of some slots, `ABSENT` where there is none."""
        if space_size >= len(self._rows):
            # Ids interned since belong to other versions.
            grown = np.full(space_size + 1, ABSENT, np.int32)
            grown[: len(self._rows) - 1] = self._rows[:-1]
            self._same = False  # before `_rows`: other threads read without a lock
            self._rows = grown
        if self._same:
            return slots
        if len(slots) == 1:
            # A slice, because `take` releases the GIL, which costs more than one row.
            slot = int(slots[0]) % len(self._rows)
            return self._rows[slot : slot + 1]
        return self._rows.take(slots)


def slots_of_ids(space: IdSpace) -> Load:
    """A loader of the slots of a node table's own rows."""

    def load(handle: Handle, fragments: Sequence[FragmentState]) -> Slots:
        batches = [batch.column(0) for batch in stored_rows(handle, fragments, [ID])]
        if not batches:
            return np.zeros(0, np.int32)
        # The live ids of a version are distinct; deleted rows may repeat them. All batches are
        # interned at once, so that the space is built once.
        distinct = all(fragment.deletions is None for fragment in fragments)
        return space.intern(pa.concat_arrays(batches), distinct=distinct)

    return load


def slots_of_ends(space: IdSpace, column: str) -> Load:
    """A loader of the slots at one end of edges, batch by batch."""

    def load(handle: Handle, fragments: Sequence[FragmentState]) -> Slots:
        slots = np.empty(sum(fragment.rows for fragment in fragments), np.int32)
        at = 0
        for batch in stored_rows(handle, fragments, [column]):
            slots[at : at + batch.num_rows] = space.intern(batch.column(0))
            at += batch.num_rows
        return slots

    return load


class CachedNodes:
    """Nodes whose columns are cached in memory."""

    def __init__(self, view: RowView, space: IdSpace) -> None:
        self.view = view
        self.space = space
        self.slots: Slots = view.derived((ID, space.serial), slots_of_ids(space))
        """By position, deleted rows included."""
        self._numbers: RowNumbers = view.keep(
            ("rows", space.serial),
            lambda: RowNumbers.build(self.slots, view.positions(), len(space)),
        )

    def rows(self, slots: Slots) -> Positions:
        """The positions of some nodes, `ABSENT` for those that do not exist here."""
        return self._numbers.of(slots, len(self.space))

    def present(self, slots: Slots) -> Mask | None:
        """Which of these nodes exist; None if all of them do."""
        if self.view.count == len(self.space):
            return None
        found: Mask = self.rows(slots) >= 0
        return None if found.all() else found

    def values(self, property: str, type: pa.DataType, slots: Slots) -> pa.Array:
        """A property of some nodes; null for `ABSENT`."""
        if property == ID:
            return self.space.strings(slots)
        return taken(self.view.column(property, type), self.rows(slots))

    def every(self) -> Slots:
        """All nodes in the order of their slots, which is the order of adjacency."""
        if self.view.count == len(self.space):
            return np.arange(len(self.space), dtype=np.int32)
        return self._numbers.slots()


class FetchedNodes:
    """Nodes read on demand, with all columns the query needs."""

    def __init__(
        self,
        reader: SnapshotReader,
        table_key: str,
        space: IdSpace,
        columns: Mapping[str, pa.DataType],
        spend: Callable[[int], None],
    ) -> None:
        self.space = space
        self._spend = spend
        self._reader = reader
        self._key = table_key
        self._stored = [name for name in reader.available(table_key, columns) if name != ID]
        self._chunks: dict[str, list[pa.Array]] = {name: [] for name in self._stored}
        self._count = 0
        self._rows = np.full(1, _UNASKED, np.int32)

    def present(self, slots: Slots) -> Mask | None:
        """Which of these nodes exist; None if all of them do."""
        found: Mask = self._ensured(slots) >= 0
        return None if found.all() else found

    def values(self, property: str, type: pa.DataType, slots: Slots) -> pa.Array:
        """A property of some nodes; null for `ABSENT`."""
        if property == ID:
            return self.space.strings(slots)
        rows = self._ensured(slots)
        if property not in self._chunks:
            return pa.nulls(len(slots), type)
        return taken(self._column(property, type), rows)

    def find(self, node_id: str) -> Slots:
        """The slot of a node with an unknown id; none if it does not exist."""
        wanted = pa.array([node_id], pa.string())
        rows = self._reader.rows_where_in(self._key, ID, wanted, self.columns)
        return self.add(rows, paid=True)

    def add(self, table: pa.Table, *, paid: bool = False) -> Slots:
        """Add rows with their ids and all needed columns; ``paid`` adds their cost."""
        if paid:
            self._spend(table.num_rows)
        slots = self.space.intern(single(table[ID]))
        self._grow()
        fresh = self._rows[slots] < 0
        if not fresh.all():
            table = table.filter(pa.array(fresh))
        for name in self._stored:
            self._chunks[name].append(single(table[name]))
        new = slots[fresh]
        self._rows[new] = np.arange(self._count, self._count + len(new), dtype=np.int32)
        self._count += len(new)
        return slots

    @property
    def columns(self) -> list[str]:
        """The columns to read of every row."""
        return [ID, *self._stored]

    def _ensured(self, slots: Slots) -> Positions:
        """The rows of some slots, read if they are missing."""
        self._grow()
        rows: Positions = self._rows[slots]
        unasked = slots[(rows == _UNASKED) & (slots >= 0)]
        if len(unasked):
            distinct = np.unique(unasked)
            ids = self.space.strings(distinct)
            self._rows[distinct] = ABSENT
            self._spend(len(ids))
            self.add(self._reader.rows_where_in(self._key, ID, ids, self.columns))
            rows = self._rows[slots]
        return rows

    def _grow(self) -> None:
        size = len(self.space) + 1
        if size > len(self._rows):
            grown = np.full(max(size, 2 * len(self._rows)), _UNASKED, np.int32)
            grown[: len(self._rows) - 1] = self._rows[:-1]
            self._rows = grown

    def _column(self, name: str, type: pa.DataType) -> pa.Array:
        chunks = self._chunks[name]
        if len(chunks) != 1:
            chunks[:] = [pa.concat_arrays(chunks) if chunks else pa.array([], type)]
        return chunks[0]


_UNASKED = -2
"""The row of a slot that was not looked up yet."""


def taken(column: pa.Array, rows: npt.NDArray[np.integer]) -> pa.Array:
    """The values at some rows; null where the row is negative."""
    if len(rows) == 1 and (row := int(rows[0])) >= 0:
        return column.slice(row, 1)  # no copy for a point query
    if len(rows) and int(rows.min()) < 0:
        return column.take(pa.array(rows, mask=rows < 0))
    return column.take(pa.array(rows))


def single(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
