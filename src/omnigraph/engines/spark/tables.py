"""The tables of a snapshot as frames: workers scan fragments and return only what a query needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.types import StructField, StructType

from omnigraph.engines.base import Execution
from omnigraph.engines.local.prepared import PreparedRead, PreparedStep, SearchCall
from omnigraph.engines.local.search import SearchArguments, Sought
from omnigraph.engines.local.text_index import WordStatistics
from omnigraph.engines.spark.bindings import Key, Names, NodeIds
from omnigraph.engines.spark.jobs import Jobs
from omnigraph.engines.spark.types import spark_type
from omnigraph.engines.spark.workers import (
    FAR,
    NEAR,
    NEVER_NULL,
    Bm25Column,
    Constants,
    DistanceColumn,
    HighlightColumn,
    SearchColumn,
    StoredTable,
    TableScan,
    TextMatchColumn,
    WordCount,
)
from omnigraph.errors import InternalError
from omnigraph.model.arrow import DST, ID, SRC, arrow_type
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.references import ShownEnds
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.evaluate import scalar_operand
from omnigraph.storage.written import fragment_groups
from omnigraph.views import ViewedReader
from omnigraph.views.rows import hiding_ends

PART_ROWS_MAX = 500_000
"""Rows that a task reads, as far as the sizes of fragments allow."""
PART_ROWS_MIN = 50_000

BROADCAST_BYTES = 10 << 20
"""A smaller table is broadcast to every executor instead of being shuffled."""

Columns = dict[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a query reads of each variable after the step that binds it."""

    columns: dict[str, Columns] = field(default_factory=dict)
    calls: dict[str, dict[str, SearchCall]] = field(default_factory=dict)

    @classmethod
    def of(cls, prepared: PreparedRead) -> Needs:
        """The needs of the steps and the tail of a plan."""
        needs = cls()
        for one in _all_steps(prepared.pattern.steps):
            match one.step:
                case plan.FilterRows():
                    needs._add(one.step.predicates, prepared)
                case plan.Expand():
                    needs._add(tested_after(one.step), prepared)
                    if isinstance(one.step.weight, plan.ComputedWeight):
                        needs._add([one.step.weight.value], prepared)
                case plan.Unnest():
                    needs._add([one.step.list], prepared)
                case plan.Compute():
                    needs._add([value for _, value in one.step.items], prepared)
                    needs._add([key.expression for key in one.step.order], prepared)
        by = prepared.group_by
        if by is not None:
            needs._add([item for _, item in by.items], prepared)
            arguments = [entry.value.argument for entry in by.aggregates]
            needs._add([each for each in arguments if each is not None], prepared)
        for column in prepared.columns:
            if isinstance(column.expression, ex.EntityObject):
                needs._add_object(column.expression)
            elif not isinstance(column.expression, ex.RecordList):
                needs._add([column.expression], prepared)
        needs._add(prepared.having, prepared)
        needs._add([key.expression for key in prepared.order], prepared)
        needs._add(() if prepared.per is None else prepared.per.keys, prepared)
        for name, call in rank_calls(prepared).items():
            needs.calls.setdefault(call.variable, {})[name] = call
        return needs

    def _add(self, expressions: object, prepared: PreparedRead) -> None:
        for expression in expressions:  # type: ignore[attr-defined]
            for part in ex.walk(expression):
                match part:
                    case ex.PropertyValue():
                        self._column(part.variable, part.property, arrow_type(part.type))
                    case ex.OutputValue() if part.name in prepared.calls:
                        call = prepared.calls[part.name]
                        if not isinstance(call, ex.Rrf):
                            self.calls.setdefault(call.variable, {})[part.name] = call

    def _add_object(self, entity: ex.EntityObject) -> None:
        for name, type in entity.columns:
            self._column(entity.variable, name, arrow_type(type))

    def _column(self, variable: str, name: str, type: pa.DataType) -> None:
        if name not in (ID, ex.NODE_TYPE, ex.NODE_ID):
            self.columns.setdefault(variable, {})[name] = type


