"""The graph a write would leave behind, asked by lookup.

A constraint speaks about the result: committed rows the write does not touch, and the rows it
writes. The committed part is never read as a whole, except where a node table is replaced and
the edges that stay have to be compared with its new rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.change_set import UPKEEP_KINDS, ChangeSet, GraphView
from omnigraph.commit.validation.constraints import Role
from omnigraph.model.arrow import ID

NO_IDS = pa.array([], pa.string())


class ResultGraph:
    """A change set laid over the committed rows of one snapshot."""

    def __init__(self, change_set: ChangeSet, view: GraphView) -> None:
        # What rewrites files without touching content leaves its type as it was.
        self._changes = {
            key: change
            for key, change in change_set.tables.items()
            if change.kind not in UPKEEP_KINDS
        }
        self._view = view
        self._changed_ids: dict[str, pa.Array] = {}

    def is_touched(self, table_key: str) -> bool:
        """Whether the write changes the type at all."""
        return table_key in self._changes

    def is_replaced(self, table_key: str) -> bool:
        """Whether the type starts anew, as if it had been empty."""
        return table_key in self._changes and self._changes[table_key].kind == "replace"

    def is_upserted(self, table_key: str) -> bool:
        """Whether rows of the write replace those of their id; also of a type without changes."""
        change = self._changes.get(table_key)
        return change is None or change.kind == "upsert"

    def written(self, table_key: str) -> pa.Table | None:
        """The new and changed rows of a type, None if there are none."""
        change = self._changes.get(table_key)
        if change is None or change.kind == "delete" or not change.rows.num_rows:
            return None
        return change.rows

    def removed(self, table_key: str) -> pa.Array:
        """The ids that are deleted one by one; those a replacement drops are not known."""
        change = self._changes.get(table_key)
        if change is None:
            return NO_IDS
        if change.exchanged is not None:
            return change.exchanged.deleted
        return self._ids(table_key) if change.kind == "delete" else NO_IDS

    def kept(self, table_key: str, columns: Sequence[str]) -> pa.Table | None:
        """The id and ``columns`` of all committed rows that stay, None if there are none."""
        if self._is_empty(table_key):
            return None
        return self._without_changed(table_key, self._view.scan(table_key, [ID, *columns]))

    def kept_where_in(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table | None:
        """The id and ``columns`` of rows that stay and whose ``column`` holds one of ``values``."""
        if self._is_empty(table_key) or not len(values):
            return None
        found = self._view.rows_where_in(table_key, column, values, [ID, *columns])
        return self._without_changed(table_key, found)

    def former(self, table_key: str, column: str) -> pa.Array:
        """What ``column`` held in the committed rows that are changed or deleted."""
        change = self._changes.get(table_key)
        if change is None or change.kind == "append" or self._is_empty(table_key):
            return NO_IDS
        ids = self._ids(table_key)
        if not len(ids):
            return NO_IDS
        return pc.unique(self._view.rows_where_in(table_key, ID, ids, [column])[column])

    def with_ids(self, table_key: str, ids: pa.Array) -> Iterator[tuple[Role, pa.Table]]:
        """The ids of rows of the result: all that are written, and committed ones of ``ids``."""
        written = self.written(table_key)
        if written is not None:
            yield "written", written.select([ID])
            ids = _minus(ids, written[ID])
        if not self._is_empty(table_key):
            candidates = _minus(ids, self.removed(table_key))
            if len(candidates):
                found = self._view.rows_where_in(table_key, ID, candidates, [ID])
                yield "committed", found

    def absent(self, table_key: str, ids: pa.Array) -> pa.Array:
        """Those of ``ids`` that no row of the result has."""
        for _, rows in self.with_ids(table_key, ids):
            ids = _minus(ids, pc.unique(rows[ID]))
        return ids

    def committed_ids(self, table_key: str, ids: pa.Array) -> pa.Table | None:
        """Those of ``ids`` that committed rows have, whether the write touches them or not."""
        if not len(ids) or self._is_empty(table_key):
            return None
        found = self._view.rows_where_in(table_key, ID, ids, [ID])
        return found if found.num_rows else None

    def _is_empty(self, table_key: str) -> bool:
        return self.is_replaced(table_key) or self._view.is_empty(table_key)

    def _ids(self, table_key: str) -> pa.Array:
        known = self._changed_ids.get(table_key)
        if known is None:
            change = self._changes[table_key]
            known = pc.unique(change.ids)
            if change.exchanged is not None:
                known = pa.concat_arrays([known, change.exchanged.deleted])
            self._changed_ids[table_key] = known
        return known

    def _without_changed(self, table_key: str, rows: pa.Table) -> pa.Table | None:
        if table_key in self._changes:
            rows = rows.filter(pc.invert(pc.is_in(rows[ID], value_set=self._ids(table_key))))
        return rows if rows.num_rows else None


def _minus(ids: pa.Array, others: pa.Array | pa.ChunkedArray) -> pa.Array:
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others))) if len(others) else ids
