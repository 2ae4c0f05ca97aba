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
from omnigraph.errors import InputError, KeyConflict
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
    given: Mapping[str, pa.Table]
    """By type key, the records before those of one id were folded, where there were such: what one
    input may not repeat is judged on them (`validation.validate`)."""
    nodes: tuple[LoadedType, ...]
    edges: tuple[LoadedType, ...]


def plan_load(
    loaded: LoadInput,
    view: GraphView,
    *,
    replace_types: Iterable[str] = (),
    existing_ids: dict[str, pa.Array] | None = None,
) -> LoadPlan:
    """The change set of a load against the committed rows of ``view``.

    ``replace_types`` are type keys that an overwrite empties if it has no records of them, which
    records alone cannot say. Raises `KeyConflict` naming the first entity an append would repeat;
    with ``existing_ids`` all of them are put there instead, by type key.
    """
    plans = {
        key: _plan_table(key, table, loaded, view, existing_ids)
        for key, table in loaded.tables.items()
    }
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
            key: table.raw_rows
            for key, table in loaded.tables.items()
            if table.rows is not table.raw_rows
        },
        nodes=tuple(count for key, count in counts.items() if key.startswith("node:")),
        edges=tuple(count for key, count in counts.items() if key.startswith("edge:")),
    )


_Planned = tuple[TableChange | None, LoadedType]


def _plan_table(
    key: str,
    table: InputTable,
    loaded: LoadInput,
    view: GraphView,
    existing_ids: dict[str, pa.Array] | None,
) -> _Planned:
    if loaded.mode == "merge":
        return _merged(key, table, view)
    if loaded.mode == "append" and existing_ids is not None:
        existing_ids[key] = _existing(key, table, view, [ID])[ID].combine_chunks()
    elif loaded.mode == "append":
        _refuse_existing(key, table, view)
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


def _refuse_existing(key: str, table: InputTable, view: GraphView) -> None:
    existing = _existing(key, table, view, [ID])
    if not existing.num_rows:
        return
    taken = pc.is_in(table.rows[ID], value_set=existing[ID].combine_chunks())
    row = pc.index(taken, True).as_py()
    where = TableKey.parse(key)
    entity_id, place = table.rows[ID][row].as_py(), str(table.places.of(row))
    raise KeyConflict(where.kind, where.type_name, entity_id, place=place)


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
