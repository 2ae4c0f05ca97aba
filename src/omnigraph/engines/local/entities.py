"""The nodes and edges of one type at one snapshot, by slot: existence, neighbours and values.

Both have two implementations with the same results. `CachedNodes` and `CachedEdges` hold whole
columns and sorted adjacency in memory and serve warm graphs. `FetchedNodes` and `FetchedEdges` read
only the rows a query needs through Lance's indexes, which serves the first query of a process and
graphs larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import (
    Adjacency,
    Counts,
    EdgeOrder,
    OrderChange,
    spread_values,
)
from omnigraph.engines.local.ids import ABSENT, AnySpace, IdSpace, Slots
from omnigraph.engines.local.reach import Neighbours
from omnigraph.engines.local.rows import Load, Mask, Positions, RowView, checked_rows, taken
from omnigraph.engines.local.sorting import sorted_distinct, sorted_numbers, stable_order
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.governor import current
from omnigraph.model.references import ids_in
from omnigraph.query.expressions import NODE_ID, NODE_TYPE
from omnigraph.query.plan import Direction
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import FragmentState
from omnigraph.storage.reader import SnapshotReader

# --- nodes ----------------------------------------------------------------------------------------


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


def slots_of_ends(space: AnySpace, column: str) -> Load:
    """A loader of the slots at one end of edges, batch by batch."""

    def load(handle: Handle, fragments: Sequence[FragmentState]) -> Slots:
        slots = np.empty(sum(fragment.rows for fragment in fragments), np.int32)
        at = 0
        for batch in checked_rows(handle, fragments, column):
            slots[at : at + batch.num_rows] = space.intern(batch.column(0))
            at += batch.num_rows
        return slots

    return load


class CachedNodes:
    """Nodes whose columns are cached in memory."""

    def __init__(self, view: RowView, space: AnySpace) -> None:
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
        current().hold(table.nbytes)  # the query keeps what it has fetched
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
            distinct = sorted_distinct(unasked)
            ids = self.space.strings(distinct).drop_null()  # without nodes of other types
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

    def __init__(self, space: IdSpace, parts: Mapping[str, NodeTable]) -> None:
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
        columns = [pa.nulls(1, type)]
        places = np.zeros(len(slots), np.int64)
        """Of each value in ``columns``, laid one after the other."""
        count = 1
        for name, part in self.parts.items():
            present = part.present(slots)
            own = np.flatnonzero(slots >= 0 if present is None else present & (slots >= 0))
            if property == NODE_TYPE:
                columns.append(pa.repeat(pa.scalar(name, pa.string()), len(own)))
            else:
                columns.append(part.values(property, type, slots[own]))
            places[own] = np.arange(count, count + len(own))
            count += len(own)
        return pa.concat_arrays(columns).take(pa.array(places))


def single(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


# --- edges ----------------------------------------------------------------------------------------


CHANGED_SHARE_MAX = 10
"""Beyond a tenth of all edges, building adjacency anew is cheaper than applying changes."""


_EDITS_MAX = 4_096
"""Beyond so many changed edges, their order is made anew."""


class EdgeTable(Protocol):
    """One edge type at one snapshot."""

    def neighbours(self, direction: Direction) -> Neighbours:
        """Neighbours seen from the source (`out`), the target (`in`) or either end."""
        ...

    def contains(self, direction: Direction, sources: Slots, targets: Slots) -> Mask:
        """For each pair, whether an edge leads from the one to the other."""
        ...

    def at(self, direction: Direction, slots: Slots) -> tuple[Positions, Slots, Counts]:
        """The edges at each node: edge, the node at its other end, and how many each has."""
        ...

    def values(self, property: str, type: pa.DataType, edges: Positions) -> pa.Array:
        """A stored column of some edges; null for a negative one."""
        ...


@dataclass(frozen=True, slots=True)
class _CachedNeighbours:
    adjacency: Adjacency
    target_space: AnySpace

    @property
    def has_parallels(self) -> bool:
        return self.adjacency.has_parallels

    @property
    def has_loops(self) -> bool:
        return self.adjacency.has_loops

    @property
    def node_count(self) -> int:
        return len(self.target_space)

    def expected(self, slots: Slots) -> int:
        return int(self.adjacency.degrees(slots).sum())

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        return self.adjacency.gather(slots)


@dataclass(frozen=True, slots=True)
class _Existence:
    """Whether the nodes that edges lead to all exist in a version of their type."""

    view: RowView
    everywhere: bool

    @property
    def nbytes(self) -> int:
        return 64


class CachedEdges:
    """Edges whose ends are cached in memory."""

    def __init__(self, view: RowView, sources: AnySpace, targets: AnySpace) -> None:
        self.view = view
        self._sources = sources
        self._targets = targets
        self._same_type = sources.serial == targets.serial

    def neighbours(self, direction: Direction) -> Neighbours:
        """Neighbours in a direction."""
        space = self._sources if direction == "in" else self._targets
        return _CachedNeighbours(self.adjacency(direction), space)

    def is_sorted(self, direction: Direction) -> bool:
        """Whether the adjacency of this version is built."""
        return self._key(direction) in self.view.made

    def adjacency(self, direction: Direction) -> Adjacency:
        """The sorted edges of this version, built once."""
        return self.view.keep(self._key(direction), lambda: self._build(direction))

    def links(self, direction: Direction) -> Adjacency:
        """The sorted edges of this version, parallel ones as one."""
        adjacency = self.adjacency(direction)
        if not adjacency.has_parallels:
            return adjacency
        return self.view.keep(("links", *self._key(direction)), adjacency.without_parallels)

    def leads_to_nodes(self, direction: Direction, nodes: CachedNodes) -> bool:
        """Whether every neighbour exists."""
        if nodes.view.count == len(nodes.space):
            return True

        def make() -> _Existence:
            neighbours = self.adjacency(direction).neighbours
            return _Existence(nodes.view, nodes.present(neighbours) is None)

        # The entry refers to the view: while it is kept, no other view can have its `id`.
        return self.view.keep(("exist", *self._key(direction), id(nodes.view)), make).everywhere

    def contains(self, direction: Direction, sources: Slots, targets: Slots) -> Mask:
        """For each pair, whether an edge leads from the one to the other."""
        return self.adjacency(direction).contains(sources, targets)

    def at(self, direction: Direction, slots: Slots) -> tuple[Positions, Slots, Counts]:
        """The edges at each node."""
        if direction != "both":
            adjacency, order = self.adjacency(direction), self.order(direction)
            found, counts = adjacency.gather(slots)
            return adjacency.gather_values(order.positions, slots), found, counts
        out, out_targets, out_counts = self.at("out", slots)
        back, back_sources, back_counts = self.at("in", slots)
        return merged_ends(slots, (out, out_targets, out_counts), (back, back_sources, back_counts))

    def values(self, property: str, type: pa.DataType, edges: Positions) -> pa.Array:
        """A stored column of some edges."""
        return taken(self.view.column(property, type), edges)

    def _key(self, direction: Direction) -> tuple[str, str, int, int]:
        return ("adjacency", direction, self._sources.serial, self._targets.serial)

    def _ends(self, column: str) -> Slots:
        space = self._sources if column == SRC else self._targets
        return self.view.derived((column, space.serial), slots_of_ends(space, column))

    def ends(self) -> tuple[Slots, Slots]:
        """The sources and the targets of all edges, in the order of their positions."""
        sources, targets = self._ends(SRC), self._ends(DST)
        live = self.view.live
        return (sources, targets) if live is None else (sources[live], targets[live])

    def _build(self, direction: Direction) -> Adjacency:
        if direction != "both":
            known = self._from_earlier(direction)
            if known is not None:
                return known
        sources, targets = self.ends()
        if direction == "out":
            made = Adjacency.build(sources, targets, len(self._sources))
        elif direction == "in":
            made = Adjacency.build(targets, sources, len(self._targets))
        else:
            made = Adjacency.undirected(sources, targets, len(self._sources))
        return made if self._same_type else made.between_types()

    def _from_earlier(self, direction: Direction) -> Adjacency | None:
        """The adjacency of an earlier version with the changed edges applied, if they are few."""
        earlier = self.view.earlier_with(self._key(direction))
        # Another thread may drop the entry between finding and reading it.
        adjacency = None if earlier is None else earlier.made.get(self._key(direction))
        if earlier is None or not isinstance(adjacency, Adjacency):
            return None
        added, removed = _changed_rows(earlier, self.view)
        if (len(added) + len(removed)) * CHANGED_SHARE_MAX > max(earlier.count, 1):
            return None
        near, far = (SRC, DST) if direction == "out" else (DST, SRC)
        starts, ends = self._ends(near), self._ends(far)
        space = self._sources if direction == "out" else self._targets
        made = adjacency.changed(
            (starts[added], ends[added]), (starts[removed], ends[removed]), len(space)
        )
        return made if self._same_type else made.between_types()

    def order(self, direction: Literal["out", "in"]) -> EdgeOrder:
        """The positions of the edges of this version, in the order of its adjacency."""

        key = ("order", *self._key(direction))

        def build() -> EdgeOrder:
            found = self._order_change(direction, key)
            if found is not None:
                earlier, change = found
                before = earlier.positions
                parts = [
                    change.added[-part - 1 :][:1] if isinstance(part, int) else before[slice(*part)]
                    for part in change.pieces(len(before))
                ]
                return EdgeOrder(np.concatenate([before[:0], *parts]))
            near, far = (SRC, DST) if direction == "out" else (DST, SRC)
            positions = self.view.positions()
            starts, ends = self._ends(near), self._ends(far)
            return EdgeOrder.build(starts[positions], ends[positions], positions)

        return self.view.keep(key, build)

    def ordered_values(
        self, direction: Literal["out", "in"], property: str, type: pa.DataType
    ) -> pa.Array:
        """A stored column of all edges, in the order of adjacency."""
        key = ("ordered", property, *self._key(direction))

        def build() -> pa.Array:
            found = self._order_change(direction, key)
            if found is None:
                return self.values(property, type, self.order(direction).positions)
            before, change = found
            added = self.view.values_at(property, type, change.added)
            parts = [
                added.slice(-part - 1, 1)
                if isinstance(part, int)
                else before.slice(part[0], part[1] - part[0])
                for part in change.pieces(len(before))
            ]
            return pa.concat_arrays([before.slice(0, 0), *parts])

        return self.view.keep(key, build)

    def _order_change(
        self, direction: Literal["out", "in"], key: Hashable
    ) -> tuple[Any, OrderChange] | None:
        """What an earlier version has under a key, and what to change in it, if that is little."""
        earlier = self.view.earlier_with(key)
        # Another thread may drop the entry between finding and reading it.
        known = None if earlier is None else earlier.made.get(key)
        if earlier is None or known is None:
            return None
        added, removed = _changed_rows(earlier, self.view)
        if len(added) + len(removed) > _EDITS_MAX:
            return None
        places = np.zeros(0, np.int64)
        if len(removed):
            order = earlier.made.get(("order", *self._key(direction)))
            if not isinstance(order, EdgeOrder):
                return None
            gone = np.zeros(earlier.layout.size, np.bool_)
            gone[removed] = True
            places = np.flatnonzero(gone.take(order.positions))
        near, far = (SRC, DST) if direction == "out" else (DST, SRC)
        ends = self._ends(near)[added], self._ends(far)[added]
        return known, OrderChange.of(
            self.adjacency(direction), ends, added.astype(np.int32), places
        )


def _changed_rows(earlier: RowView, now: RowView) -> tuple[Counts, Counts]:
    """The positions that were added and removed since a version whose files are the first ones."""
    before, after = earlier.exists(), now.exists()
    common = len(before)
    added = np.flatnonzero(np.append(after[:common] & ~before, after[common:]))
    return added, np.flatnonzero(before & ~after[:common])


class FetchedEdges:
    """Edges read on demand, at the nodes a search reaches."""

    def __init__(
        self,
        reader: SnapshotReader,
        table_key: str,
        sources: AnySpace,
        targets: AnySpace,
        columns: Mapping[str, pa.DataType],
    ) -> None:
        self._reader = reader
        self._key = table_key
        self._sources = sources
        self._targets = targets
        available = reader.available(table_key, columns)
        self._columns = [name for name in available if name not in _ENDS]
        self._table: pa.Table | None = None
        self.fetched = 0

    def neighbours(self, direction: Direction) -> Neighbours:
        """Neighbours in a direction."""
        return _FetchedNeighbours(self, direction)

    def contains(self, direction: Direction, sources: Slots, targets: Slots) -> Mask:
        """For each pair, whether an edge leads from the one to the other."""
        distinct = sorted_distinct(sources.copy())
        found, counts = self.neighbours(direction).gather(distinct)
        keys = sorted_numbers((np.repeat(np.arange(len(distinct)), counts) << 32) | found)
        wanted = (np.searchsorted(distinct, sources) << 32) | targets
        if not len(keys):
            return np.zeros(len(sources), np.bool_)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        hit: Mask = keys[at] == wanted
        return hit

    def at(self, direction: Direction, slots: Slots) -> tuple[Positions, Slots, Counts]:
        """The edges at each node."""
        if direction == "both":
            return merged_ends(slots, self.at("out", slots), self.at("in", slots))
        near, far = (SRC, DST) if direction == "out" else (DST, SRC)
        near_space, far_space = self._spaces(direction)
        distinct = sorted_distinct(slots.copy())
        rows = self._rows_at(near, near_space, distinct, [*_ENDS, *self._columns])
        first = 0 if self._table is None else self._table.num_rows
        self._table = rows if self._table is None else pa.concat_tables([self._table, rows])
        near_slots = near_space.intern(single(rows[near]))
        far_slots = far_space.intern(single(rows[far]))
        order = stable_order(near_slots)
        ordered = near_slots[order]
        begin = np.searchsorted(ordered, slots)
        counts = np.searchsorted(ordered, slots, side="right") - begin
        taken_rows = spread_values(order, begin, counts)
        return (taken_rows + first).astype(np.int32), far_slots[taken_rows], counts

    def values(self, property: str, type: pa.DataType, edges: Positions) -> pa.Array:
        """A stored column of some edges."""
        if self._table is None or property not in self._table.column_names:
            return pa.nulls(len(edges), type)
        return taken(single(self._table[property]), edges)

    def ends_near(self, direction: Literal["out", "in"], distinct: Slots) -> tuple[Slots, Slots]:
        """The two ends, near and far, of the edges at some nodes."""
        near, far = (SRC, DST) if direction == "out" else (DST, SRC)
        near_space, far_space = self._spaces(direction)
        rows = self._rows_at(near, near_space, distinct, [SRC, DST])
        return near_space.intern(single(rows[near])), far_space.intern(single(rows[far]))

    def _spaces(self, direction: Direction) -> tuple[AnySpace, AnySpace]:
        if direction == "out":
            return self._sources, self._targets
        return self._targets, self._sources

    def _rows_at(self, near: str, space: AnySpace, distinct: Slots, columns: list[str]) -> pa.Table:
        ids = space.strings(distinct).drop_null()  # without nodes of types that have no such edges
        rows = self._reader.rows_where_in(self._key, near, ids, columns)
        self.fetched += rows.num_rows
        current().hold(rows.nbytes)  # the query keeps what it has fetched
        return rows


class _FetchedNeighbours:
    """Neighbours by lookups."""

    def __init__(self, edges: FetchedEdges, direction: Direction) -> None:
        self._edges = edges
        self._direction = direction
        self._space = edges._spaces("in" if direction == "in" else "out")[1]

    has_parallels = True
    has_loops = True
    """Unknown before reading, so assumed."""

    @property
    def node_count(self) -> int:
        return len(self._space)

    def expected(self, slots: Slots) -> int:
        return len(slots)

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        distinct = sorted_distinct(slots.copy())
        directions: list[Literal["out", "in"]] = (
            ["out", "in"] if self._direction == "both" else [self._direction]
        )
        ends = [self._edges.ends_near(direction, distinct) for direction in directions]
        near = np.concatenate([pair[0] for pair in ends])
        far = np.concatenate([pair[1] for pair in ends])
        keys = sorted_distinct((near.astype(np.int64) << 32) | far)
        begin = np.searchsorted(keys, slots.astype(np.int64) << 32)
        counts = np.searchsorted(keys, (slots.astype(np.int64) + 1) << 32) - begin
        return (spread_values(keys, begin, counts) & 0xFFFFFFFF).astype(np.int32), counts


_ENDS = (ID, SRC, DST)


def merged_ends(
    slots: Slots,
    out: tuple[Positions, Slots, Counts],
    back: tuple[Positions, Slots, Counts],
) -> tuple[Positions, Slots, Counts]:
    """Edges of both orientations at each node, self-loops once."""
    out_edges, out_far, out_counts = out
    back_edges, back_far, back_counts = back
    current().reserve(40 * (len(out_edges) + len(back_edges)))
    owner = np.repeat(np.arange(len(slots)), back_counts)
    no_loop = back_far != slots[owner]
    back_edges, back_far, owner = back_edges[no_loop], back_far[no_loop], owner[no_loop]
    owners = np.concatenate([np.repeat(np.arange(len(slots)), out_counts), owner])
    order = stable_order(owners)
    counts: npt.NDArray[np.int64] = np.bincount(owners, minlength=len(slots))
    return (
        np.concatenate([out_edges, back_edges])[order],
        np.concatenate([out_far, back_far])[order],
        counts,
    )
