"""The nodes of one type at one snapshot, by slot: existence and values.

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

from omnigraph.engines.local.ids import ABSENT, AnySpace, IdSpace, Slots
from omnigraph.engines.local.rows import (
    Load,
    Mask,
    Positions,
    RowView,
    checked_rows,
    fixed_numbers,
    of_numbers,
    taken,
)
from omnigraph.engines.local.sorting import sorted_distinct, stable_order
from omnigraph.model.arrow import ID
from omnigraph.model.governor import current
from omnigraph.model.references import ids_in
from omnigraph.query.expressions import NODE_ID, NODE_TYPE
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import FragmentState
from omnigraph.storage.reader import SnapshotReader

EDITS_MAX = 4_096
"""From this many changed rows, derived data is built anew instead of edited."""

FEW_SLOTS = 1_024
"""At most this many nodes are looked up among the changed ones."""


class NodeTable(Protocol):
    """One node type at one snapshot."""

    @property
    def space(self) -> AnySpace:
        """The slots of the type."""
        ...

    def present(self, slots: Slots) -> Mask | None:
        """Which of these nodes exist; None if all of them do."""
        ...

    def values(self, property: str, type: pa.DataType, slots: Slots) -> pa.Array:
        """A property of some nodes; null for `ABSENT`."""
        ...


class TypeTable(NodeTable, Protocol):
    """The nodes of a type, not of an interface: each has a row in this table."""

    def rows(self, slots: Slots) -> Positions:
        """The rows of some nodes, negative for those that do not exist in this version."""
        ...

    def at(self, property: str, type: pa.DataType, rows: Positions) -> pa.Array:
        """A stored property at some rows; null where a row is negative."""
        ...


class RowNumbers:
    """The row position of each slot in one version."""

    def __init__(
        self, rows: Positions, same: int | None, edited: tuple[Slots, Positions] | None = None
    ) -> None:
        # Has free entries at the end; index `ABSENT` (-1) reads the last of them.
        self._state = rows, edited
        """The rows of all slots, possibly of an earlier version, and the edits of this version.

        Replaced as a whole, because other threads read it without a lock.
        """
        self._same = same
        """The number of slots if each equals its row, as in a table written once; else None."""

    @classmethod
    def build(cls, slots: Slots, positions: Positions, space_size: int) -> RowNumbers:
        """Build from the slots of all positions, and the positions that exist."""
        rows = _grown(np.zeros(1, np.int32), space_size)
        rows[slots[positions]] = positions
        same = len(positions) == len(slots) == space_size and bool((slots == positions).all())
        return cls(rows, space_size if same else None)

    def changed(
        self, added: tuple[Slots, Positions], removed: Slots, layout_size: int, space_size: int
    ) -> RowNumbers:
        """The rows after some were added and removed; positions mean the same before and after."""
        rows, edited = self._state
        before = edited or (rows[:0], rows[:0])
        slots = np.concatenate([before[0], removed, added[0]])
        places = np.concatenate([before[1], np.full(len(removed), ABSENT, np.int32), added[1]])
        # The last entry of a slot wins: an updated row is removed and added.
        order = stable_order(slots)
        slots, places = slots[order], places[order]
        last = np.ones(len(slots), np.bool_)
        last[:-1] = slots[1:] != slots[:-1]
        size = -1 if self._same is None or len(removed) else self._same + len(added[0])
        same = size == space_size == layout_size and bool((added[0] == added[1]).all())
        made = RowNumbers(rows, size if same else None, (slots[last], places[last]))
        if len(slots) > EDITS_MAX:
            made._merge()
        return made

    @property
    def nbytes(self) -> int:
        """Memory of the rows, also while an earlier version shares them."""
        return int(self._state[0].nbytes)

    def slots(self) -> Slots:
        """The slots that have a row, ascending."""
        return np.flatnonzero(self._merge() >= 0).astype(np.int32)

    def of(self, slots: Slots, space_size: int) -> Positions:
        """The rows of some slots, `ABSENT` for slots without one."""
        if space_size == self._same:
            return slots
        rows, edited = self._state
        if space_size >= len(rows):
            # Ids added since belong to other versions.
            rows = _grown(rows, space_size)
            self._state = rows, edited
        if edited is not None:
            if len(slots) <= FEW_SLOTS:
                return _with_edits(rows.take(slots), slots, edited)
            rows = self._merge()
        if len(slots) == 1:
            # A slice, because `take` releases the GIL, which costs more than reading one row.
            slot = int(slots[0]) % len(rows)
            return rows[slot : slot + 1]
        return rows.take(slots)

    def _merge(self) -> Positions:
        """The rows of all slots."""
        rows, edited = self._state
        if edited is not None:
            needed = int(edited[0][-1]) + 1 if len(edited[0]) else 0
            rows = rows.copy() if needed < len(rows) else _grown(rows, needed)
            rows[edited[0]] = edited[1]
            self._state = rows, None
        return rows


def _grown(rows: Positions, size: int) -> Positions:
    """A copy with at least ``size`` entries, and free ones at the end."""
    size = max(size, len(rows) - 1)
    grown = np.full(size + max(size // 16, 64), ABSENT, np.int32)
    grown[: len(rows) - 1] = rows[:-1]
    return grown


def _with_edits(rows: Positions, slots: Slots, edited: tuple[Slots, Positions]) -> Positions:
    places = np.searchsorted(edited[0], slots)
    hit = edited[0].take(places, mode="clip") == slots if len(edited[0]) else slots < ABSENT
    if hit.any():
        rows[hit] = edited[1][places[hit]]
    return rows


def slots_of_ids(space: AnySpace) -> Load:
    """A loader of the slots of a node table's own rows."""

    def load(handle: Handle, fragments: Sequence[FragmentState]) -> Slots:
        batches = [batch.column(0) for batch in checked_rows(handle, fragments, ID)]
        if not batches:
            return np.zeros(0, np.int32)
        # The live ids of a version are distinct; deleted rows may repeat them. All batches are
        # interned at once, so that the space is built once.
        distinct = all(fragment.deletions is None for fragment in fragments)
        return space.intern(pa.concat_arrays(batches), distinct=distinct)

    return load