def rank_calls(prepared: PreparedRead) -> dict[str, SearchCall]:
    """The calls that a rank orders by, by the names of their columns."""
    rank = prepared.compiled.rank
    if rank is None:
        return {}
    arms = (rank.score.first, rank.score.second) if isinstance(rank.score, ex.Rrf) else [rank.score]
    return {f"#rank{at}": arm for at, arm in enumerate(arms)}


def _all_steps(steps: tuple[PreparedStep, ...]) -> list[PreparedStep]:
    found = []
    for one in steps:
        found.append(one)
        for pattern in one.patterns:
            found += _all_steps(pattern.steps)
    return found


def tested_after(step: plan.Expand) -> list[ex.Expression]:
    """The conditions of a hop that are tested on the rows it has found.

    The others are tested where the target or the edge is read, which is for more rows than the hop
    finds. So a condition whose evaluation can fail is tested afterwards.
    """
    ends = {None if step.target_is_bound else step.target, step.edge_variable} - {None}
    return [
        predicate
        for predicate in step.predicates
        if ex.can_fail(predicate) or _variable_of(predicate) not in ends
    ]


def _variable_of(predicate: ex.Expression) -> str | None:
    """The one variable that a condition of a hop reads; for a search call, its target."""
    found = ex.variables_of(predicate)
    return next(iter(found)) if len(found) == 1 else None


# --- tables ---------------------------------------------------------------------------------------


