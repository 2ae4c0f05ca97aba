"""The edges of one type at one snapshot: neighbours, ends and values.

There are two implementations with the same results. `CachedEdges` holds columns and sorted
adjacency in memory; a new version reuses the adjacency of an earlier one and adds the changed
nodes. `FetchedEdges` reads only the edges a query needs through Lance's indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import (
    Adjacency,
    EditedAdjacency,
    Ends,
    SortedEdges,
    base_of,
)
from omnigraph.engines.local.edge_order import EdgeOrder
from omnigraph.engines.local.ids import AnySpace, Slots
from omnigraph.engines.local.memory import Sized
from omnigraph.engines.local.nodes import EDITS_MAX, FEW_SLOTS, CachedNodes, single
from omnigraph.engines.local.reach import Neighbours
from omnigraph.engines.local.rows import Load, Made, Mask, Positions, RowView, checked_rows, taken
from omnigraph.engines.local.sorting import (
    Counts,
    sorted_distinct,
    sorted_numbers,
    spread_values,
    stable_order,
)
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.query.plan import FLIPPED, Direction
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import FragmentState
from omnigraph.storage.reader import SnapshotReader

if TYPE_CHECKING:
    from omnigraph.engines.local.saved import SavedEdges


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


CHANGED_SHARE_MAX = 10
"""If more than a tenth of the edges changed, building adjacency anew is cheaper than editing it."""

_EDITED_NEIGHBOURS_MAX = 65_536
"""From this many neighbours of changed nodes, the adjacency of a version is copied."""

_READS_BEFORE_COPY = 8
"""After this many reads of many nodes, a version gets an adjacency of its own."""


class EdgeTable(Protocol):
    """One edge type at one snapshot."""

    def neighbours(self, direction: Direction) -> Neighbours:
        """Neighbours seen from the source (`out`), the target (`in`) or either end."""
        ...

    def contains(self, direction: Direction, sources: Slots, targets: Slots) -> Mask:
        """For each pair, whether there is an edge from source to target."""
        ...

    def at(self, direction: Direction, slots: Slots) -> tuple[Positions, Slots, Counts]:
        """The edges at each node: positions, nodes at the other ends, number of edges per node."""
        ...

    def between(
        self, direction: Direction, sources: Slots, targets: Slots
    ) -> tuple[Positions, Counts]:
        """The edges from source to target of each pair, and their number per pair."""
        ...

    def values(self, property: str, type: pa.DataType, edges: Positions) -> pa.Array:
        """A stored column of some edges; null for a negative one."""
        ...


@dataclass(frozen=True, slots=True)
class _CachedNeighbours:
    edges: CachedEdges
    direction: Direction
    target_space: AnySpace

    @property
    def has_parallels(self) -> bool:
        return self.edges.sorted_edges(self.direction, 0).has_parallels

    @property
    def has_loops(self) -> bool:
        return self.edges.sorted_edges(self.direction, 0).has_loops

    @property
    def node_count(self) -> int:
        return len(self.target_space)

    def expected(self, slots: Slots) -> int:
        return int(self.edges.sorted_edges(self.direction, len(slots)).degrees(slots).sum())

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        return self.edges.sorted_edges(self.direction, len(slots)).gather(slots)


@dataclass(frozen=True, slots=True)
class _Existence:
    """Whether all neighbours exist in a given version of their node type."""

    view: RowView
    everywhere: bool

    @property
    def nbytes(self) -> int:
        return 64


@dataclass(frozen=True, slots=True)
class _Links:
    """Sorted edges without parallel ones, and the adjacency they are based on."""

    origin: Adjacency
    edges: SortedEdges

    @property
    def nbytes(self) -> int:
        return 64

    @property
    def parts(self) -> tuple[Sized, ...]:
        return (self.edges, *getattr(self.edges, "parts", ()))


@dataclass(frozen=True, slots=True)
class OrderedValues:
    """A column of the edges of a version, in the order of its adjacency."""

    order: EdgeOrder
    values: pa.Array
    """The values at `EdgeOrder.positions`."""
    own: pa.Array
    """The values at `EdgeOrder.own`, those of edited nodes."""

    @property
    def nbytes(self) -> int:
        """Memory without that of `parts`."""
        return int(self.own.nbytes)

    @property
    def parts(self) -> tuple[Sized, ...]:
        """The memory shared with other versions."""
        return (self.values, self.order, *self.order.parts)


class CachedEdges:
    """Edges whose ends are cached in memory."""

    def __init__(
        self,
        view: RowView,
        sources: AnySpace,
        targets: AnySpace,
        saved: SavedEdges | None = None,
    ) -> None:
        self.view = view
        self._sources = sources
        self._targets = targets
        self._saved = saved
        self._same_type = sources.serial == targets.serial

    def neighbours(self, direction: Direction) -> Neighbours:
        """Neighbours in a direction."""
        space = self._sources if direction == "in" else self._targets
        return _CachedNeighbours(self, direction, space)

    def is_sorted(self, direction: Direction) -> bool:
        """Whether the adjacency of this version, or of the one it follows, is in memory."""
        key = self._key(direction)
        made = self.view.made
        if key in made or ("edited", *key) in made:
            return True
        return self.view.nearest_with(key, ("edited", *key)) is not None

    def adjacency(self, direction: Direction) -> Adjacency:
        """The sorted edges of this version, built once."""
        if direction == "both":
            self._restored("out")
        else:
            self._restored(direction)
        return self.view.keep(self._key(direction), lambda: self._build(direction))

    def sorted_edges(self, direction: Direction, nodes: int = 0) -> SortedEdges:
        """The sorted edges of this version, for reading those of ``nodes`` nodes.

        This is an edited adjacency of an earlier version until it has been read for many nodes
        several times: a copy costs more than one such read.
        """
        key = self._key(direction)
        known = self.view.made.get(key) or self._restored(direction)
        if known is None:
            known = self._beside_earlier(
                key,
                nodes,
                lambda: self._edited(direction),
                lambda: self.adjacency(direction),
            )
        assert isinstance(known, Adjacency | EditedAdjacency)
        return known

    def _beside_earlier(
        self,
        key: tuple[Hashable, ...],
        nodes: int,
        edit: Callable[[], Made | None],
        build: Callable[[], Made],
    ) -> Sized:
        """What ``edit`` makes of an earlier version's object, or ``build`` if that does not pay."""
        if nodes > FEW_SLOTS and self.view.times_read(key) > _READS_BEFORE_COPY:
            return build()
        edited = self.view.made.get(("edited", *key))
        if edited is None:
            made = edit()
            if made is None or made.nbytes > 4 * _EDITED_NEIGHBOURS_MAX:
                return build()
            edited = self.view.keep(("edited", *key), lambda: made)
        return edited

    def links(self, direction: Direction) -> SortedEdges:
        """The sorted edges of this version, parallel ones as one."""
        edges = self.sorted_edges(direction)
        if not edges.has_parallels:
            return edges
        key = ("links", *self._key(direction))

        def build() -> _Links:
            base = base_of(edges)
            earlier = self.view.nearest_with(key)
            known = None if earlier is None else earlier.made.get(key)
            if isinstance(known, _Links) and known.origin is base:
                links = base_of(known.edges)
            else:
                links = base.without_parallels() if base.has_parallels else base
            if isinstance(edges, Adjacency):
                return _Links(base, links)
            lists = edges.lists.without_parallels()
            return _Links(base, replace(edges, base=links, lists=lists, has_parallels=False))

        return self.view.keep(key, build).edges

    def leads_to_nodes(self, direction: Direction, nodes: CachedNodes) -> bool:
        """Whether every neighbour exists."""
        if nodes.view.count == len(nodes.space):
            return True

        def make() -> _Existence:
            edges = self.sorted_edges(direction)
            return _Existence(nodes.view, edges.all_neighbours(nodes.present))

        # The entry refers to the view: while it is kept, no other view can have its `id`.
        return self.view.keep(("exist", *self._key(direction), id(nodes.view)), make).everywhere

    def contains(self, direction: Direction, sources: Slots, targets: Slots) -> Mask:
        """For each pair, whether there is an edge from source to target."""
        edges = self.sorted_edges(direction, len(sources))
        if not edges.is_functional and direction != "both":
            other = FLIPPED[direction]
            if self.is_sorted(other):
                back = self.sorted_edges(other, len(sources))
                if back.is_functional:
                    return back.contains(targets, sources)
        return edges.contains(sources, targets)

    def between(
        self, direction: Direction, sources: Slots, targets: Slots
    ) -> tuple[Positions, Counts]:
        """The edges from source to target of each pair, and their number per pair."""
        if direction != "both":
            return self.sorted_order(direction, len(sources)).between(sources, targets)
        out, out_counts = self.between("out", sources, targets)
        back, back_counts = self.between("in", sources, targets)
        # A self-loop is found in both directions.
        is_back = np.repeat(sources != targets, back_counts)
        return interleaved(
            (out, out_counts), (back[is_back], np.where(sources != targets, back_counts, 0))
        )

    def at(self, direction: Direction, slots: Slots) -> tuple[Positions, Slots, Counts]:
        """The edges at each node."""
        if direction != "both":
            order = self.sorted_order(direction, len(slots))
            found, counts = order.adjacency.gather(slots)
            return order.at(slots), found, counts
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

    def _ends_at(self, direction: Direction, positions: Positions) -> Ends:
        """The near and the far ends of some edges."""
        sources, targets = (
            self.view.derived_at((column, space.serial), slots_of_ends(space, column), positions)
            for column, space in ((SRC, self._sources), (DST, self._targets))
        )
        return (targets, sources) if direction == "in" else (sources, targets)

    def _restored(self, direction: Direction, *, ordered: bool = False) -> Sized | None:
        """The adjacency saved for this version, or with ``ordered`` the order of its edges.

        One saved for an earlier version is restored for that version, and None returned. Nothing is
        read if a version in memory has one. Reads the tables of nodes, so it has to be called
        without the lock of the edges.
        """
        adjacency = self._key(direction)
        key = ("order", *adjacency) if ordered else adjacency
        if self._saved is None or direction == "both":
            return None
        if self.view.nearest_with(key, ("edited", *key)) is None:
            self._saved.restore(
                self.view, direction, adjacency, loops=self._same_type, ordered=ordered
            )
        return self.view.made.get(key)

    def _build(self, direction: Direction) -> Adjacency:
        edited = self.view.made.get(("edited", *self._key(direction)))
        if not isinstance(edited, EditedAdjacency):
            edited = self._edited(direction)
        space = self._targets if direction == "in" else self._sources
        if edited is not None:
            return edited.compacted(len(space))
        sources, targets = self._both_ends() if direction == "both" else self.ends()
        if direction == "out":
            made = Adjacency.build(sources, targets, len(space))
        elif direction == "in":
            made = Adjacency.build(targets, sources, len(space))
        else:
            made = Adjacency.undirected(sources, targets, len(space))
        return made if self._same_type else made.between_types()

    def _both_ends(self) -> Ends:
        """The sources and targets of all edges in any order, from adjacency if in memory."""
        if not self.is_sorted("out"):
            return self.ends()
        out = self.adjacency("out")
        nodes = np.arange(len(out.pointers) - 1, dtype=np.int32)
        return np.repeat(nodes, np.diff(out.pointers)), out.neighbours

    def _changes(self, earlier: RowView) -> tuple[Positions, Positions] | None:
        """The edges added and removed since another version; None if there are many."""
        added, removed = self.view.changed_since(earlier)
        changed = len(added) + len(removed)
        too_many = changed * CHANGED_SHARE_MAX > max(earlier.count, 1) or changed > EDITS_MAX
        return None if too_many else (added, removed)

    def _at(self, view: RowView) -> CachedEdges:
        """The edges of another version."""
        return CachedEdges(view, self._sources, self._targets, self._saved)

    def _edited(self, direction: Direction) -> EditedAdjacency | None:
        """Another version's adjacency with the changed edges applied; None if they are many."""
        key = self._key(direction)
        earlier = self.view.nearest_with(key, ("edited", *key))
        if earlier is None:
            return None
        # Another thread may drop the entry between finding and reading it.
        before = earlier.made.get(key) or earlier.made.get(("edited", *key))
        changes = self._changes(earlier)
        if changes is None or not isinstance(before, Adjacency | EditedAdjacency):
            return None
        added = self._ends_at(direction, changes[0])
        removed = self._at(earlier)._ends_at(direction, changes[1])
        if direction == "both":
            ends = sorted_distinct(np.concatenate([*added, *removed]))
            ways = (self.sorted_edges("out"), self.sorted_edges("in"))
            return EditedAdjacency.undirected(before, ends, ways)
        made = EditedAdjacency.of(before, added, removed)
        return made if made is None or self._same_type else made.between_types()

    def sorted_order(self, direction: Literal["out", "in"], nodes: int = 0) -> EdgeOrder:
        """The order of the edges, for reading those of ``nodes`` nodes; see `sorted_edges`."""
        key = ("order", *self._key(direction))
        known = self.view.made.get(key) or self._restored(direction, ordered=True)
        if known is None:
            known = self._beside_earlier(
                key,
                nodes,
                lambda: self._edited_order(direction),
                lambda: self.order(direction),
            )
        assert isinstance(known, EdgeOrder)
        return known

    def _edited_order(self, direction: Literal["out", "in"]) -> EdgeOrder | None:
        """The order of another version with the changed edges applied; None if there are many."""
        key = ("order", *self._key(direction))
        earlier = self.view.nearest_with(key, ("edited", *key))
        if earlier is None or not earlier.layout.begins(self.view.layout):
            return None
        # Another thread may drop the entry between finding and reading it.
        before = earlier.made.get(key) or earlier.made.get(("edited", *key))
        changes = self._changes(earlier)
        if changes is None or not isinstance(before, EdgeOrder):
            return None
        added, removed = changes
        return before.edited(
            (self._ends_at(direction, added), added),
            (self._at(earlier)._ends_at(direction, removed), removed),
        )

    def order(self, direction: Literal["out", "in"]) -> EdgeOrder:
        """The positions of the edges of this version, in the order of its adjacency."""
        key = ("order", *self._key(direction))

        def build() -> EdgeOrder:
            edited = self.view.made.get(("edited", *key))
            if not isinstance(edited, EdgeOrder):
                edited = self._edited_order(direction)
            if edited is not None:
                return edited.compacted(self.adjacency(direction))
            is_new = not self.is_sorted(direction)
            sources, targets = self.ends()
            ends = (sources, targets) if direction == "out" else (targets, sources)
            if not is_new:
                return EdgeOrder.build(self.adjacency(direction), ends, self.view.positions())
            space = self._targets if direction == "in" else self._sources
            made = EdgeOrder.with_adjacency(ends, self.view.positions(), len(space))
            adjacency = made.adjacency
            assert isinstance(adjacency, Adjacency)
            own = adjacency if self._same_type else adjacency.between_types()
            return replace(made, adjacency=self.view.keep(self._key(direction), lambda: own))

        self._restored(direction, ordered=True)
        return self.view.keep(key, build)

    def ordered_values(
        self, direction: Literal["out", "in"], order: EdgeOrder, property: str, type: pa.DataType
    ) -> OrderedValues:
        """A stored column of all edges, in the order of the adjacency."""
        key = ("ordered", property, *self._key(direction))
        known = self.view.made.get(key)
        if isinstance(known, OrderedValues):
            if known.order is order:
                return known
            self.view.made.pop(key, None)  # the order was rebuilt meanwhile

        def build() -> OrderedValues:
            earlier = self.view.nearest_with(key)
            # Another thread may drop the entry between finding and reading it.
            before = known if earlier is None else earlier.made.get(key)
            if isinstance(before, OrderedValues) and before.order.positions is order.positions:
                values = before.values
            else:
                saved = order.saved
                found = None if saved is None else saved.column(self.view, property, type)
                if found is None:
                    found = self.values(property, type, order.positions)
                values = found
            if not len(order.own):
                return OrderedValues(order, values, values[:0])
            return OrderedValues(order, values, self.view.values_at(property, type, order.own))

        made = self.view.keep(key, build)
        return made if made.order is order else build()


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
        """For each pair, whether there is an edge from source to target."""
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

    def between(
        self, direction: Direction, sources: Slots, targets: Slots
    ) -> tuple[Positions, Counts]:
        """The edges from source to target of each pair, and their number per pair."""
        edges, far, counts = self.at(direction, sources)
        owners = np.repeat(np.arange(len(sources)), counts)
        same = far == targets[owners]
        return edges[same], np.bincount(owners[same], minlength=len(sources))

    def values(self, property: str, type: pa.DataType, edges: Positions) -> pa.Array:
        """A stored column of some edges."""
        if self._table is None or property not in self._table.column_names:
            return pa.nulls(len(edges), type)
        return taken(single(self._table[property]), edges)

    def ends_near(self, direction: Literal["out", "in"], distinct: Slots) -> tuple[Slots, Slots]:
        """The near and far ends of the edges at some nodes."""
        near, far = (SRC, DST) if direction == "out" else (DST, SRC)
        near_space, far_space = self._spaces(direction)
        rows = self._rows_at(near, near_space, distinct, [SRC, DST])
        return near_space.intern(single(rows[near])), far_space.intern(single(rows[far]))

    def _spaces(self, direction: Direction) -> tuple[AnySpace, AnySpace]:
        if direction == "out":
            return self._sources, self._targets
        return self._targets, self._sources

    def _rows_at(self, near: str, space: AnySpace, distinct: Slots, columns: list[str]) -> pa.Table:
        ids = space.strings(distinct).drop_null()  # nodes of other types have no id
        rows = self._reader.rows_where_in(self._key, near, ids, columns)
        self.fetched += rows.num_rows
        current().hold(rows.nbytes)  # charged to the query, which keeps the rows
        return rows


class _FetchedNeighbours:
    """Neighbours by index lookups."""

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


def interleaved(
    first: tuple[Positions, Counts], second: tuple[Positions, Counts]
) -> tuple[Positions, Counts]:
    """Two lists of edges per row, merged into one list per row."""
    counts = first[1] + second[1]
    rows = np.arange(len(counts))
    owners = np.concatenate([np.repeat(rows, first[1]), np.repeat(rows, second[1])])
    return np.concatenate([first[0], second[0]])[stable_order(owners)], counts


def merged_ends(
    slots: Slots,
    out: tuple[Positions, Slots, Counts],
    back: tuple[Positions, Slots, Counts],
) -> tuple[Positions, Slots, Counts]:
    """The edges of both directions at each node, self-loops once."""
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
