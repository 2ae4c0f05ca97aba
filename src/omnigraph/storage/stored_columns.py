"""Which column of an older version holds a property of today.

Columns carry the stable id of their property, so a renamed property is found under the name it had,
and one that took over the name of another is not confused with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.model.arrow import ID, property_id


def column_at(schema: pa.Schema, field: pa.Field) -> str | None:
    """The name, in a version with ``schema``, of the column that is ``field`` today.

    None if that version does not have it. Tables of older graphs have columns without a property
    id; those go by their names.
    """
    wanted = property_id(field)
    same_name: str | None = None
    for stored in schema:
        known = property_id(stored)
        if wanted is not None and known == wanted:
            return str(stored.name)
        if stored.name == field.name and (known is None or wanted is None):
            same_name = field.name
    return same_name


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """How one version of a table differs from the columns of today."""

    differing: tuple[tuple[str, str | None, pa.DataType], ...] = ()
    """Name today, name in that version or None, and type today; only where something differs."""

    @classmethod
    def between(cls, stored: pa.Schema, today: pa.Schema) -> StoredColumns:
        """What differs between a version and today."""
        found = ((field, column_at(stored, field)) for field in today)
        return cls(
            tuple(
                (field.name, name, field.type)
                for field, name in found
                if name != field.name or not _same_type(stored.field(name).type, field.type)
            )
        )

    @property
    def is_same(self) -> bool:
        """Whether every column of today is there, as it is today."""
        return not self.differing

    def name(self, column: str) -> str | None:
        """The name a column of today has in that version; None if it is not there."""
        for today, stored, _ in self.differing:
            if today == column:
                return stored
        return column

    def as_today(self, column: str, values: pa.Array) -> pa.Array:
        """Stored values with the type the column has today."""
        for today, _, type in self.differing:
            if today == column:
                return values.cast(type)
        return values

    def read(self, columns: Sequence[str], read: Callable[[list[str]], pa.Table]) -> pa.Table:
        """Columns of today out of a read of stored ones; what was not there is null."""
        if self.is_same:
            return read(list(columns))
        # The id is always read: it tells how many rows there are.
        names = {column: self.name(column) for column in columns}
        rows = read(list(dict.fromkeys([ID, *filter(None, names.values())])))
        types = {today: type for today, _, type in self.differing}
        return pa.table(
            {
                column: pa.nulls(rows.num_rows, types[column])
                if stored is None
                else self.as_today(column, rows[stored])
                for column, stored in names.items()
            }
        )


def _same_type(stored: pa.DataType, today: pa.DataType) -> bool:
    # A blob is read by other means, and Lance gives it a type of its own.
    return bool(stored == today or pa.types.is_struct(today))


SAME = StoredColumns()
"""Nothing differs."""
