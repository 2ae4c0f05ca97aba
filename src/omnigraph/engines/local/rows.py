"""Columns of tables, cached by the fragments they were read from, within a memory budget.

A row is identified by its *position*: its index in the files of a version, deleted rows included.
Two versions with the same files have the same layout and share everything that was read; a version
that adds files reads only those. Which rows of a layout exist is a mask of the version. The meaning
of column names in a file depends on the columns of the version, so those are part of the layout.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.memory import (
    Column,
    GrowingColumn,
    MemoryBudget,
    Sized,
    can_grow,
)
from omnigraph.errors import LimitExceeded, QueryTimeout
from omnigraph.model.governor import current
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import (
    FragmentState,
    columns_of,
    deleted_offsets,
    fragments_of,
    stored_rows,
)
from omnigraph.storage.reader import SAME, StoredColumns

# --- values of rows -------------------------------------------------------------------------------


TEXT_BYTES_MAX = 2**31 - 1
"""Maximum bytes of the texts of one Arrow column, whose offsets have 32 bits."""

_FEW_ROWS = 64
"""At most this many values are copied without checking their size."""

_BLOCK_ROWS = 1 << 19
"""Values that are copied between two checks of the query's limits."""


def taken(column: pa.Array, rows: npt.NDArray[np.integer]) -> pa.Array:
    """The values at some rows; null where the row is negative."""
    if len(rows) == 1 and (row := int(rows[0])) >= 0:
        return column.slice(row, 1)  # no copy for a point query
    if len(rows) > _FEW_ROWS:
        _reserve_values(column, rows)
    if len(rows) <= _BLOCK_ROWS:
        return _taken(column, rows)
    governor = current()
    numbers = fixed_numbers(column)
    if numbers is not None and int(rows.min()) >= 0:
        # Copying parts and concatenating them would take twice the memory.
        found = np.empty(len(rows), numbers.dtype)
        for start in range(0, len(rows), _BLOCK_ROWS):
            governor.check()
            stop = start + _BLOCK_ROWS
            numbers.take(rows[start:stop], out=found[start:stop], mode="clip")
        return of_numbers(found, column.type)
    parts = []
    for start in range(0, len(rows), _BLOCK_ROWS):
        governor.check()
        parts.append(_taken(column, rows[start : start + _BLOCK_ROWS]))
    return pa.concat_arrays(parts)


def fixed_numbers(column: pa.Array) -> npt.NDArray[np.signedinteger] | None:
    """The bytes of values as integers of their width; None for an empty column, one with nulls, and
    for texts, lists and booleans."""
    type = column.type
    if (
        not len(column)
        or column.null_count
        or not pa.types.is_primitive(type)
        or pa.types.is_boolean(type)
    ):
        return None
    numbers = np.frombuffer(column.buffers()[1], f"i{type.bit_width // 8}")
    return numbers[column.offset : column.offset + len(column)]


def of_numbers(numbers: npt.NDArray[np.signedinteger], type: pa.DataType) -> pa.Array:
    """The inverse of `fixed_numbers`."""
    return pa.Array.from_buffers(type, len(numbers), [None, pa.py_buffer(numbers)])


def _taken(column: pa.Array, rows: npt.NDArray[np.integer]) -> pa.Array:
    if len(rows) and int(rows.min()) < 0:
        return column.take(pa.array(rows, mask=rows < 0))
    return column.take(pa.array(rows))


def _reserve_values(column: pa.Array, rows: npt.NDArray[np.integer]) -> None:
    """Check the limits of the query before values are copied.

    Texts are measured only if the longest text in all rows could be too much.
    """
    governor = current()
    copies = 2 if len(rows) > _BLOCK_ROWS else 1
    type = column.type
    if not (pa.types.is_string(type) or pa.types.is_nested(type)):
        governor.reserve(copies * 9 * len(rows))
        return
    left = governor.left()
    size = column.nbytes
    if len(rows) * size * copies <= (TEXT_BYTES_MAX if left is None else min(left, TEXT_BYTES_MAX)):
        governor.check()
        return
    if pa.types.is_string(type):
        offsets = np.frombuffer(column.buffers()[1], np.int32)
        offsets = offsets[column.offset : column.offset + len(column) + 1]
        total = int(np.diff(offsets).take(rows, mode="clip").sum(dtype=np.int64))
        if total > TEXT_BYTES_MAX:
            raise LimitExceeded(
                "the size of one column of texts in bytes",
                TEXT_BYTES_MAX,
                total,
                hint="read fewer rows at a time, with `limit` and `offset`",
            )
    else:
        total = size * len(rows) // max(len(column), 1)
    governor.reserve(copies * (total + 5 * len(rows)))