class CachedNodes:
    """Nodes whose columns are cached in memory."""

    def __init__(self, view: RowView, space: AnySpace) -> None:
        self.view = view
        self.space = space
        self.slots: Slots = view.derived((ID, space.serial), slots_of_ids(space))
        """The slot of each position, deleted rows included."""
        self._numbers: RowNumbers = view.keep(("rows", space.serial), self._numbered)

    def _numbered(self) -> RowNumbers:
        view = self.view
        earlier = view.nearest_with(("rows", self.space.serial))
        known = None if earlier is None else earlier.made.get(("rows", self.space.serial))
        if earlier is not None and isinstance(known, RowNumbers):
            added, removed = view.changed_since(earlier)
            few = len(added) + len(removed) <= EDITS_MAX
            if few and earlier.layout.begins(view.layout):
                return known.changed(
                    (self.slots[added], added),
                    self.slots[removed],
                    view.layout.size,
                    len(self.space),
                )
        return RowNumbers.build(self.slots, view.positions(), len(self.space))

    def rows(self, slots: Slots) -> Positions:
        """The positions of some nodes, `ABSENT` for those that do not exist in this version."""
        return self._numbers.of(slots, len(self.space))

    def present(self, slots: Slots) -> Mask | None:
        """Which of these nodes exist; None if all of them do."""
        if self.view.count == len(self.space):
            return None
        rows = self.rows(slots)
        if len(rows) == 1 and int(rows[0]) >= 0:
            return None  # fast path of point queries
        found: Mask = rows >= 0
        return None if found.all() else found

    def values(self, property: str, type: pa.DataType, slots: Slots) -> pa.Array:
        """A property of some nodes; null for `ABSENT`."""
        if property == ID:
            return self.space.strings(slots)
        return self.at(property, type, self.rows(slots))

    def at(self, property: str, type: pa.DataType, rows: Positions) -> pa.Array:
        """A stored property at some rows; null where a row is negative."""
        return taken(self.view.column(property, type), rows)

    def every(self) -> Slots:
        """All nodes in the order of their slots, which is the order of adjacency."""
        if self.view.count == len(self.space):
            return np.arange(len(self.space), dtype=np.int32)
        return self._numbers.slots()


