"""The rows of one type that differ between two snapshots.

Candidates are found by where rows lie: rows of fragments that both versions list are the same, on
any branch (`storage.row_places`). What is left on either side is joined by id, and pairs are
compared value by value. The cost follows the changes, not the size of the type. Memory holds the
ids of the candidates of one type, and some rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.table_rows import RowsAt, TableRows, same_rows
from omnigraph.storage.row_places import (
    NOWHERE,
    Positions,
    RowPlaces,
    positions_in,
    unshared_rows,
)


@dataclass(frozen=True, eq=False)
class ChangedRows:
    """Entities of one type that changed in the same way, by id in ascending order."""

    ids: pa.Array
    before: Positions
    """Where they lie in the older version; of no meaning for inserted ones."""
    after: Positions
    """Where they lie in the newer version; of no meaning for deleted ones."""

    def __len__(self) -> int:
        return len(self.ids)

    def chosen(self, mask: npt.NDArray[np.bool_]) -> ChangedRows:
        """Those for which ``mask`` holds."""
        return ChangedRows(self.ids.filter(pa.array(mask)), self.before[mask], self.after[mask])


@dataclass(frozen=True)
class TableDelta:
    """What leads from one version of a type to another."""

    before: TableRows
    after: TableRows
    inserted: ChangedRows
    updated: ChangedRows
    deleted: ChangedRows
    places: RowPlaces
    """The rows of the newer version that do not lie where the older has them, changed or not."""

    @property
    def is_empty(self) -> bool:
        """Whether both versions hold the same."""
        return not (len(self.inserted) or len(self.updated) or len(self.deleted))

    def where_now(self, ids: pa.Array, before: Positions) -> Positions:
        """Where entities that did not change lie in the newer version."""
        positions = positions_in(self.before.handle, before, self.after.handle)
        moved = np.flatnonzero(positions == NOWHERE)
        if len(moved):
            at = pc.index_in(ids.take(pa.array(moved)), value_set=self.places.ids)
            positions[moved] = self.places.positions[at.to_numpy()]
        return positions


def table_delta(before: TableRows, after: TableRows) -> TableDelta:
    """What differs between two versions of one type, which may be on different branches."""
    old, new = before.entry, after.entry
    if (old.ref, old.version) == (new.ref, new.version):
        nothing = _no_rows()
        return TableDelta(before, after, *(nothing,) * 3, places=_NO_PLACES)
    left = unshared_rows(before.handle, after.handle)
    right = unshared_rows(after.handle, before.handle)
    at_left = pc.index_in(right.ids, value_set=left.ids)
    is_new = at_left.is_null().to_numpy(zero_copy_only=False)
    paired = np.flatnonzero(~is_new)
    partner = at_left.drop_null().to_numpy()
    stays = np.zeros(len(left.ids), np.bool_)
    stays[partner] = True
    pairs = ChangedRows(
        right.ids.take(pa.array(paired)), left.positions[partner], right.positions[paired]
    )
    if old.ref == new.ref:
        # On one line of versions, a row that was not written since the older one is the same.
        if old.version < new.version:
            written = right.updated_at[paired] > old.version
        else:
            written = left.updated_at[partner] > new.version
        pairs = pairs.chosen(written)
    same = same_rows(RowsAt(before, pairs.before), RowsAt(after, pairs.after))
    pairs = pairs.chosen(~same)
    gone, come = left.positions[~stays], right.positions[is_new]
    return TableDelta(
        before,
        after,
        inserted=_sorted(ChangedRows(right.ids.filter(pa.array(is_new)), come, come)),
        updated=_sorted(pairs),
        deleted=_sorted(ChangedRows(left.ids.filter(pa.array(~stays)), gone, gone)),
        places=right,
    )


def _sorted(rows: ChangedRows) -> ChangedRows:
    order = pc.sort_indices(rows.ids)
    at = order.to_numpy()
    return ChangedRows(rows.ids.take(order), rows.before[at], rows.after[at])


def _no_rows() -> ChangedRows:
    return ChangedRows(pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros(0, np.int64))


_NO_PLACES = RowPlaces(pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros(0, np.uint64))