# --- columns by fragment --------------------------------------------------------------------------


Positions: TypeAlias = npt.NDArray[np.int32]
Mask: TypeAlias = npt.NDArray[np.bool_]

Made = TypeVar("Made", bound=Sized)

Later: TypeAlias = Callable[[Hashable, Callable[[], object]], None]
"""Runs a job in the background, once for each key."""

Load: TypeAlias = Callable[[Handle, Sequence[FragmentState]], Column | pa.ChunkedArray]
"""Reads or computes a column for some fragments, one after the other."""

_LARGE_ROWS = 1_000_000
_FEW_FRAGMENT_ROWS = 65_536
"""Fragments with at most this many rows are read whole even if only some rows are wanted."""

_VIEWS_MAX = 32
"""Maximum number of cached versions of one table."""

_DELETIONS_MAX = 512
"""Maximum number of cached lists of deleted rows of one table."""

_NONE = np.zeros(0, np.int64)

_TOUCH_EVERY = 64
"""The use of a version is recorded once per this many queries, because recording costs time."""


def checked_rows(
    handle: Handle, fragments: Sequence[FragmentState], column: str
) -> Iterator[pa.RecordBatch]:
    """One stored column in batches; checks the limits of the query before each."""
    governor = current()
    governor.check()
    for batch in stored_rows(handle, fragments, [column]):
        governor.check()
        yield batch


class Layout:
    """A list of files: it defines the positions, and has the columns read so far."""

    def __init__(self, fragments: Sequence[FragmentState]) -> None:
        self.files = tuple(fragment.files for fragment in fragments)
        self.starts: dict[tuple[str, ...], tuple[int, int]] = {}
        """The first position and the number of rows of each fragment."""
        at = 0
        for fragment in fragments:
            self.starts[fragment.files] = (at, fragment.rows)
            at += fragment.rows
        self.size = at
        self.columns: dict[Hashable, Column] = {}
        self.growing: dict[Hashable, GrowingColumn] = {}
        """The memory of columns that a layout with more files may extend in place."""
        self.made: dict[Hashable, Sized] = {}
        """Values computed from whole columns: dictionaries, indexes."""
        self._asked: set[Hashable] = set()

    def begins(self, other: Layout) -> bool:
        """Whether the files of another layout start with these, so that positions agree."""
        return self is other or other.files[: len(self.files)] == self.files

    def drop(self, name: Hashable) -> None:
        """Drop a column."""
        self.columns.pop(name, None)
        self.growing.pop(name, None)

    def asked_before(self, key: Hashable) -> bool:
        """Whether this was requested before; a second request makes it worth building."""
        if key in self._asked:
            return True
        self._asked.add(key)
        return False


