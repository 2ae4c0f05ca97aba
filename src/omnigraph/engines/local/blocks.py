"""Values of blocks such as `count { … }`, for all rows of a table at once.

A block is solved once per distinct binding of the variables it reads; rows with equal bindings
share the value, and two blocks never multiply each other's solutions. Values are computed lazily,
so a block that only the result shows is solved for the rows that order and limit have left.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.engines.local.bindings import BindingTable, BindingValues
from omnigraph.engines.local.grouping import Coded, Grouping, codes_of, totals
from omnigraph.engines.local.ids import ABSENT
from omnigraph.engines.local.match import PatternMatcher, same_binding
from omnigraph.engines.local.prepared import PreparedBlock
from omnigraph.engines.local.ranking import Key, Rows, ordered_rows
from omnigraph.engines.local.rows import taken
from omnigraph.engines.local.tables import Session
from omnigraph.model.arrow import arrow_type
from omnigraph.query import expressions as ex
from omnigraph.query import plan

_TAG = "#binding"
"""The column with the number of the binding that a solution of a block extends."""


def block_values(session: Session, block: PreparedBlock, frame: BindingTable) -> pa.Array:
    """The value of a block for each row."""
    outer, binding = _distinct(frame.only(block.reads))
    matcher = PatternMatcher(session)
    inside = matcher.from_inside(block.pattern, outer)
    if inside is not None:
        tags = same_binding(inside, outer, block.pattern.nodes)
        found = np.flatnonzero(tags >= 0)
        solutions = inside.take(found).binding(_TAG, tags[found].astype(np.int32))
    else:
        tagged = outer.binding(_TAG, np.arange(outer.count, dtype=np.int32))
        solutions = matcher.run(block.pattern, tagged, frozenset([_TAG]))
    values = _values(session, block.step, solutions, outer.count)
    return values if binding is None else taken(values, binding)


def _distinct(frame: BindingTable) -> tuple[BindingTable, Rows | None]:
    """The distinct bindings of a table, and the number of the binding of each row."""
    if not frame.bound:
        return BindingTable.unit(), np.zeros(frame.count, np.int32)
    coded = [
        Coded(slots.astype(np.int64) - ABSENT, int(slots.max()) - ABSENT + 1)
        for slots in frame.bound.values()
    ]
    groups = codes_of(coded).grouped()
    if groups.count == frame.count:
        return frame, None
    return frame.take(groups.first), groups.group


def _values(
    session: Session, step: plan.Compute, solutions: BindingTable, bindings: int
) -> pa.Array:
    """The value of each binding."""
    tags = solutions.bound[_TAG]
    if step.function == "exists":
        found = np.zeros(bindings, np.bool_)
        found[tags] = True
        return pa.array(found)
    values = BindingValues(session, solutions)
    items = [values.column(value) for _, value in step.items]
    if len(items) != 1 and step.function == "count":
        if step.distinct:
            tags = tags[codes_of([Coded(tags, bindings), *items]).grouped().first]
        return pa.array(np.bincount(tags, minlength=bindings), pa.int64())
    if step.function == "collect":
        return _lists(session, step, items, values, bindings)
    ((_, value),) = step.items
    groups = Grouping(tags, np.zeros(0, np.int64), np.bincount(tags, minlength=bindings))
    return totals(step.function, value, values, groups, distinct=step.distinct)


# --- lists ----------------------------------------------------------------------------------------


def _lists(
    session: Session,
    step: plan.Compute,
    items: list[pa.Array],
    values: BindingValues,
    bindings: int,
) -> pa.Array:
    """The solutions of each binding in their order, as values or as records."""
    tags = values.frame.bound[_TAG]
    rows: Rows = np.arange(len(tags))
    if len(items) == 1 and items[0].null_count:
        rows = np.flatnonzero(items[0].is_valid().to_numpy(zero_copy_only=False))
    if step.distinct:
        some = [taken(item, rows) for item in items]
        rows = rows[codes_of([Coded(tags[rows], bindings), *some]).grouped().first]
    keys: list[Key] = [(pa.array(tags[rows]), False)]
    keys += [(taken(values.column(key.expression), rows), key.descending) for key in step.order]
    if not step.order or step.distinct:
        keys += [(taken(item, rows), False) for item in items]
    keys += [(taken(column, rows), False) for column in _ids(session, step, values)]
    rows = rows[ordered_rows(keys, (), len(rows), None)]
    sizes = np.bincount(tags[rows], minlength=bindings)
    limit = session.run.row_count(step.limit)
    if limit is not None:
        starts = np.cumsum(sizes) - sizes
        rows = rows[np.arange(len(rows)) - starts[tags[rows]] < limit]
        sizes = np.minimum(sizes, limit)
    offsets = np.zeros(bindings + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    shown = [taken(item, rows) for item in items]
    inner = shown[0]
    if len(items) > 1:
        fields = [pa.field(name, arrow_type(value.type)) for name, value in step.items]
        inner = pa.StructArray.from_arrays(shown, fields=fields)
    return pa.ListArray.from_arrays(pa.array(offsets), inner)


def _ids(session: Session, step: plan.Compute, values: BindingValues) -> list[pa.Array]:
    """The sort keys of solutions that are equal by all keys of the query."""
    frame = values.frame
    found: list[pa.Array] = []
    for tie in step.ties:
        slots = frame.bound[tie.name]
        if tie.kind == "value":
            assert tie.value_type is not None
            found.append(values.column(ex.BoundValue(tie.name, tie.value_type)))
        elif tie.kind == "edge":
            found.append(
                session.edge_values(tie.name, "id", pa.string(), slots)
                if len(slots)
                else pa.array([], pa.string())
            )
        elif tie.type_name in session.tables.interfaces:
            nodes = session.tables.nodes(tie.type_name)
            found += [nodes.values(each, pa.string(), slots) for each in (ex.NODE_ID, ex.NODE_TYPE)]
        else:
            found.append(session.tables.space(tie.type_name).strings(slots))
    return found
