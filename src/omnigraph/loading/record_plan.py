"""Loads: the records of an input as one change set, in one of three modes.

=========  =======================================================================================
append     every record is a new entity; an id that exists is a conflict
merge      a record replaces the whole entity of its id, or adds it
overwrite  the records of a type become all there is of it; types without records stay as they are
=========  =======================================================================================

`load_input.read_input` reads the records, `plan_load` meets the committed rows. What the schema
demands of the result (enums, ranges, uniqueness, endpoints, cardinality) is checked for every write
by `validation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.change_set import ChangeKind, ChangeSet, GraphView, TableChange
from omnigraph.commit.unchanged import unchanged_rows
from omnigraph.commit.validation import InputRows
from omnigraph.commit.validation.result_graph import NO_IDS
from omnigraph.errors import InputError
from omnigraph.loading.record_input import InputTable, LoadInput
from omnigraph.loading.records.envelope import TableType
from omnigraph.loading.records.problems import name_hint
from omnigraph.model.arrow import ID
from omnigraph.model.ids import TableKey
from omnigraph.model.receipts import LoadedType
from omnigraph.schema.catalog import Catalog, table_schema


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load will write, and what its receipt will say about it."""

    changes: ChangeSet
    given: Mapping[str, InputRows]
    """By type key, what the validator has to know about the input."""
    nodes: tuple[LoadedType, ...]
    edges: tuple[LoadedType, ...]


def plan_load(
    loaded: LoadInput,
    view: GraphView,
    *,
    replace_types: Iterable[str] = (),
) -> LoadPlan:
    """The change set of a load against the committed rows of ``view``.

    ``replace_types`` are type keys that an overwrite empties if it has no records of them, which
    records alone cannot say.
    """
    plans = {key: _plan_table(key, table, loaded, view) for key, table in loaded.tables.items()}
    for key in replace_types:
        if loaded.mode != "overwrite":
            raise InputError(
                f"mode {loaded.mode} cannot empty {key}", hint="only mode overwrite replaces types"
            )
        if key not in plans:
            plans[key] = _emptied(key, loaded.catalog)
    counts = {key: count for key, (_, count) in sorted(plans.items())}
    return LoadPlan(
        ChangeSet({key: change for key, (change, _) in sorted(plans.items()) if change}),
        given={
            key: InputRows(
                table.raw_rows if table.rows is not table.raw_rows else None,
                table.given_ids if loaded.mode == "append" else NO_IDS,
                loaded.refused_ids[key],
            )
            for key, table in loaded.tables.items()
        },
        nodes=tuple(count for key, count in counts.items() if TableKey(key).kind == "node"),
        edges=tuple(count for key, count in counts.items() if TableKey(key).kind == "edge"),
    )


_Planned = tuple[TableChange | None, LoadedType]


def _plan_table(key: str, table: InputTable, loaded: LoadInput, view: GraphView) -> _Planned:
    if loaded.mode == "merge":
        return _merged(key, table, view)
    kind: ChangeKind = "append" if loaded.mode == "append" else "replace"
    change = TableChange(key, kind, table.rows)
    return change, _count(table, inserted=table.rows.num_rows)


def _merged(key: str, table: InputTable, view: GraphView) -> _Planned:
    # Bytes of blobs are not read to compare them: a type that has some is always written.
    has_blobs = any(prop.type.is_blob for prop in table.type.properties.values())
    existing = _existing(key, table, view, [ID] if has_blobs else table.rows.schema.names)
    rows = table.rows
    if existing.num_rows and not has_blobs:
        rows = rows.filter(pc.invert(unchanged_rows(rows, existing)))
    unchanged = table.rows.num_rows - rows.num_rows
    count = _count(
        table,
        inserted=table.rows.num_rows - existing.num_rows,
        updated=existing.num_rows - unchanged,
        unchanged=unchanged,
    )
    return (TableChange(key, "upsert", rows) if rows.num_rows else None), count


def _existing(key: str, table: InputTable, view: GraphView, columns: Sequence[str]) -> pa.Table:
    """The committed rows of ids in the input; ids minted for it need no look."""
    if not len(table.given_ids) or view.is_empty(key):
        return table.rows.schema.empty_table().select(list(columns))
    return view.rows_where_in(key, ID, table.given_ids, columns)


def _emptied(key: str, catalog: Catalog) -> _Planned:
    type = _type_of(key, catalog)
    change = TableChange(key, "replace", table_schema(type).empty_table())
    return change, LoadedType(type.name, records_read=0, inserted=0, updated=0, unchanged=0)


def _type_of(key: str, catalog: Catalog) -> TableType:
    where = TableKey.parse(key)
    types: Mapping[str, TableType] = catalog.nodes if where.kind == "node" else catalog.edges
    found = types.get(where.type_name)
    if found is None:
        raise InputError(
            f"unknown {where.kind} type '{where.type_name}'",
            hint=name_hint(where.type_name, types, f"{where.kind} types"),
        )
    return found


def _count(table: InputTable, *, inserted: int, updated: int = 0, unchanged: int = 0) -> LoadedType:
    return LoadedType(table.type.name, table.records_read, inserted, updated, unchanged)