class FetchedNodes:
    """Nodes read on demand, with all columns that the query needs."""

    def __init__(
        self,
        reader: SnapshotReader,
        table_key: str,
        space: AnySpace,
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
        found: Mask = self.rows(slots) >= 0
        return None if found.all() else found

    def values(self, property: str, type: pa.DataType, slots: Slots) -> pa.Array:
        """A property of some nodes; null for `ABSENT`."""
        if property == ID:
            return self.space.strings(slots)
        return self.at(property, type, self.rows(slots))

    def at(self, property: str, type: pa.DataType, rows: Positions) -> pa.Array:
        """A property at some rows; null where a row is negative."""
        if property not in self._chunks:
            return pa.nulls(len(rows), type)
        return taken(self._column(property, type), rows)

    def find(self, unknown: pa.Array) -> Slots:
        """The slots of nodes whose ids have no slot yet; nodes that do not exist get none."""
        rows = self._reader.rows_where_in(self._key, ID, unknown, self.columns)
        return self.add(rows, adds_cost=True)

    def add(self, table: pa.Table, *, adds_cost: bool = False) -> Slots:
        """Add rows with their ids and all needed columns; ``adds_cost`` counts a lookup of them."""
        current().hold(table.nbytes)  # charged to the query, which keeps the rows
        if adds_cost:
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
        """The columns that are read for every row."""
        return [ID, *self._stored]

    def rows(self, slots: Slots) -> Positions:
        """The rows of some slots, fetched if they are missing; negative if there is none."""
        self._grow()
        rows: Positions = self._rows[slots]
        unasked = slots[(rows == _UNASKED) & (slots >= 0)]
        if len(unasked):
            distinct = sorted_distinct(unasked)
            ids = self.space.strings(distinct).drop_null()  # nodes of other types have no id here
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


class UnionNodes:
    """The nodes of all types that implement an interface; their slots are those of references."""

    def __init__(self, space: IdSpace, parts: Mapping[str, TypeTable]) -> None:
        """``parts`` are by the names of the types."""
        self.space = space
        self.parts = parts

    def present(self, slots: Slots) -> Mask | None:
        """Which of these nodes exist; None if all of them do."""
        found = np.zeros(len(slots), np.bool_)
        for part in self.parts.values():
            one = part.present(slots)
            if one is None:
                return None
            found |= one
        return None if found.all() else found

    def values(self, property: str, type: pa.DataType, slots: Slots) -> pa.Array:
        """A property of some nodes, their id or the name of their type; null for `ABSENT`."""
        if property in (ID, NODE_ID):
            return ids_in(self.space.strings(slots))
        found: list[pa.Array] = []
        owners: list[npt.NDArray[np.intp]] = []
        """The row numbers of ``slots`` whose values each part has."""
        for name, part in self.parts.items():
            rows = part.rows(slots)
            own = np.flatnonzero(rows >= 0)
            if not len(own):
                continue
            if property == NODE_TYPE:
                found.append(pa.repeat(pa.scalar(name, pa.string()), len(own)))
            elif len(own) == len(slots):
                return part.at(property, type, rows)  # all nodes are of this type
            else:
                found.append(part.at(property, type, rows.take(own)))
            owners.append(own)
        return _interleaved(found, owners, len(slots), type)


def _interleaved(
    parts: Sequence[pa.Array], owners: Sequence[npt.NDArray[np.intp]], count: int, type: pa.DataType
) -> pa.Array:
    """The values of several parts in their rows; null in rows without a part."""
    numbers = [fixed_numbers(part) for part in parts]
    if numbers and sum(map(len, owners)) == count and all(one is not None for one in numbers):
        found = np.empty(count, f"i{type.bit_width // 8}")
        for own, one in zip(owners, numbers, strict=True):
            found[own] = one
        return of_numbers(found, type)
    places = np.zeros(count, np.int64)
    """The index of each value after the parts are concatenated behind a null."""
    first = 1
    for own in owners:
        places[own] = np.arange(first, first + len(own))
        first += len(own)
    return pa.concat_arrays([pa.nulls(1, type), *parts]).take(pa.array(places))


def single(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
