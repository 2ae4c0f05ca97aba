"""Finds the nodes of a type that satisfy the conditions of a scan.

Conditions that storage can check are pushed down, and equalities on cached columns use a value
index. Both return candidates: every condition is checked again on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial, reduce
from operator import and_, or_

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.base import Execution
from omnigraph.engines.local.bindings import BindingTable, BindingValues
from omnigraph.engines.local.ids import ABSENT, Slots
from omnigraph.engines.local.nodes import CachedNodes, FetchedNodes, NodeTable
from omnigraph.engines.local.prepared import Anchor, PreparedStep
from omnigraph.engines.local.rows import Positions, RowView
from omnigraph.engines.local.sorting import sorted_distinct, spread_values, stable_order
from omnigraph.engines.local.tables import Session
from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.hashing import StringHash
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.types import Scalar
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.evaluate import ColumnExpression, scalar_operand
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.search import matching_rows, nearest_rows
from omnigraph.syntax.query_ast import ComparisonOperator
from omnigraph.views import ViewedReader

# --- scans ----------------------------------------------------------------------------------------


_WHOLE_SHARE = 2
"""From this share of a table on, a condition is evaluated for the whole table."""


def scanned(session: Session, one: PreparedStep) -> tuple[Slots, str]:
    """The nodes that a scan binds, and how they were found."""
    if one.patterns:
        return _among(session, one), "nodes of any"
    if one.parts:
        found = [scanned(session, part) for part in one.parts]
        return np.concatenate([slots for slots, _ in found]), found[0][1]
    step, anchors, predicates = one.step, one.anchors, one.residual
    assert isinstance(step, plan.Scan)
    if step.type_name in session.tables.interfaces:
        return np.zeros(0, np.int32), "no types"
    pinned = step.entity_id is not None
    found_by = None if pinned or anchors else _storage_search(session, step)
    whole = not pinned and not anchors and found_by is None
    nodes = session.tables.nodes(step.type_name, whole=whole)
    if pinned:
        slots, strategy = _by_id(session, nodes, step.entity_id), "id lookup"
    elif isinstance(nodes, CachedNodes):
        rows = _by_value(session, nodes, anchors)
        if rows is None:
            return _whole(session, step, nodes), "column scan" if step.predicates else "all nodes"
        slots, strategy = nodes.slots[rows], "value index"
    else:
        assert isinstance(nodes, FetchedNodes)
        slots, strategy = _fetched(session, step, nodes, found_by)
    if not predicates or not len(slots) or (strategy == "value index" and _is_exact(one)):
        return slots, strategy
    mask = BindingValues(session, BindingTable(len(slots), {step.variable: slots})).mask(predicates)
    return (slots if mask is None else slots[mask]), strategy


def _is_exact(one: PreparedStep) -> bool:
    """Whether the value index answers the only condition exactly: codes of texts may collide."""
    alone = len(one.residual) == len(one.anchors) == 1
    return alone and not pa.types.is_string(one.anchors[0].type)


def _among(session: Session, one: PreparedStep) -> Slots:
    """The nodes found by the patterns that a scan starts from, which satisfy its conditions."""
    # Imported late: patterns begin with scans.
    from omnigraph.engines.local.match import PatternMatcher

    assert isinstance(one.step, plan.Scan)
    name = one.step.variable
    matcher = PatternMatcher(session)
    found = [
        matcher.run(pattern, BindingTable.unit(), frozenset([name])).bound[name]
        for pattern in one.patterns
    ]
    slots = sorted_distinct(np.concatenate(found))
    frame = BindingTable(len(slots), {name: slots})
    mask = BindingValues(session, frame).mask(one.step.predicates)
    return slots if mask is None else slots[mask]


def masked_nodes(
    session: Session, step: plan.Expand, nodes: NodeTable, found: Slots
) -> npt.NDArray[np.bool_] | None:
    """Which of the nodes a hop found satisfy its conditions; None if all do."""
    if not step.predicates:
        return None
    if isinstance(nodes, CachedNodes) and len(found) * _WHOLE_SHARE > nodes.view.count:
        # Other rows of the table may have values that cannot be computed: then test the found nodes
        # alone.
        with suppress(InputError):
            whole = _WholeTable(session, nodes, step.target).mask(step.predicates)
            return None if whole is None else whole[nodes.rows(found)]
    return BindingValues(session, BindingTable(len(found), {step.target: found})).mask(
        step.predicates
    )


def _by_id(session: Session, nodes: NodeTable, entity_id: ex.Expression | None) -> Slots:
    assert entity_id is not None
    wanted = _text(entity_id, session.run)
    if wanted is None:
        return np.zeros(0, np.int32)
    slot = nodes.space.find_one(wanted)
    if slot == ABSENT:
        # Unknown ids do not get slots: their number is unbounded.
        return (
            nodes.find(pa.array([wanted]))
            if isinstance(nodes, FetchedNodes)
            else np.zeros(0, np.int32)
        )
    slots = np.array([slot], np.int32)
    present = nodes.present(slots)
    return slots if present is None else slots[present]


def with_ids(session: Session, type_name: str, ids: pa.Array) -> Slots:
    """The nodes with some ids, `ABSENT` for missing ones; ids may be null or repeated."""
    nodes = session.tables.nodes(type_name)
    slots = nodes.space.find(ids.fill_null(""))
    if isinstance(nodes, FetchedNodes):
        unknown = ids.filter(pa.array(slots == ABSENT)).drop_null()
        if len(unknown):
            nodes.find(pc.unique(unknown))
            slots = nodes.space.find(ids.fill_null(""))
    missing = ids.is_null().to_numpy(zero_copy_only=False) if ids.null_count else None
    present = nodes.present(slots)
    for absent in (missing, None if present is None else ~present):
        if absent is not None:
            slots = np.where(absent, np.int32(ABSENT), slots)
    return slots


def _text(expression: ex.Expression, run: Execution) -> str | None:
    """The value of a text that reads no column; skips Arrow for constants and parameters.

    A point query evaluates its key this way.
    """
    match expression:
        case ex.Constant(value=str() as text):
            return text
        case ex.ParameterValue():
            given = run.parameters[expression.name]
            if given is None or isinstance(given, str):
                return given
    text = scalar_operand(expression, run.parameters, run.now).as_py()
    assert text is None or isinstance(text, str)
    return text


def _by_value(
    session: Session, nodes: CachedNodes, anchors: tuple[Anchor, ...]
) -> Positions | None:
    """The candidate rows of the best value index; None if there is none."""
    best: Positions | None = None
    for anchor in anchors:
        value = scalar_operand(anchor.value, session.run.parameters, session.run.now)
        type = value.type.value_type if anchor.several else value.type
        if type != anchor.type:
            continue  # such as a float against an integer column: codes differ
        index = value_index(nodes.view, anchor.property, anchor.type)
        if index is None:
            continue
        if not value.is_valid:
            rows = index.rows[:0]
        elif anchor.several:
            rows = index.rows_with_any(value.values)
        else:
            rows = index.rows_with(value)
        if best is None or len(rows) < len(best):
            best = rows
    return None if best is None else nodes.view.existing(best)


def _whole(session: Session, step: plan.Scan, nodes: CachedNodes) -> Slots:
    """The nodes that satisfy the conditions, by testing whole columns."""
    try:
        mask = _WholeTable(session, nodes, step.variable).mask(step.predicates)
    except InputError:
        # If a value cannot be computed, its row may be a deleted one: test live rows only.
        slots = nodes.every()
        mask = BindingValues(session, BindingTable(len(slots), {step.variable: slots})).mask(
            step.predicates
        )
        return slots if mask is None else slots[mask]
    if mask is None:
        return nodes.every()
    live = nodes.view.live
    # Four times as fast as indexing by the mask.
    return nodes.slots.take(np.flatnonzero(mask if live is None else mask & live))


_Found = Callable[[list[str]], pa.Table | None]
"""Reads the rows that a storage search finds, with some columns."""


def _storage_search(session: Session, step: plan.Scan) -> _Found | None:
    """The search that storage can run for an uncached table; None if there is none."""
    if session.tables.has_in_memory(step.type_name):
        return None
    prepared = session.prepared
    reader = session.tables.reader
    if not reader.columns(TableKey.node(step.type_name)).is_same:
        return None
    handle = reader.handle(TableKey.node(step.type_name))
    for predicate in step.predicates:
        call = prepared.calls.get(predicate.name) if isinstance(predicate, ex.OutputValue) else None
        if isinstance(call, ex.TextMatch) and session.search.in_storage(call):
            text = session.search.text(call.query) or ""
            return _visible(reader, step, partial(matching_rows, handle, call.property, text))
    ranked = prepared.compiled.rank
    score = None if ranked is None else ranked.score
    alone = len(prepared.pattern.steps) == 1 and not step.predicates
    kept = not (prepared.having or prepared.compiled.distinct)
    stop = session.last_row()
    if isinstance(score, ex.Nearest) and alone and kept and stop:
        return partial(_nearest, session, step, score, stop)
    return None


def _visible(reader: SnapshotReader, step: plan.Scan, find: _Found) -> _Found:
    """The search without rows hidden from the actor."""
    key = TableKey.node(step.type_name)
    if not isinstance(reader, ViewedReader) or not reader.restricts(key):
        return find

    def found(columns: list[str]) -> pa.Table | None:
        rows = find(reader.with_columns_read(key, columns))
        return None if rows is None else reader.kept(key, rows)

    return found


def _nearest(
    session: Session, step: plan.Scan, score: ex.Nearest, stop: int, columns: list[str]
) -> pa.Table | None:
    """The nearest rows from the vector index, with some columns; None if it may miss some."""
    query = session.search.query_vector(score).tolist()
    reader = session.tables.reader
    handle = reader.handle(TableKey.node(step.type_name))
    search = partial(nearest_rows, handle, score.property, query, stop)
    found = _visible(reader, step, search)(columns)
    return found if found is not None and found.num_rows >= stop else None


def _fetched(
    session: Session, step: plan.Scan, nodes: FetchedNodes, found_by: _Found | None
) -> tuple[Slots, str]:
    """The nodes read from storage: a superset of those that satisfy the conditions."""
    found = None if found_by is None else found_by(nodes.columns)
    if found is not None:
        return nodes.add(found.select(nodes.columns), adds_cost=True), "storage search"
    wanted = storage_filter(step.predicates, session.run)
    reader = session.tables.reader
    rows = reader.rows_where(TableKey.node(step.type_name), wanted, nodes.columns)
    return nodes.add(rows, adds_cost=True), "storage scan"


class _WholeTable(BindingValues):
    """Whole columns of a type, deleted rows included."""

    def __init__(self, session: Session, nodes: CachedNodes, variable: str) -> None:
        super().__init__(session, BindingTable(nodes.view.layout.size, {variable: nodes.slots}))
        self._nodes = nodes

    def _read(self, leaf: ColumnExpression) -> pa.Array:
        if isinstance(leaf, ex.PropertyValue) and leaf.property not in ("id", ex.NODE_TYPE):
            return self._nodes.view.column(leaf.property, arrow_type(leaf.type))
        return super()._read(leaf)


# --- filters for storage --------------------------------------------------------------------------


_FLIPPED: dict[ComparisonOperator, ComparisonOperator] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "=": "=",
}
_TESTS = {
    "=": lambda column, value: column == value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}
_PUSHED = {Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.DATE, Scalar.DATETIME}
"""Types whose comparisons mean the same in storage, which cannot filter unsigned numbers."""


def storage_filter(predicates: Iterable[ex.Expression], run: Execution) -> pc.Expression | None:
    """A filter that all wanted rows pass; None if no predicate can be pushed down."""
    parts = [part for predicate in predicates if (part := _filter(predicate, run)) is not None]
    return reduce(and_, parts) if parts else None


def _filter(predicate: ex.Expression, run: Execution) -> pc.Expression | None:
    match predicate:
        case ex.Compare():
            return _comparison(predicate, run)
        case ex.ListContains(list=members, item=ex.PropertyValue() as column):
            values = _value(members, run)
            if values is None or not _can_push(column) or not values.is_valid:
                return None
            kept = values.values.drop_null()
            return pc.field(column.property).isin(kept) if len(kept) else None
        case ex.Combine(operator="and"):
            return storage_filter(predicate.operands, run)
        case ex.Combine(operator="or"):
            parts = [_filter(operand, run) for operand in predicate.operands]
            known = [part for part in parts if part is not None]
            return reduce(or_, known) if len(known) == len(parts) else None
    return None


def _comparison(predicate: ex.Compare, run: Execution) -> pc.Expression | None:
    operator, left, right = predicate.operator, predicate.left, predicate.right
    if operator not in _TESTS:
        return None
    if isinstance(right, ex.PropertyValue):
        operator, left, right = _FLIPPED[operator], right, left
    if not isinstance(left, ex.PropertyValue) or not _can_push(left):
        return None
    value = _value(right, run)
    if value is None or not value.is_valid or value.type != arrow_type(left.type):
        return None
    return _TESTS[operator](pc.field(left.property), value)


def _can_push(column: ex.PropertyValue) -> bool:
    return column.type.is_plain_scalar and column.type.scalar in _PUSHED


def _value(expression: ex.Expression, run: Execution) -> pa.Scalar | None:
    """The value of an expression that is the same for all rows."""
    if ex.variables_of(expression):
        return None
    return scalar_operand(expression, run.parameters, run.now)


# --- index of values ------------------------------------------------------------------------------


ROWS_WORTH_AN_INDEX = 2_000
"""In smaller tables, comparing the whole column is as fast."""

_HASH = StringHash()


@dataclass(frozen=True, slots=True)
class ValueIndex:
    """Rows sorted by the 64-bit code of their value; values may share a code."""

    codes: npt.NDArray[np.uint64]
    rows: Positions

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return int(self.codes.nbytes + self.rows.nbytes)

    @classmethod
    def build(cls, column: pa.Array) -> ValueIndex:
        """The index of a column, without nulls, which equal nothing."""
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        values = column.drop_null() if column.null_count else column
        codes = _codes(values)
        order = stable_order(codes)
        return cls(codes[order], present[order].astype(np.int32))

    def rows_with(self, value: pa.Scalar) -> Positions:
        """The rows that may hold a value, ascending."""
        if not value.is_valid:
            return self.rows[:0]
        code = _code(value)
        begin = self.codes.searchsorted(code)
        return self.rows[begin : begin + self.codes[begin:].searchsorted(code, "right")]

    def rows_with_any(self, values: pa.Array) -> Positions:
        """The rows that may hold one of some values, ascending."""
        wanted = _codes(values.drop_null())
        begin = np.searchsorted(self.codes, wanted)
        counts = np.searchsorted(self.codes, wanted, "right") - begin
        return sorted_distinct(spread_values(self.rows, begin, counts))


def can_index(type: pa.DataType) -> bool:
    """Whether equal values of this type have equal codes."""
    tests = (
        pa.types.is_string,
        pa.types.is_integer,
        pa.types.is_date32,
        pa.types.is_timestamp,
    )
    return any(test(type) for test in tests)


def value_index(view: RowView, name: str, type: pa.DataType) -> ValueIndex | None:
    """The index of a column; None for small tables, and for the first query that could use it."""
    if view.layout.size < ROWS_WORTH_AN_INDEX or not can_index(type):
        return None
    key = ("values", name)
    if key not in view.layout.made and not view.layout.asked_before(key):
        return None
    return view.keep_with_files(key, lambda: ValueIndex.build(view.column(name, type)))


def _codes(values: pa.Array) -> npt.NDArray[np.uint64]:
    if pa.types.is_string(values.type):
        return _HASH.many(values)
    return _integers(values).astype(np.int64).view(np.uint64)


def _code(value: pa.Scalar) -> np.uint64:
    if pa.types.is_string(value.type):
        return np.uint64(_HASH.one(value.as_py()))
    return np.uint64(_codes(pa.array([value]))[0])


def _integers(values: pa.Array) -> npt.NDArray[np.integer]:
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    numbers: npt.NDArray[np.integer] = values.to_numpy(zero_copy_only=False)
    return numbers
