"""The edges of one type at one snapshot: neighbours by slot, and single edges with their values.

As with nodes there are two implementations. `CachedEdges` keeps both ends of every edge as slots
and builds sorted adjacency on first use. `FetchedEdges` reads the edges at the nodes a search has
reached through Lance's indexes, level by level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import (
    Adjacency,
    Counts,
    EdgeRows,
    Neighbours,
    sorted_distinct,
    spread,
)
from omnigraph.engines.local.ids import IdSpace, Slots
from omnigraph.engines.local.nodes import single, slots_of_ends, taken
from omnigraph.engines.local.rows import Mask, Positions, RowView
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.query.plan import Direction
from omnigraph.storage.reader import SnapshotReader

CHANGED_SHARE_MAX = 10
"""Beyond a tenth of all edges, building adjacency anew is cheaper than applying changes."""


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
    target_space: IdSpace

    @property
    def has_parallels(self) -> bool:
        return self.adjacency.has_parallels

    @property
    def has_loops(self) -> bool:
        return self.adjacency.has_loops

    @property
    def node_count(self) -> int:
        return len(self.target_space)

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        return self.adjacency.gather(slots)


class CachedEdges:
    """Edges whose ends are cached in memory."""

    def __init__(self, view: RowView, sources: IdSpace, targets: IdSpace) -> None:
        self.view = view
        self._sources = sources
        self._targets = targets
        self._same_type = sources is targets

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

    def contains(self, direction: Direction, sources: Slots, targets: Slots) -> Mask:
        """For each pair, whether an edge leads from the one to the other."""
        return self.adjacency(direction).contains(sources, targets)

    def at(self, direction: Direction, slots: Slots) -> tuple[Positions, Slots, Counts]:
        """The edges at each node."""
        if direction != "both":
            rows = self._edge_rows(direction)
            edges, counts = rows.gather(slots)
            return edges, self._ends(DST if direction == "out" else SRC)[edges], counts
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

    def _live_ends(self) -> tuple[Slots, Slots]:
        sources, targets = self._ends(SRC), self._ends(DST)
        live = self.view.live
        return (sources, targets) if live is None else (sources[live], targets[live])

    def _build(self, direction: Direction) -> Adjacency:
        if direction != "both":
            known = self._from_earlier(direction)
            if known is not None:
                return known
        sources, targets = self._live_ends()
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
        before, now = earlier.exists(), self.view.exists()
        common = len(before)
        added = np.flatnonzero(np.append(now[:common] & ~before, now[common:]))
        removed = np.flatnonzero(before & ~now[:common])
        if (len(added) + len(removed)) * CHANGED_SHARE_MAX > max(earlier.count, 1):
            return None
        near, far = (SRC, DST) if direction == "out" else (DST, SRC)
        starts, ends = self._ends(near), self._ends(far)
        space = self._sources if direction == "out" else self._targets
        made = adjacency.changed(
            (starts[added], ends[added]), (starts[removed], ends[removed]), len(space)
        )
        return made if self._same_type else made.between_types()

    def _edge_rows(self, direction: Direction) -> EdgeRows:
        column, space = (SRC, self._sources) if direction == "out" else (DST, self._targets)

        def build() -> EdgeRows:
            positions = self.view.positions()
            return EdgeRows.build(self._ends(column)[positions], positions, len(space))

        return self.view.keep(("edges", direction, space.serial), build)


class FetchedEdges:
    """Edges read on demand, at the nodes a search reaches."""

    def __init__(
        self,
        reader: SnapshotReader,
        table_key: str,
        sources: IdSpace,
        targets: IdSpace,
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
        keys = np.sort((np.repeat(np.arange(len(distinct)), counts) << 32) | found)
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
        order = np.argsort(near_slots, kind="stable")
        begin = np.searchsorted(near_slots[order], slots)
        counts = np.searchsorted(near_slots[order], slots, side="right") - begin
        taken_rows = order[spread(begin, counts)]
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

    def _spaces(self, direction: Direction) -> tuple[IdSpace, IdSpace]:
        if direction == "out":
            return self._sources, self._targets
        return self._targets, self._sources

    def _rows_at(self, near: str, space: IdSpace, distinct: Slots, columns: list[str]) -> pa.Table:
        rows = self._reader.rows_where_in(self._key, near, space.strings(distinct), columns)
        self.fetched += rows.num_rows
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
        return (keys[spread(begin, counts)] & 0xFFFFFFFF).astype(np.int32), counts


_ENDS = (ID, SRC, DST)


def merged_ends(
    slots: Slots,
    out: tuple[Positions, Slots, Counts],
    back: tuple[Positions, Slots, Counts],
) -> tuple[Positions, Slots, Counts]:
    """Edges of both orientations at each node, self-loops once."""
    out_edges, out_far, out_counts = out
    back_edges, back_far, back_counts = back
    owner = np.repeat(np.arange(len(slots)), back_counts)
    no_loop = back_far != slots[owner]
    back_edges, back_far, owner = back_edges[no_loop], back_far[no_loop], owner[no_loop]
    owners = np.concatenate([np.repeat(np.arange(len(slots)), out_counts), owner])
    order = np.argsort(owners, kind="stable")
    counts: npt.NDArray[np.int64] = np.bincount(owners, minlength=len(slots))
    return (
        np.concatenate([out_edges, back_edges])[order],
        np.concatenate([out_far, back_far])[order],
        counts,
    )
