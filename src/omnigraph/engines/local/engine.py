"""The embedded engine: runs a plan in this process.

Matching gives solutions; this module turns them into the result: rank, group, `having`, `distinct`,
order, limit, project.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.base import Execution, StepReport
from omnigraph.engines.local.bindings import (
    UNCOUNTED_ROWS,
    BindingTable,
    BindingValues,
    Bound,
    is_counted,
)
from omnigraph.engines.local.grouping import Coded, codes_of, first_of_groups, item_codes
from omnigraph.engines.local.ids import ABSENT
from omnigraph.engines.local.last_hop import groups_of
from omnigraph.engines.local.match import match
from omnigraph.engines.local.memory import MemoryBudget
from omnigraph.engines.local.order import TableSizes
from omnigraph.engines.local.prepare import prepare
from omnigraph.engines.local.prepared import PreparedRead
from omnigraph.engines.local.ranking import (
    Key,
    LateKey,
    RankedRows,
    Rows,
    TieBreaker,
    ordered_rows,
    rank,
)
from omnigraph.engines.local.rows import taken
from omnigraph.engines.local.sorting import sorted_numbers
from omnigraph.engines.local.tables import GraphMemory, Session, TraversalSettings, tables_of
from omnigraph.model.arrow import arrow_type
from omnigraph.model.governor import CACHE_BYTES_VARIABLE, bytes_from_environment
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.result_json import ResultColumns
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.compile import PLANS_BYTES_MAX, ByteCache
from omnigraph.query.evaluate import ColumnExpression
from omnigraph.query.plan import ReadPlan


class LocalEngine:
    """Runs plans over Arrow columns and adjacency kept in memory. Safe to share between threads."""

    name = "local"

    def __init__(
        self, settings: TraversalSettings | None = None, memory_limit: int | None = None
    ) -> None:
        self.settings = settings or TraversalSettings.from_environment()
        if memory_limit is None:
            memory_limit = bytes_from_environment(CACHE_BYTES_VARIABLE)
        self.memory = GraphMemory(MemoryBudget(memory_limit))
        self._prepared: ByteCache[int, PreparedRead] = ByteCache(PLANS_BYTES_MAX)
        self._ordered: ByteCache[tuple[int, tuple[int, ...]], tuple[ReadPlan, PreparedRead]] = (
            ByteCache(PLANS_BYTES_MAX)
        )

    def execute(self, run: Execution) -> ResultColumns:
        """The rows of a plan over its snapshot."""
        if run.plan.is_bounded_by_parameters:
            run = run.bounded()
            prepared = _in_order(prepare(run.plan), run)  # not cached: the bounds are of this run
        else:
            prepared = self._prepare(run)
        self.memory.budget.queries += 1
        tables = tables_of(run.reader)(
            self.memory,
            run.reader,
            self.settings,
            prepared.node_columns,
            prepared.edge_columns,
            prepared.interfaces,
            prepared.references,
        )
        return answer(Session(run, prepared, tables))

    def _prepare(self, run: Execution) -> PreparedRead:
        """The prepared form of a plan, cached by the identity of the plan object."""
        compiled = run.plan
        known = self._prepared.get(id(compiled))
        if known is None:
            # The cached entry holds the plan, so that the plan's `id` is not reused.
            known = prepare(compiled)
            self._prepared.put(id(compiled), known, compiled.memory_bytes)
        if not known.is_open:
            return known
        # The order is chosen again when a table has twice as many rows as when it was chosen.
        table = run.reader.snapshot.table
        sizes = (table(TableKey.edge(name)).row_count for name in known.edge_types)
        key = (id(compiled), tuple(size.bit_length() for size in sizes))
        chosen = self._ordered.get(key)
        if chosen is None:
            # Stored with the plan, so that no other plan has its `id` meanwhile.
            chosen = (compiled, _in_order(known, run))
            self._ordered.put(key, chosen, compiled.memory_bytes)
        return chosen[1]


def _in_order(prepared: PreparedRead, run: Execution) -> PreparedRead:
    """A plan whose steps are in the cheapest order for the sizes of the tables."""
    if not prepared.is_open:
        return prepared
    table = run.reader.snapshot.table
    members = prepared.interfaces

    def nodes(type_name: str) -> int:
        names = [name for name, _ in members[type_name]] if type_name in members else [type_name]
        return sum(table(TableKey.node(name)).row_count for name in names)

    sizes = TableSizes(nodes, lambda name: table(TableKey.edge(name)).row_count)
    return prepare(prepared.compiled, sizes)


# --- answer ---------------------------------------------------------------------------------------


def answer(session: Session) -> ResultColumns:
    """The rows that a query returns, or that a stage hands to the next one."""
    if session.prepared.searches:
        session.search.check(session.prepared.searches)
    before = session.prepared.stage
    if before is not None:
        step, prepared = before
        run = replace(session.run, plan=step.read)
        session.staged = answer(Session(run, prepared, session.tables))
    by = session.prepared.group_by
    solutions = match(session) if by is None else groups_of(session, by)
    trace = session.run.trace
    began = time.perf_counter()
    governor = session.governor
    if isinstance(solutions, BindingTable):
        if solutions.count > UNCOUNTED_ROWS:
            held = solutions.nbytes
            governor.hold(held)
            rows = _row_answer(session, solutions)
            governor.release(held)
        else:
            rows = _row_answer(session, solutions)
    else:
        rows = _grouped_answer(session, *solutions)
    if rows.row_count > 1 and is_counted(rows.row_count, len(rows.arrays)):
        governor.hold(sum(column.nbytes for column in rows.arrays))
    if trace is not None:
        seconds = time.perf_counter() - began
        trace.steps.append(
            StepReport("ResultColumns", _tail_strategy(session), rows.row_count, seconds)
        )
    return rows


def _tail_strategy(session: Session) -> str:
    """The operations after matching, in order, for `--explain`."""
    compiled = session.prepared.compiled
    done = []
    if compiled.rank is not None:
        kinds = {ex.Nearest: "exact distances", ex.Bm25: "word statistics", ex.Rrf: "fused ranks"}
        done.append(f"rank by {kinds[type(compiled.rank.score)]}")
    done += ["group"] if compiled.group_by is not None else []
    done += ["distinct"] if compiled.distinct else []
    done += ["order"] if compiled.order else []
    return ", ".join([*done, "project"])


@dataclass(frozen=True, slots=True)
class _RowRange:
    """The range of ordered rows that `offset` and `limit` select."""

    start: int
    stop: int | None

    @classmethod
    def of(cls, session: Session) -> _RowRange:
        run = session.run
        if run.plan.limit is None and run.plan.offset is None:
            return _ALL_ROWS
        return cls(*run.row_range())

    def takes_part_of(self, count: int) -> bool:
        """Whether the range leaves out some of ``count`` rows."""
        return self.start > 0 or (self.stop is not None and self.stop < count)


_ALL_ROWS = _RowRange(0, None)


# --- rows -----------------------------------------------------------------------------------------


class _RowColumns(BindingValues):
    """Values of rows and of output columns, which `having` and `distinct` read by name."""

    def __init__(
        self, session: Session, frame: BindingTable, scores: dict[str, pa.Array] | None = None
    ) -> None:
        super().__init__(session, frame, scores)
        self._columns = {column.name: column for column in session.prepared.columns}

    def output(self, column: plan.Column) -> pa.Array:
        """One column of the result."""
        match column.expression:
            case ex.EntityObject():
                return entity_objects(self, column.expression)
            case ex.RecordList():
                return self._records(column.expression)
        return self.column(column.expression)

    def _records(self, records: ex.RecordList) -> pa.Array:
        fields = [pa.field(name, arrow_type(type)) for name, type in records.columns]
        if not self.frame.count:
            return pa.array([], pa.list_(pa.struct(fields)))
        return self.block(records.variable)

    def by_name(self, name: str) -> pa.Array:
        """An output column as a sort key: an entity is sorted by its id."""
        expression = self._columns[name].expression
        assert not isinstance(expression, ex.RecordList)
        if not isinstance(expression, ex.EntityObject):
            return self.column(expression)
        if expression.kind == "node":
            return self(ex.EntityId(expression.variable))
        return self.session.edge_values(
            expression.variable, "id", pa.string(), self.frame.bound[expression.variable]
        )

    def codes(self, column: plan.Column) -> pa.Array | Coded:
        """Codes of an output column, or its values if it has no cached codes."""
        if isinstance(column.expression, ex.CarriedNode):
            return item_codes(self, column.expression, self.frame.count)
        return self.by_name(column.name)

    def _searched(self, name: str) -> pa.Array:
        return self.by_name(name) if name in self._columns else super()._searched(name)


def _row_answer(session: Session, frame: BindingTable) -> ResultColumns:
    prepared = session.prepared
    compiled = prepared.compiled
    cut = _RowRange.of(session)
    scores: dict[str, pa.Array] = {}
    ranks: npt.NDArray[np.int64] | None = None
    if compiled.rank is not None:
        # Every ranked candidate has a row, so `stop` candidates suffice unless rows are dropped
        # after ranking.
        drops = compiled.distinct or prepared.having or prepared.per is not None
        stop = None if drops else cut.stop
        ranked = rank(session, frame, compiled.rank.score, compiled.rank.best_first, stop)
        frame, ranks = ranked.frame, ranked.ranks
        scores = _score_columns(session, ranked)
    values = _RowColumns(session, frame, scores)
    if prepared.having:
        mask = values.mask(prepared.having)
        if mask is not None:
            frame, scores, ranks = _filtered(frame, scores, ranks, np.flatnonzero(mask))
            values = _RowColumns(session, frame, scores)
    if compiled.distinct:
        # Duplicates are removed before ordering; of ranked rows the best one stays.
        if ranks is not None:
            arrival = np.argsort(ranks, kind="stable")
            frame, scores, ranks = _filtered(frame, scores, ranks, arrival)
            values = _RowColumns(session, frame, scores)
        if frame.count:
            coded = codes_of([values.codes(column) for column in prepared.columns])
            first = sorted_numbers(coded.grouped().first)
            frame, scores, ranks = _filtered(frame, scores, ranks, first)
            values = _RowColumns(session, frame, scores)
    keys: list[Key | LateKey] = [] if ranks is None else [(pa.array(ranks), False)]
    for key in prepared.order:
        is_late = bool(keys) and isinstance(key.expression, ex.PropertyValue | ex.EntityId)
        read = partial(_late_key, values, key.expression) if is_late else None
        keys.append((read or values.column(key.expression), key.descending))
    if keys or cut.takes_part_of(frame.count):
        rows = _ordered(session, values, keys, _ties(session, values), cut)
        chosen, scores, _ = _filtered(frame, scores, None, rows)
        ordered, values = values, _RowColumns(session, chosen, scores)
        values.keep_blocks(ordered, rows)
    return _columns(compiled, [values.output(column) for column in prepared.columns])


def _ordered(
    session: Session,
    values: BindingValues,
    keys: Sequence[Key | LateKey],
    ties: list[TieBreaker],
    cut: _RowRange,
) -> Rows:
    """The rows of the result in order: `limit per` first, then the limit of the query."""
    count = values.frame.count
    per = session.prepared.per
    most = None if per is None else session.run.row_count(per.count)
    if per is None or most is None:
        return ordered_rows(keys, ties, count, cut.stop)[cut.start :]
    rows = ordered_rows(keys, ties, count, None)
    if count:
        some = [
            Coded(each.codes[rows], each.count) if isinstance(each, Coded) else taken(each, rows)
            for each in (item_codes(values, key, count) for key in per.keys)
        ]
        rows = rows[first_of_groups(some, most)]
    return rows[cut.start : cut.stop]


def _late_key(values: BindingValues, expression: ex.Expression, rows: Rows) -> pa.Array:
    """The values of a sort key for the rows that the keys before it have left equal."""
    return values.taken(rows).column(expression)


def _score_columns(session: Session, ranked: RankedRows) -> dict[str, pa.Array]:
    """The scores of the ranking call, by the names under which expressions read them."""
    assert session.prepared.compiled.rank is not None
    score = session.prepared.compiled.rank.score
    return {name: ranked.scores for name, call in session.prepared.calls.items() if call == score}


def _filtered(
    frame: BindingTable,
    scores: dict[str, pa.Array],
    ranks: npt.NDArray[np.int64] | None,
    rows: Rows,
) -> tuple[BindingTable, dict[str, pa.Array], npt.NDArray[np.int64] | None]:
    return (
        frame.take(rows),
        {name: taken(column, rows) for name, column in scores.items()},
        None if ranks is None else ranks[rows],
    )


def _ties(session: Session, values: _RowColumns) -> list[TieBreaker]:
    """The tie breakers: ids of the bound entities by variable name, or columns of distinct rows."""
    ties: list[TieBreaker] = []
    if session.prepared.compiled.distinct:
        carried = session.prepared.carried
        whole = {
            column.name: column.expression
            for column in session.prepared.columns
            if isinstance(column.expression, ex.EntityObject)
        }
        for tie in session.prepared.compiled.tie_breakers:
            entity = whole.get(tie.name)
            if tie.name in carried:
                ties += _carried_ties(session, values.by_name(tie.name), carried[tie.name])
            elif entity is None or entity.type_name not in session.tables.interfaces:
                ties.append(_named_column(values, tie.name))
            else:
                ties += _node_ties(session, values.frame, entity.variable, entity.type_name)
        return ties
    for bound in session.prepared.ties:
        if bound.kind == "value":
            assert bound.value_type is not None
            ties.append(_bound_value(values, ex.BoundValue(bound.name, bound.value_type)))
        elif bound.type_name in session.tables.interfaces and bound.kind == "node":
            ties += _node_ties(session, values.frame, bound.name, bound.type_name)
        else:
            ties.append(_entity_ids(session, values.frame, bound))
    return ties


def _named_column(values: _RowColumns, name: str) -> TieBreaker:
    return lambda rows: values.by_name(name).take(pa.array(rows))


def _bound_value(values: _RowColumns, value: ex.BoundValue) -> TieBreaker:
    return lambda rows: taken(values.column(value), rows)


def _node_ties(
    session: Session, frame: BindingTable, variable: str, interface: str
) -> list[TieBreaker]:
    """The ids of the nodes of an interface, then the names of their types."""
    return _slot_ties(session, frame.bound[variable], interface)


def _slot_ties(session: Session, slots: Bound, interface: str) -> list[TieBreaker]:
    nodes = session.tables.nodes(interface)

    def values_of(property: str) -> TieBreaker:
        return lambda rows: nodes.values(property, pa.string(), slots[rows])

    return [values_of(ex.NODE_ID), values_of(ex.NODE_TYPE)]


def _carried_ties(session: Session, column: pa.Array, node: ex.CarriedNode) -> list[TieBreaker]:
    """The tie breakers of a node that a stage hands on, in grouped or distinct rows."""
    slots = column.fill_null(ABSENT).to_numpy()
    if node.type_name in session.tables.interfaces:
        return _slot_ties(session, slots, node.type_name)
    space = session.tables.space(node.type_name)
    return [lambda rows: space.strings(slots[rows])]


def _entity_ids(session: Session, frame: BindingTable, entity: plan.BoundVariable) -> TieBreaker:
    def ids(rows: Rows) -> pa.Array:
        bound = frame.bound[entity.name][rows]
        if entity.kind == "path":
            return pc.binary_join(session.paths.nodes(bound), "\0")
        if entity.kind == "node":
            return session.tables.space(entity.type_name).strings(bound)
        if not len(bound):
            return pa.array([], pa.string())
        return session.edge_values(entity.name, "id", pa.string(), bound)

    return ids


# --- groups ---------------------------------------------------------------------------------------


class _GroupColumns(BindingValues):
    """Columns of grouped rows and output columns, which expressions read by name."""

    def __init__(
        self,
        session: Session,
        count: int,
        named: dict[str, pa.Array],
        outputs: dict[str, pa.Array] | None = None,
    ) -> None:
        super().__init__(session, BindingTable(count, {}))
        self._named = named
        self.outputs = outputs or {}

    def kept(self, rows: Rows) -> _GroupColumns:
        return _GroupColumns(
            self.session,
            len(rows),
            {name: taken(column, rows) for name, column in self._named.items()},
            {name: taken(column, rows) for name, column in self.outputs.items()},
        )

    def _read(self, leaf: ColumnExpression) -> pa.Array:
        assert isinstance(leaf, ex.OutputValue)
        known = self.outputs.get(leaf.name)
        return self._named[leaf.name] if known is None else known


def _grouped_answer(session: Session, named: dict[str, pa.Array], count: int) -> ResultColumns:
    prepared = session.prepared
    groups = _GroupColumns(session, count, named)
    outputs = {
        column.name: groups.column(column.expression)
        for column in prepared.columns
        if not isinstance(column.expression, ex.Whole)
    }
    groups = _GroupColumns(session, count, named, outputs)
    if prepared.having:
        mask = groups.mask(prepared.having)
        if mask is not None:
            groups = groups.kept(np.flatnonzero(mask))
    if prepared.compiled.distinct and groups.frame.count:
        coded = codes_of([groups.outputs[column.name] for column in prepared.columns])
        groups = groups.kept(sorted_numbers(coded.grouped().first))
    cut = _RowRange.of(session)
    keys: list[Key] = [(groups.column(key.expression), key.descending) for key in prepared.order]
    ties: list[TieBreaker] = []
    carried = prepared.carried
    for tie in prepared.compiled.tie_breakers:
        if tie.name in carried:
            ties += _carried_ties(session, groups.column(tie), carried[tie.name])
        else:
            ties.append(_group_column(groups, tie))
    chosen = groups.kept(_ordered(session, groups, keys, ties, cut))
    return _columns(prepared.compiled, [chosen.outputs[column.name] for column in prepared.columns])


def _group_column(columns: _GroupColumns, tie: ex.OutputValue) -> TieBreaker:
    return lambda rows: columns.column(tie).take(pa.array(rows))


# --- output ---------------------------------------------------------------------------------------


def entity_objects(values: BindingValues, entity: ex.EntityObject) -> pa.Array:
    """`$x.*` for every row; null where the variable is unbound."""
    leaves = [
        ex.PropertyValue(entity.variable, entity.kind, entity.type_name, name, type)
        for name, type in entity.columns
    ]
    fields = [pa.field(name, arrow_type(type)) for name, type in entity.columns]
    bound = values.frame.bound.get(entity.variable)
    missing = None
    if bound is not None and len(bound) and int(bound.min()) < 0:
        missing = pa.array(bound < 0)
    return pa.StructArray.from_arrays(
        [values(leaf) for leaf in leaves], fields=fields, mask=missing
    )


def _columns(compiled: plan.ReadPlan, arrays: list[pa.Array]) -> ResultColumns:
    return ResultColumns([column.name for column in compiled.columns], arrays, len(arrays[0]))