class Tables:
    """The node and edge tables of one run, as frames with columns of their own names."""

    def __init__(
        self,
        run: Execution,
        prepared: PreparedRead,
        jobs: Jobs,
        storage_options: Mapping[str, str],
    ) -> None:
        self.run = run
        self.prepared = prepared
        self.needs = Needs.of(prepared)
        self.ids = NodeIds.of(prepared)
        self.names = Names()
        self.constants = Constants(dict(run.parameters), run.now)
        self.arguments = SearchArguments(run)
        self.staged: DataFrame | None = None
        """The rows of the previous stage, with a column per item by position."""
        self._jobs = jobs
        self._storage_options = storage_options or None
        self._stored: dict[str, StoredTable] = {}
        self._pairs: dict[tuple[str, plan.Direction], tuple[DataFrame, bool]] = {}
        self._tasks: dict[int, DataFrame] = {}
        self._statistics: dict[tuple[str, str, Sought], WordStatistics] = {}

    # --- nodes ------------------------------------------------------------------------------------

    def nodes(
        self,
        variable: str,
        type_name: str,
        conditions: tuple[tuple[ex.Expression, ...], ...] = (),
        entity_id: ex.Expression | None = None,
    ) -> tuple[DataFrame, dict[Key, str]]:
        """The nodes of a type that pass some conditions, with what the query reads of them."""
        shown: Columns = {ID: pa.string(), **self.needs.columns.get(variable, {})}
        calls = self.needs.calls.get(variable, {})
        outputs = {name: self.names.new() for name in (*shown, *calls)}
        frames = [
            self._nodes_of(
                each, shown, calls, outputs=outputs, conditions=conditions, entity_id=entity_id
            )
            for each in self.ids.types_of(type_name)
        ]
        if not frames:
            types = {**shown, **{name: arrow_type(call.type) for name, call in calls.items()}}
            fields = [StructField(outputs[name], spark_type(types[name])) for name in outputs]
            frames = [self._jobs.spark.createDataFrame([], StructType(fields))]
        frame = reduce(DataFrame.union, frames)
        return frame, {(variable, name): column for name, column in outputs.items()}

    def _nodes_of(
        self,
        type_name: str,
        shown: Columns,
        calls: Mapping[str, SearchCall],
        *,
        outputs: Mapping[str, str],
        conditions: tuple[tuple[ex.Expression, ...], ...],
        entity_id: ex.Expression | None,
    ) -> DataFrame:
        """The nodes of one node type, as `nodes` returns them."""
        read = self._read_by(conditions, shown)
        tested = {
            part.name: self.prepared.calls[part.name]
            for together in conditions
            for predicate in together
            for part in ex.walk(predicate)
            if isinstance(part, ex.OutputValue)
        }
        search = {name: self._search_column(call) for name, call in {**calls, **tested}.items()}
        for call in {**calls, **tested}.values():
            read[call.property] = _searched_type(call)  # type: ignore[union-attr]
        key = TableKey.node(type_name)
        scan = TableScan(
            self._table(key),
            read,
            tuple(outputs.items()),
            self.constants,
            search,
            tuple(together for together in conditions if together),
            node_type=type_name,
            prefixes={ID: self.ids.prefix(type_name)},
        )
        types = {**shown, **{name: arrow_type(call.type) for name, call in calls.items()}}
        if entity_id is not None:
            return self._looked_up(key, scan, types, entity_id)
        return self._hinted(key, self._scanned(scan, types), types)

    def _read_by(
        self, conditions: tuple[tuple[ex.Expression, ...], ...], shown: Columns
    ) -> Columns:
        read = dict(shown)
        for together in conditions:
            for predicate in together:
                for part in ex.walk(predicate):
                    if isinstance(part, ex.PropertyValue):
                        read[part.property] = arrow_type(part.type)
                    elif isinstance(part, ex.EntityId):
                        read[ID] = pa.string()
        return read

    def is_needed(self, variable: str) -> bool:
        """Whether a query reads more of a node than its id."""
        return bool(self.needs.columns.get(variable) or self.needs.calls.get(variable))

    # --- edges ------------------------------------------------------------------------------------

    def pairs(self, step: plan.Expand) -> tuple[DataFrame, str, str]:
        """The distinct pairs of nodes that an edge type links, and the names of their ends.

        All hops over a type share one scan and one shuffle, which Spark then runs once.
        """
        known = self._pairs.get((step.edge_type, step.direction))
        if known is None:
            known = self._pairs[step.edge_type, step.direction] = self._made_pairs(step)
        frame, is_small = known
        near, far = self.names.new(), self.names.new()
        source, target = frame.columns
        named = frame.select(F.col(source).alias(near), F.col(target).alias(far))
        return F.broadcast(named) if is_small else named, near, far

    def _made_pairs(self, step: plan.Expand) -> tuple[DataFrame, bool]:
        near, far = self.names.new(), self.names.new()
        key = TableKey.edge(step.edge_type)
        table = self._table(key)
        alone = len(table.parts) == 1
        scan = TableScan(
            table,
            {SRC: pa.string(), DST: pa.string()},
            ((NEAR, near), (FAR, far)),
            self.constants,
            orientation=step.direction,
            distinct=alone,
            prefixes=self._end_prefixes(step),
        )
        types = {NEAR: pa.string(), FAR: pa.string()}
        frame, _ = self._between_visible(step, self._scanned(scan, types), near, far)
        if not alone:
            # Partitioned by one end, pairs are distinct and ready to be joined in one shuffle.
            frame = frame.repartition(near).dropDuplicates([near, far])
        return frame, self._is_small(key, types)

    def edges(self, step: plan.Expand) -> tuple[DataFrame, str, str, dict[Key, str]]:
        """Every edge of a type, with what the query reads of it."""
        assert step.edge_variable is not None
        variable = step.edge_variable
        shown: Columns = {ID: pa.string(), **self.needs.columns.get(variable, {})}
        after = tested_after(step)
        conditions = tuple(
            predicate
            for predicate in step.predicates
            if predicate not in after and _variable_of(predicate) == variable
        )
        read = self._read_by((conditions,), {**shown, SRC: pa.string(), DST: pa.string()})
        near, far = self.names.new(), self.names.new()
        outputs = {name: self.names.new() for name in shown}
        key = TableKey.edge(step.edge_type)
        scan = TableScan(
            self._table(key),
            read,
            ((NEAR, near), (FAR, far), *outputs.items()),
            self.constants,
            conditions=(conditions,) if conditions else (),
            orientation=step.direction,
            has_edges=True,
            prefixes=self._end_prefixes(step),
            end_types=self._end_types(step),
        )
        types = {NEAR: pa.string(), FAR: pa.string(), **shown}
        scanned, is_whole = self._between_visible(step, self._scanned(scan, types), near, far)
        frame = self._hinted(key, scanned, types) if is_whole else scanned
        return frame, near, far, {(variable, name): at for name, at in outputs.items()}

    def path_edges(self, step: plan.Expand) -> tuple[DataFrame, str, str, str]:
        """The pairs of nodes that an edge type links, each with the smallest id of its edges."""
        frame, near, far, names = self._path_edges(step)
        (id,) = names.values()
        return frame.groupBy(near, far).agg(F.min(id).alias(id)), near, far, id

    def weighted_edges(self, step: plan.Expand) -> tuple[DataFrame, str, str, str, str]:
        """The edges that have a weight: near and far end, id and weight."""
        assert isinstance(step.weight, ex.PropertyValue)
        frame, near, far, names = self._path_edges(step)
        id, weight = (names[self._edges_of(step), name] for name in (ID, step.weight.property))
        frame = frame.withColumn(weight, F.col(weight).cast("double"))
        return frame.where(F.col(weight).isNotNull()), near, far, id, weight

    def _path_edges(self, step: plan.Expand) -> tuple[DataFrame, str, str, dict[Key, str]]:
        """The edges that paths consist of."""
        if isinstance(step.weight, ex.PropertyValue):
            needed = {step.weight.property: arrow_type(step.weight.type)}
            self.needs.columns[self._edges_of(step)] = needed
        return self.edges(replace(step, edge_variable=self._edges_of(step), predicates=()))

    def _edges_of(self, step: plan.Expand) -> str:
        """The name of a variable that occurs in no query."""
        return f"#{step.path_variable}"

    def _end_prefixes(self, step: plan.Expand) -> dict[str, str]:
        """The prefixes that make references of the ids at each end of the edges of a hop."""
        ends = (SRC, DST) if step.direction != "in" else (DST, SRC)
        return {end: self.ids.prefix(name) for end, name in zip(ends, step.declared, strict=True)}

    def _end_types(self, step: plan.Expand) -> dict[str, dict[int, str]]:
        """The names of types by their numbers, at each end of edges that is an interface."""
        ends = (SRC, DST) if step.direction != "in" else (DST, SRC)
        return {
            end: {number: type_name for type_name, number in self.ids.members[name]}
            for end, name in zip(ends, step.declared, strict=True)
            if name in self.ids.members
        }

    # --- search -----------------------------------------------------------------------------------

    def _search_column(self, call: SearchCall) -> SearchColumn:
        match call:
            case ex.TextMatch():
                edits = self.arguments.edits(call) if call.function == "fuzzy" else None
                return TextMatchColumn(call.property, self.arguments.sought(call.query), edits)
            case ex.Highlight():
                return HighlightColumn(call.property, self.arguments.sought(call.query), call.style)
            case ex.Nearest():
                vector = self.arguments.query_vector(call)
                return DistanceColumn(call.property, tuple(vector.tolist()))
            case ex.Bm25():
                query = self.arguments.sought(call.query)
                known = WordStatistics()
                if query is not None:
                    known = self._word_statistics(call.type_name, call.property, query)
                return Bm25Column(call.property, query, known)
            case ex.Rrf():
                raise InternalError("a fused score exists only for rows it has ordered")

    def _word_statistics(self, type_name: str, property: str, query: Sought) -> WordStatistics:
        """The statistics of a property over all nodes of its type, counted by workers."""
        key = (type_name, property, query)
        if key not in self._statistics:
            table = self._table(TableKey.node(type_name))
            count = WordCount(table, property, query)
            parts = len(table.parts)
            context = self._jobs.spark.sparkContext
            found = self._jobs.run(
                lambda: context.parallelize(range(parts), parts).map(count).collect()
            )
            self._statistics[key] = reduce(WordStatistics.plus, found, WordStatistics())
        return self._statistics[key]

    # --- reading ----------------------------------------------------------------------------------

    def _table(self, key: str) -> StoredTable:
        known = self._stored.get(key)
        if known is None:
            reader = self.run.reader
            entry, handle = reader.snapshot.table(key), reader.handle(key)
            slots = max(1, self._jobs.spark.sparkContext.defaultParallelism)
            rows = max(PART_ROWS_MIN, min(PART_ROWS_MAX, entry.row_count // (2 * slots) + 1))
            known = self._stored[key] = StoredTable(
                reader.where(entry).address,
                entry.version,
                self._storage_options,
                tuple(group for group, _ in fragment_groups(handle, rows)) or ((),),
                tuple(handle.schema.names),
                reader.columns(key),
            )
            if isinstance(reader, ViewedReader):
                ends = ShownEnds.of(reader.view.types[key].type)
                ends = ShownEnds({end: dict(types) for end, types in ends.prefixes.items()})
                known = replace(known, grants=reader.view.conditions(key), ends=ends)
                self._stored[key] = known
        return known

    def _between_visible(
        self, step: plan.Expand, frame: DataFrame, near: str, far: str
    ) -> tuple[DataFrame, bool]:
        """The edges of a hop with visible ends, and whether these are all of the table's."""
        reader, key = self.run.reader, TableKey.edge(step.edge_type)
        hiding = hiding_ends(reader.view, key) if isinstance(reader, ViewedReader) else []
        named = {SRC: (near, 0), DST: (far, 1)}
        if step.direction == "in":
            named = {SRC: (far, 1), DST: (near, 0)}
        for end in (SRC, DST) if hiding and step.direction == "both" else hiding:
            column, side = named[end]
            nodes, names = self.nodes("#visible", step.declared[side])
            (id,) = names.values()
            frame = frame.join(nodes, F.col(column) == F.col(id), "left_semi")
        return frame, not hiding

    def _scanned(self, scan: TableScan, types: Mapping[str, pa.DataType]) -> DataFrame:
        """The frame of a scan."""
        return self._task_numbers(len(scan.table.parts)).mapInArrow(scan, _schema(scan, types))

    def _hinted(self, key: str, frame: DataFrame, types: Mapping[str, pa.DataType]) -> DataFrame:
        """A frame of a table, with a broadcast hint if it is small."""
        return F.broadcast(frame) if self._is_small(key, types) else frame

    def _is_small(self, key: str, types: Mapping[str, pa.DataType]) -> bool:
        rows = self.run.reader.snapshot.table(key).row_count
        widths = (_ID_WIDTH if name in NEVER_NULL else _width(types[name]) for name in types)
        return rows * sum(widths) <= BROADCAST_BYTES

    def _looked_up(
        self,
        key: str,
        scan: TableScan,
        types: Mapping[str, pa.DataType],
        entity_id: ex.Expression,
    ) -> DataFrame:
        """The node with an id, looked up by the index in this process."""
        wanted = scalar_operand(entity_id, self.run.parameters, self.run.now).as_py()
        ids = pa.array([] if wanted is None else [wanted], pa.string())
        reader = self.run.reader
        names = [name for name in scan.columns if name in reader.available(key, scan.columns)]
        found = reader.rows_where_in(key, ID, ids, list(dict.fromkeys([ID, *names])))
        columns = {
            name: found[name].combine_chunks() if name in names else pa.nulls(len(found), type)
            for name, type in scan.columns.items()
        }
        batch = scan.shown(scan.kept(columns))
        schema = _schema(scan, types)
        return F.broadcast(self._jobs.spark.createDataFrame(pa.Table.from_batches([batch]), schema))

    def _task_numbers(self, count: int) -> DataFrame:
        """A row per task, in a partition of its own, of a size that Spark does not know.

        Spark estimates a range as a few bytes, whatever workers make of it, and would broadcast the
        largest table.
        """
        known = self._tasks.get(count)
        if known is None:
            spark = self._jobs.spark
            numbers = spark.range(0, count, 1, count)._jdf.toDF()
            made = spark._jsparkSession.createDataFrame(numbers.javaRDD(), numbers.schema())
            known = self._tasks[count] = DataFrame(made, spark)
        return known


def _schema(scan: TableScan, types: Mapping[str, pa.DataType]) -> StructType:
    return StructType(
        [
            StructField(shown, spark_type(types[name]), name not in NEVER_NULL)
            for name, shown in scan.outputs
        ]
    )


def _searched_type(call: SearchCall) -> pa.DataType:
    if isinstance(call, ex.Nearest):
        return pa.list_(pa.field("item", pa.float32()), call.dimension)
    return pa.string()


_ID_WIDTH = 40


def _width(type: pa.DataType) -> int:
    """Bytes of a value; generous for texts, since broadcasting too large a table fails."""
    if pa.types.is_fixed_size_list(type):
        return 4 * int(type.list_size)
    return 200 if pa.types.is_string(type) or pa.types.is_list(type) else 8
