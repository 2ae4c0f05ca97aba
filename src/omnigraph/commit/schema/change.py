"""The effects of a schema change on the tables of a graph.

Types and properties are matched by id. Changes of enum values, constraints, wanted indexes or
descriptions affect only the contract, and no table. Renaming a type changes only its registration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from omnigraph.model.records import dataclass
from omnigraph.model.values import property_value
from omnigraph.schema.catalog import Catalog, Property, TableType, table_schema
from omnigraph.storage.columns import ColumnsChange, Fill, TargetColumn
from omnigraph.storage.manifest import Snapshot, TableEntry
from omnigraph.storage.manifest_rows import TableIdentity, TableRow, VersionRow
from omnigraph.storage.reader import TableToday


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """A table whose columns change."""

    entry: TableEntry
    change: ColumnsChange
    drops: bool
    """Whether a column is dropped."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """All changes of tables and their registrations."""

    created: tuple[TableType, ...] = ()
    changed: tuple[ChangedTable, ...] = ()
    renamed: tuple[TableRow, ...] = ()
    dropped: tuple[TableEntry, ...] = ()

    @property
    def tombstones(self) -> tuple[VersionRow, ...]:
        """The rows that hide dropped tables."""
        return tuple(VersionRow(e.identity, e.version, e.ref, e.row_count) for e in self.dropped)


def schema_change(old: Catalog, new: Catalog, snapshot: Snapshot) -> SchemaChange:
    """The changes from one catalog to another, for the tables of a snapshot."""
    before, after = _types(old), _types(new)
    created, changed, renamed = [], [], []
    for ref, desired in after.items():
        known = before.get(ref)
        if known is None:
            created.append(desired)
            continue
        entry = snapshot.table(known.table_key)
        if known.table_key != desired.table_key:
            renamed.append(TableRow(entry.identity, desired.table_key, entry.location))
        if not table_schema(known).equals(table_schema(desired), check_metadata=True):
            changed.append(changed_table(entry, known, desired))
    dropped = [snapshot.table(t.table_key) for ref, t in before.items() if ref not in after]
    return SchemaChange(tuple(created), tuple(changed), tuple(renamed), tuple(dropped))


def identity_of(type: TableType) -> TableIdentity:
    """The identity of a type's table."""
    return TableIdentity(type.type_id, type.incarnation_id)


def tables_today(catalog: Catalog) -> dict[str, TableToday]:
    """The current form of every type by type key, for reading older snapshots."""
    return {
        type.table_key: TableToday(identity_of(type), table_schema(type))
        for type in _types(catalog).values()
    }


def tables_forward(catalog: Catalog) -> dict[str, TableToday]:
    """The target form of types, to convert rows of an older schema, with backfilled defaults."""
    return {
        type.table_key: TableToday(
            identity_of(type),
            table_schema(type),
            {
                name: _default_value(table_schema(type).field(name), prop)
                for name, prop in type.properties.items()
                if prop.default is not None
            },
        )
        for type in catalog.types
    }


def types_at(catalog: Catalog, snapshot: Snapshot) -> Catalog:
    """The catalog, reduced to the types of a snapshot."""
    return replace(
        catalog,
        nodes={n: t for n, t in catalog.nodes.items() if t.table_key in snapshot.tables},
        edges={n: t for n, t in catalog.edges.items() if t.table_key in snapshot.tables},
    )


def _types(catalog: Catalog) -> dict[tuple[type, int], TableType]:
    return {(type(each), each.type_id): each for each in catalog.types}


def target_columns(old: TableType, new: TableType) -> tuple[TargetColumn, ...]:
    """The new columns of a type, each with its source."""
    stored = {prop.property_id: prop for prop in old.properties.values()}
    types = table_schema(old)
    return tuple(
        _column(field, new.properties.get(field.name), stored, types) for field in table_schema(new)
    )


def changed_table(entry: TableEntry, old: TableType, new: TableType) -> ChangedTable:
    """The change of a table from the columns of one type to those of another."""
    stored = {prop.property_id for prop in old.properties.values()}
    wanted = {prop.property_id for prop in new.properties.values()}
    return ChangedTable(entry, ColumnsChange(target_columns(old, new)), drops=not wanted >= stored)


def _column(
    field: pa.Field, prop: Property | None, stored: Mapping[int, Property], types: pa.Schema
) -> TargetColumn:
    if prop is None:
        return TargetColumn(field, field.name)  # `id` and the ends of an edge
    known = stored.get(prop.property_id)
    if known is None:
        return TargetColumn(field, None, None if prop.default is None else _default(field, prop))
    if types.field(known.name).type == field.type:
        return TargetColumn(field, known.name)
    return TargetColumn(field, known.name, _widened(field, known.name))


def _default(field: pa.Field, prop: Property) -> Fill:
    value = _default_value(field, prop)
    return lambda batch: pa.repeat(value, batch.num_rows)


def _default_value(field: pa.Field, prop: Property) -> pa.Scalar:
    return pa.scalar(property_value(prop.default, prop.type, prop.name, strict=True), field.type)


def _widened(field: pa.Field, stored: str) -> Fill:
    return lambda batch: batch.column(stored).cast(field.type)
