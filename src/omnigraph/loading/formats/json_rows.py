"""Rows of JSON files: objects with the properties of one type, which is the same for a whole file.

An edge has its ends among its properties, as `from` and `to` or `src` and `dst`. All other members
are treated as the `data` of a graph record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from omnigraph.errors import ValueConversionError
from omnigraph.loading.formats.table_columns import UNKNOWN_LEFT_OUT, end_type
from omnigraph.loading.records.envelope import TypeRecords
from omnigraph.loading.records.problems import Problem, RecordProblems, Unit
from omnigraph.model.arrow import DST, ID, SRC, column_from_json, spell_column
from omnigraph.model.arrow_columns import ids_from_texts
from omnigraph.model.references import END_TYPES, RECORD_END_TYPES
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import shown
from omnigraph.schema.catalog import Catalog, EdgeType, TableType

_ABSENT = object()


def typed_records(
    objects: Sequence[Any],
    numbers: Sequence[int],
    type: TableType,
    catalog: Catalog,
    *,
    source: str,
    unit: Unit,
    ignore_unknown: bool,
) -> tuple[TypeRecords, list[Problem]]:
    """Objects as records of ``type``, and the problems of refused ones.

    Modifies the objects. With ``ignore_unknown``, unknown members are left out.
    """
    batch = RecordProblems(type, source, unit, numbers)
    objects = [_as_object(i, each, batch) for i, each in enumerate(objects)]
    for each in objects:
        # Null means no id, as in a column of ids.
        if each.get(ID, _ABSENT) is None:
            del each[ID]
    ends: list[list[str]] = [[], []]
    end_types: dict[str, dict[int, object]] = {}
    if isinstance(type, EdgeType):
        end_types = {
            name: {
                i: given
                for i, each in enumerate(objects)
                if (given := _taken(each, RECORD_END_TYPES[name], END_TYPES[name])) is not _ABSENT
            }
            for name in type.end_types
        }
        ends = [
            _ends(objects, type, name, end_type(type, name, catalog), batch) for name in (SRC, DST)
        ]
    if batch.problems:
        kept = [i for i in range(len(objects)) if i not in batch.bad]
        objects, numbers = [objects[i] for i in kept], [numbers[i] for i in kept]
        ends = [[each[i] for i in kept if each] for each in ends]
        places = {old: new for new, old in enumerate(kept)}
        end_types = {
            name: {places[i]: given for i, given in each.items() if i in places}
            for name, each in end_types.items()
        }
    if ignore_unknown:
        known = {*type.properties, ID, SRC, DST}
        if not set().union(*objects) <= known:
            objects = [{k: v for k, v in each.items() if k in known} for each in objects]
    sources, targets = ends
    records = TypeRecords(type, list(numbers), objects, sources, targets, end_types)
    return records, batch.problems


def with_type_hint(problem: Problem) -> Problem:
    """The problem, with the hint for a JSON file of one type instead of graph records."""
    if problem.kind == "reserved_field" and problem.property_name in (SRC, DST):
        return replace(problem, hint="name each end once: 'from' is 'src', and 'to' is 'dst'")
    if problem.kind != "unknown_field":
        return problem
    return replace(problem, hint=f"{problem.hint}; {UNKNOWN_LEFT_OUT}")


def _as_object(position: int, value: Any, batch: RecordProblems) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    place = f"{batch.unit} {batch.numbers[position]}"
    message = f"invalid strict JSON at {place}: a record is an object, got {shown(value)}"
    hint = "write each record as one JSON object on a line of its own"
    batch.add(position, "invalid_json", message, None, hint)
    return {}


def _ends(
    objects: Sequence[dict[str, Any]],
    type: EdgeType,
    name: str,
    wanted: ValueType,
    batch: RecordProblems,
) -> list[str]:
    """The node id at one end of every edge; removes the member from its object."""
    member = "from" if name == SRC else "to"
    given = [_taken(each, member, name) for each in objects]
    others = [i for i, value in enumerate(given) if not isinstance(value, str)]
    if wanted.scalar is not Scalar.STRING:
        texts = pa.array([v if isinstance(v, str) else None for v in given], pa.string())
        known = ids_from_texts(texts, wanted).to_pylist()
        given = [v if id is None else id for v, id in zip(given, known, strict=True)]
    ids = _spelled([given[i] for i in others], wanted.with_nullable(False))
    node = type.source if name == SRC else type.target
    for i, id in zip(others, ids, strict=True):
        if id is None and i not in batch.bad:
            message = (
                f"edge {type.name} requires field '{member}'"
                if given[i] is _ABSENT
                else f"field '{member}' must be a string, got {shown(given[i])}"
            )
            batch.add(i, "bad_endpoint", message, member, f"give '{member}' the id of a {node}")
        given[i] = id or ""
    return given


def _taken(record: dict[str, Any], member: str, name: str) -> Any:
    value = record.pop(member, _ABSENT)
    return record.pop(name, _ABSENT) if value is _ABSENT else value


def _spelled(values: Sequence[object], wanted: ValueType) -> list[str | None]:
    """Key values as node ids; None for values that do not fit the key's type."""
    try:
        column = column_from_json(values, wanted, name="", strict=True)
    except ValueConversionError:
        if len(values) == 1:
            return [None]
        return [id for value in values for id in _spelled([value], wanted)]
    ids: list[str | None] = spell_column(column, wanted).to_pylist()
    return ids
