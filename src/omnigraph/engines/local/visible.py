"""The tables of a snapshot as an actor sees them: what is hidden is as if it were deleted.

Columns, slots and indexes of values are shared with all other actors, since they are by position.
What depends on which rows there are is kept for each view and version of a table: adjacency, the
rows of slots, and the statistics of words.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.edges import CachedEdges, slots_of_ends
from omnigraph.engines.local.ids import AnySpace
from omnigraph.engines.local.nodes import CachedNodes, NodeTable, UnionNodes
from omnigraph.engines.local.rows import Load, RowView
from omnigraph.engines.local.tables import SnapshotTables
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.references import ShownEnds
from omnigraph.schema.catalog import TableType
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import FragmentState
from omnigraph.storage.manifest import TableEntry
from omnigraph.views import RowGrant, ViewedReader
from omnigraph.views.rows import columns_tested, granted, hiding_ends


class VisibleTables(SnapshotTables):
    """Tables of which a view shows some rows."""

    __slots__ = ()

    @property
    def _viewed(self) -> ViewedReader:
        assert isinstance(self.reader, ViewedReader)
        return self.reader

    def _version_of(self, entry: TableEntry) -> Hashable:
        version = SnapshotTables._version_of(self, entry)
        reader, key = self._viewed, entry.table_key
        if not reader.restricts(key):
            return version
        ends = (node for nodes in reader.view.ends(key).values() for node in nodes)
        nodes = [self._version_of(self._entry("node", node.name)) for node in ends]
        return (reader.view.key, version, reader.columns(key), *nodes)

    def _known_view(self, entry: TableEntry) -> RowView | None:
        if not self._viewed.restricts(entry.table_key):
            return SnapshotTables._known_view(self, entry)
        return self.memory.rows(entry.location).known_to(self._version_of(entry))

    def _view(self, entry: TableEntry) -> RowView:
        if not self._viewed.restricts(entry.table_key):
            return SnapshotTables._view(self, entry)
        rows = self.memory.rows(entry.location)
        shown = rows.shown_to(self._version_of(entry), partial(self._visible, entry))
        shown.note_use(self.memory.budget)
        return shown

    def _cached_edges(self, entry: TableEntry, sources: AnySpace, targets: AnySpace) -> CachedEdges:
        if not self._viewed.restricts(entry.table_key):
            return SnapshotTables._cached_edges(self, entry, sources, targets)
        # What is saved beside a table has all of its edges.
        return CachedEdges(self._view(entry), sources, targets)

    def _visible(self, entry: TableEntry) -> RowView:
        """The rows of a table that are visible, as a version with fewer rows."""
        view, key = self._viewed.view, entry.table_key
        whole = SnapshotTables._view(self, entry)
        type, grants = view.types[key].type, view.conditions(key)
        shown = np.ones(whole.layout.size, np.bool_)
        if grants is not None:
            known = whole.derived(("granted", view.key), _granted(whole, type, grants))
            shown &= known.astype(np.bool_)
        declared = {SRC: getattr(type, "source", ""), DST: getattr(type, "target", "")}
        for end in hiding_ends(view, key):
            space = self.space(declared[end])
            slots = whole.derived((end, space.serial), slots_of_ends(space, end))
            present = self._in_memory(declared[end]).present(slots)
            if present is not None:
                shown &= present
        return whole.without(np.flatnonzero(~shown), view.key)

    def _in_memory(self, type_name: str) -> NodeTable:
        """The nodes of a type or an interface in memory, even beyond the budget."""
        if type_name not in self.interfaces:
            return CachedNodes(self._view(self._entry("node", type_name)), self.space(type_name))
        parts = {name: self._in_memory(name) for name, _ in self.interfaces[type_name]}
        return UnionNodes(self.reference_space(), parts)


def _granted(view: RowView, type: TableType, grants: Sequence[RowGrant]) -> Load:
    """A loader of which rows conditions grant: 1 or 0, deleted rows included."""
    ends = ShownEnds.of(type)
    columns = columns_tested(grants, ends)

    def load(handle: Handle, fragments: Sequence[FragmentState]) -> npt.NDArray[np.int32]:
        loaded = {
            name: view.loader(name, stored)(handle, fragments) for name, stored in columns.items()
        }
        if not loaded:
            loaded = {ID: pa.repeat("", sum(fragment.rows for fragment in fragments))}
        found = granted(grants, ends, pa.table(loaded)).to_numpy(zero_copy_only=False)
        return np.asarray(found, np.int32)

    return load