class RowView:
    """The rows of one version of one table."""

    def __init__(
        self,
        table: TableVersions,
        handle: Handle,
        fragments: Sequence[FragmentState],
        layout: Layout,
        *,
        deleted: Mapping[tuple[str, ...], npt.NDArray[np.int64]],
        columns: StoredColumns,
        actors: Hashable = None,
    ) -> None:
        self.handle = handle
        self.actors = actors
        """Identifies the row filter by which actors see these rows; None for all rows."""
        self.layout = layout
        self.deleted = deleted
        """The offsets of deleted rows in each fragment, ascending, by the fragment's files. Rows
        hidden from the actors count as deleted."""
        self.count = layout.size - sum(map(len, deleted.values()))
        self.fragments = fragments
        self.made: dict[Hashable, Sized] = {}
        """Values computed for the rows of this version: adjacency, row numbers."""
        self._table = table
        self.stored_columns = columns
        self._live: Mask | None = None
        self._used_at = 0
        self._reads: Counter[Hashable] = Counter()
        self.unusable: set[str] = set()
        """Folders of saved adjacency that this version cannot use."""

    @property
    def columns(self) -> str:
        """The meaning of column names in the files; empty without files."""
        return self.fragments[0].files[-1] if self.fragments else ""

    @property
    def live(self) -> Mask | None:
        """Which positions exist; None if all of them do."""
        if self._live is None and self.count < self.layout.size:
            live = np.ones(self.layout.size, np.bool_)
            for files, offsets in self.deleted.items():
                live[self.layout.starts[files][0] + offsets] = False
            live.setflags(write=False)  # text indexes cache statistics per read-only mask
            self._live = live
        return self._live

    def note_use(self, budget: MemoryBudget) -> None:
        """Mark the entries of this version as recently used."""
        if budget.queries - self._used_at >= _TOUCH_EVERY:
            self._used_at = budget.queries
            layout = self.layout
            keys: list[Hashable] = [(id(layout.columns), name) for name in tuple(layout.columns)]
            for made in (layout.made, self.made):
                keys += [(id(made), name) for name in tuple(made)]
            budget.touch(keys)

    def times_read(self, key: Hashable) -> int:
        """How often this was called for a key: frequent reads make a copy worthwhile."""
        self._reads[key] += 1
        return self._reads[key]

    def positions(self) -> Positions:
        """The positions that exist, ascending."""
        if self.live is None:
            return np.arange(self.layout.size, dtype=np.int32)
        return np.flatnonzero(self.live).astype(np.int32)

    def existing(self, positions: Positions) -> Positions:
        """Those of some positions that exist."""
        live = self.live
        return positions if live is None else positions[live[positions]]

    def changed_since(self, earlier: RowView) -> tuple[Positions, Positions]:
        """The positions of rows that an earlier version lacks, and its positions of removed rows.

        The cost is the number of fragments, of changed rows, and of deleted rows in fragments whose
        deletions changed.
        """
        added: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        removed = added.copy()
        for one, other, found in ((self, earlier, added), (earlier, self, removed)):
            for files, (start, rows) in one.layout.starts.items():
                gone = one.deleted.get(files, _NONE)
                if files not in other.layout.starts:
                    found.append(start + np.delete(np.arange(rows), gone))
                elif (before := other.deleted.get(files, _NONE)) is not gone:
                    found.append(start + np.setdiff1d(before, gone, assume_unique=True))
        return (
            np.concatenate(added).astype(np.int32),
            np.concatenate(removed).astype(np.int32),
        )

    def column(self, name: str, type: pa.DataType) -> pa.Array:
        """A stored column over all positions."""
        known = self.layout.columns.get(name)
        return self._table.column(self, name, self._loader(name, type)) if known is None else known

    def values_at(self, name: str, type: pa.DataType, positions: Positions) -> pa.Array:
        """A stored column at few positions; only their fragments are read if it is not cached."""
        found = self._values_at(name, self._loader(name, type), positions)
        return taken(self.column(name, type), positions) if found is None else found

    def derived_at(self, name: Hashable, load: Load, positions: Positions) -> npt.NDArray[np.int32]:
        """A derived column at few positions; only their fragments are read if it is not cached."""
        found = self._values_at(name, load, positions)
        return self.derived(name, load)[positions] if found is None else found

    def _values_at(self, name: Hashable, load: Load, positions: Positions) -> Column | None:
        """The values at some positions; None if the whole column should be read."""
        if not len(positions) or name in self.layout.columns:
            return None
        if self._table.can_extend(self.layout, name):
            return None
        chosen, places, start = [], [], 0
        size = 0
        in_order = np.sort(positions)
        for fragment in self.fragments:
            begin, end = np.searchsorted(in_order, [start, start + fragment.rows]).tolist()
            if begin < end:
                chosen.append(fragment)
                places.append(in_order[begin:end] - start + size)
                size += fragment.rows
            start += fragment.rows
        if size > _FEW_FRAGMENT_ROWS:
            return None
        loaded = _joined(_chunks(load(self.handle, chosen)))
        rows = np.concatenate([in_order[:0], *places])[np.searchsorted(in_order, positions)]
        return loaded[rows] if isinstance(loaded, np.ndarray) else taken(loaded, rows)

    def without(self, hidden: npt.NDArray[np.integer], actors: Hashable) -> RowView:
        """The rows of this version without those at some ascending positions."""
        deleted = dict(self.deleted)
        for files, (start, rows) in self.layout.starts.items():
            begin, end = np.searchsorted(hidden, [start, start + rows]).tolist()
            if begin < end:
                own = hidden[begin:end].astype(np.int64) - start
                deleted[files] = np.union1d(deleted.get(files, _NONE), own)
        return RowView(
            self._table,
            self.handle,
            self.fragments,
            self.layout,
            deleted=deleted,
            columns=self.stored_columns,
            actors=actors,
        )

    def loader(self, name: str, type: pa.DataType) -> Load:
        """A loader of a stored column for some fragments."""
        return self._loader(name, type)

    def _loader(self, name: str, type: pa.DataType) -> Load:
        stored = self.stored_columns.name(name)

        def load(handle: Handle, fragments: Sequence[FragmentState]) -> pa.Array | pa.ChunkedArray:
            if stored is None or stored not in handle.schema.names:
                # The property was added to the schema after this version was written.
                return pa.nulls(sum(fragment.rows for fragment in fragments), type)
            chunks = [batch.column(0) for batch in checked_rows(handle, fragments, stored)]
            column = pa.chunked_array(chunks, handle.schema.field(stored).type)
            return self.stored_columns.as_today(name, column)

        return load

    def derived(self, name: Hashable, load: Load) -> npt.NDArray[np.int32]:
        """A column derived from stored ones, cached and extended like them."""
        known = self.layout.columns.get(name)
        return self._table.column(self, name, load) if known is None else known

    def keep(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """A value computed once for this version."""
        known = self.made.get(key)
        return self._table.keep(self.made, key, make) if known is None else cast(Made, known)

    def nearest_with(self, *keys: Hashable) -> RowView | None:
        """The version that has one of ``keys`` and shares the most rows with this one.

        One for the same actors is preferred to any other.
        """
        return self._table.nearest_view(self.layout, keys, self.actors)

    def beginning(
        self, key: str, count: int, deleted: Mapping[tuple[str, ...], npt.NDArray[np.int64]]
    ) -> RowView:
        """The version that had the first ``count`` fragments, with ``deleted`` as its deleted rows.

        It is cached under a key like the versions that were read. Its table may be gone: the files
        of its fragments are read through this version.
        """
        return self._table.beginning(self, key, count, deleted)

    def keep_with_files(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """A value computed once for all versions with these files."""
        known = self.layout.made.get(key)
        if known is None:
            return self._table.keep(self.layout.made, key, make)
        return cast(Made, known)

    def keep_growing(self, key: Hashable, grow: Callable[[Made | None, int], Made]) -> Made:
        """A value computed once for these files by extending that of an earlier layout.

        ``grow`` gets the value for the first files, or None, and how many rows it covers.
        """
        known = self.layout.made.get(key)
        if known is not None:
            return cast(Made, known)

        def make() -> Made:
            earlier = self._table.longest_beginning(self.layout, key)
            # Another thread may drop the entry between finding and reading it.
            start = None if earlier is None else earlier.made.get(key)
            if earlier is None or start is None:
                return grow(None, 0)
            return grow(cast(Made, start), earlier.size)

        return self._table.keep(self.layout.made, key, make)


class TableVersions:
    """The cached versions of one table."""

    def __init__(self, budget: MemoryBudget, later: Later | None = None) -> None:
        self._budget = budget
        self._later = later
        self._lock = threading.RLock()
        self._views: OrderedDict[Hashable, RowView] = OrderedDict()
        self._layouts: OrderedDict[tuple[tuple[str, ...], ...], Layout] = OrderedDict()
        self._deleted: OrderedDict[tuple[tuple[str, ...], str], npt.NDArray[np.int64]] = (
            OrderedDict()
        )

    def known(self, ref: str | None, version: int, columns: StoredColumns = SAME) -> RowView | None:
        """The view of a version if it is cached."""
        return self._views.get((ref, version, columns))

    def known_to(self, key: Hashable) -> RowView | None:
        """The view cached by `shown_to` under a key, if any."""
        return self._views.get(key)

    def shown_to(self, key: Hashable, make: Callable[[], RowView]) -> RowView:
        """The rows of a version that some actors see, made once for each key."""
        known = self._views.get(key)
        if known is None:
            made = make()  # reads other tables, so it must not hold this table's lock
            with current().locked(self._lock):
                known = self._views.setdefault(key, made)
                self._drop_oldest_view()
        return known

    def has_column(self, name: Hashable) -> bool:
        """Whether any version has this column in memory."""
        for layout in tuple(self._layouts.values()):  # noqa: SIM110 - a generator takes twice as long
            if name in layout.columns:
                return True
        return False

    def view(
        self, ref: str | None, version: int, handle: Handle, columns: StoredColumns = SAME
    ) -> RowView:
        """The view of a version."""
        with current().locked(self._lock):
            key = (ref, version, columns)
            known = self._views.get(key)
            if known is None:
                known = self._view(handle, columns)
                self._keep_view(key, known)
            return known

    def _keep_view(self, key: Hashable, view: RowView) -> None:
        before = self._views.pop(key, None)
        self._views[key] = view
        if before is not None:
            self._budget.forget(before.made)
        self._drop_oldest_view()

    def _drop_oldest_view(self) -> None:
        if len(self._views) > _VIEWS_MAX:
            _, dropped = self._views.popitem(last=False)
            self._budget.forget(dropped.made)

    def beginning(
        self,
        view: RowView,
        key: str,
        count: int,
        deleted: Mapping[tuple[str, ...], npt.NDArray[np.int64]],
    ) -> RowView:
        """See `RowView.beginning`."""
        same = count == len(view.fragments) and deleted.keys() == view.deleted.keys()
        if same and all(np.array_equal(deleted[files], view.deleted[files]) for files in deleted):
            return view
        with current().locked(self._lock):
            fragments = view.fragments[:count]
            # Reuse this version's own lists where they are equal: identical objects mean
            # "unchanged".
            known = {
                files: view.deleted[files]
                if np.array_equal(offsets, view.deleted.get(files, _NONE))
                else offsets
                for files, offsets in deleted.items()
            }
            columns = view.stored_columns
            made = RowView(
                self,
                view.handle,
                fragments,
                self._layout(fragments),
                deleted=known,
                columns=columns,
            )
            self._keep_view((key, 0, columns), made)
            return made

    def column(self, view: RowView, name: Hashable, load: Load) -> Column:
        """A column of a view's layout; only fragments that no other layout has are loaded."""
        with (
            current().locked(self._lock),
            self._finished_in_background(
                (id(view.layout), name), lambda: self.column(view, name, load)
            ),
        ):
            layout = view.layout
            known = layout.columns.get(name)
            if known is None:
                known = self._assembled(view, name, load)
                layout.columns[name] = known
                memory = layout.growing.get(name)
                self._budget.keep(
                    (id(layout.columns), name),
                    int(known.nbytes) if memory is None else 0,
                    lambda: layout.drop(name),
                    () if memory is None else (memory,),
                )
            return known

    def can_extend(self, layout: Layout, name: Hashable) -> bool:
        """Whether a column is in memory for the first files of a layout."""
        return any(
            name in other.columns and other.size and other.begins(layout)
            for other in tuple(self._layouts.values())
        )

    def keep(self, place: dict[Hashable, Sized], key: Hashable, make: Callable[[], Made]) -> Made:
        """Compute a value once, even if several threads ask for it, and cache it in ``place``."""
        with (
            current().locked(self._lock),
            self._finished_in_background((id(place), key), lambda: self.keep(place, key, make)),
        ):
            known = place.get(key)
            if known is not None:
                return cast(Made, known)
            made = make()
            place[key] = made
            # Memory shared with another version's value counts once.
            shared: tuple[Sized, ...] = (made, *getattr(made, "parts", ()))
            self._budget.keep((id(place), key), 0, lambda: place.pop(key, None), shared)
            return made

    @contextmanager
    def _finished_in_background(self, key: Hashable, job: Callable[[], object]) -> Iterator[None]:
        """Finish a job in the background if the deadline of its query comes first.

        Otherwise a job longer than the deadline would be started by every query and finished by
        none.
        """
        try:
            yield
        except QueryTimeout:
            if self._later is not None:
                self._later(key, job)
            raise

    def nearest_view(
        self, layout: Layout, keys: Sequence[Hashable], actors: Hashable = None
    ) -> RowView | None:
        """The newest view that has one of some keys and shares the most rows with a layout."""
        best, best_rows = None, (False, 0)
        for view in reversed(self._views.values()):
            if not any(key in view.made for key in keys):
                continue
            if view.layout.begins(layout):
                rows = view.layout.size
            else:
                starts = view.layout.starts
                rows = sum(size for files, (_, size) in layout.starts.items() if files in starts)
            if rows and (view.actors == actors, rows) > best_rows:
                best, best_rows = view, (view.actors == actors, rows)
        return best

    def longest_beginning(self, layout: Layout, key: Hashable) -> Layout | None:
        """The layout with the most files that ``layout`` starts with and that has made ``key``."""
        fitting = [
            other for other in self._layouts.values() if key in other.made and other.begins(layout)
        ]
        return max(fitting, key=lambda other: other.size, default=None)

    def _view(self, handle: Handle, columns: StoredColumns) -> RowView:
        shape = f"{columns_of(handle)}{columns.differing or ''}"
        fragments = [replace(each, files=(*each.files, shape)) for each in fragments_of(handle)]
        layout = self._layout(fragments)
        deleted = {
            fragment.files: self._deleted_in(handle, fragment)
            for fragment in fragments
            if fragment.deletions is not None
        }
        return RowView(self, handle, fragments, layout, deleted=deleted, columns=columns)

    def _layout(self, fragments: Sequence[FragmentState]) -> Layout:
        files = tuple(fragment.files for fragment in fragments)
        layout = self._layouts.get(files)
        if layout is None:
            layout = self._layouts[files] = Layout(fragments)
            if len(self._layouts) > _VIEWS_MAX:
                _, dropped = self._layouts.popitem(last=False)
                self._budget.forget(dropped.columns)
                self._budget.forget(dropped.made)
        return layout

    def _deleted_in(self, handle: Handle, fragment: FragmentState) -> npt.NDArray[np.int64]:
        assert fragment.deletions is not None
        key = (fragment.files, fragment.deletions)
        known = self._deleted.get(key)
        if known is None:
            known = self._deleted[key] = deleted_offsets(handle, fragment)
            if len(self._deleted) > _DELETIONS_MAX:
                self._deleted.popitem(last=False)
        return known

    def _assembled(self, view: RowView, name: Hashable, load: Load) -> Column:
        """The column: another layout's, extended, or assembled anew."""
        layout = view.layout
        others = [other for other in self._layouts.values() if name in other.columns]
        for other in others:
            if layout.begins(other):
                # The other layout has all these files and more: take its first rows.
                if name in other.growing:
                    layout.growing[name] = other.growing[name]
                return other.columns[name][: layout.size]
        beginning = max(
            (other for other in others if other.begins(layout)),
            key=lambda other: other.size,
            default=None,
        )
        if beginning is not None:
            memory = beginning.growing.get(name)
            if memory is not None and memory.length == beginning.size:
                rest = view.fragments[len(beginning.files) :]
                if memory.append(_joined(self._parts(view, rest, others, name, load))):
                    layout.growing[name] = memory
                    return memory.column()
        parts = self._parts(view, view.fragments, others, name, load)
        if not can_grow(parts[0]):
            return _joined(parts)
        memory = layout.growing[name] = GrowingColumn(parts)
        return memory.column()

    def _parts(
        self,
        view: RowView,
        fragments: Sequence[FragmentState],
        others: Sequence[Layout],
        name: Hashable,
        load: Load,
    ) -> list[Column]:
        """The values of some fragments, cached or newly loaded, in at least one part."""
        known: dict[tuple[str, ...], list[Column]] = {}
        for fragment in fragments:
            for other in others:
                if fragment.files in other.starts:
                    start, rows = other.starts[fragment.files]
                    known[fragment.files] = [other.columns[name][start : start + rows]]
                    break
        missing = [fragment for fragment in fragments if fragment.files not in known]
        if missing or not fragments:
            loaded = load(view.handle, missing)
            if len(loaded) >= _LARGE_ROWS:
                # Return the buffers of the scan to the system.
                pa.default_memory_pool().release_unused()
            if not known:
                return _chunks(loaded)
            at = 0
            for fragment in missing:
                known[fragment.files] = _chunks(loaded[at : at + fragment.rows])
                at += fragment.rows
        return [part for fragment in fragments for part in known[fragment.files]]


def _chunks(column: Column | pa.ChunkedArray) -> list[Column]:
    """The arrays of a column, at least one."""
    if not isinstance(column, pa.ChunkedArray):
        return [column]
    return column.chunks or [pa.array([], column.type)]


def _joined(parts: list[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return pa.concat_arrays(parts)
