"""Code that runs in Spark's Python workers: scan tables, evaluate expressions, count words.

Workers run the kernels of the local engine on Arrow columns, so a value is the same on both
engines. All objects here are sent pickled: storage is given by its address, and accessed with the
driver's options.
"""

from __future__ import annotations

import base64
import datetime as dt
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import reduce
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.search import Sought, TextColumn, highlights
from omnigraph.engines.local.text_index import WordStatistics
from omnigraph.engines.local.vectors import VectorColumn
from omnigraph.engines.spark.types import carried_type, from_carried, to_carried
from omnigraph.errors import InternalError, OmnigraphError
from omnigraph.model.arrow import DST, ID, SRC, arrow_type
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES, ShownEnds, ids_in, qualified, type_names_in
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import ColumnExpression, evaluate, holds
from omnigraph.query.functions import deviations, percentiles
from omnigraph.query.kernels import sum_overflow
from omnigraph.storage.reader import StoredColumns
from omnigraph.storage.written import committed_batches
from omnigraph.views import RowGrant
from omnigraph.views.rows import columns_tested, granted

# --- failures -------------------------------------------------------------------------------------

_MARK = "omnigraph-error:"
_FOUND = re.compile(re.escape(_MARK) + r"([A-Za-z0-9+/=]+)")


class _WorkerFailure(Exception):
    """An error of this package on its way through Spark, which only passes text."""

    def __init__(self, error: OmnigraphError) -> None:
        super().__init__(_MARK + base64.b64encode(pickle.dumps(error)).decode())


def worker_error(text: str) -> OmnigraphError | None:
    """The error that a worker of this package raised, if Spark's message contains one."""
    found = _FOUND.search(text)
    if found is None:
        return None
    error = pickle.loads(base64.b64decode(found[1]))  # noqa: S301 - written by our own workers
    return error if isinstance(error, OmnigraphError) else None


# --- expressions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constants:
    """The values that are the same for all rows of a query."""

    parameters: Mapping[str, object]
    now: dt.datetime


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluates one expression over the columns of its leaves."""

    expression: ex.Expression
    leaves: tuple[ColumnExpression, ...]
    constants: Constants

    def function(self) -> Callable[..., pa.Array]:
        """The function that Spark calls."""

        def evaluated(*columns: pa.Array) -> pa.Array:
            return self(*columns)

        return evaluated

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """The values in their carrying type."""
        known = {
            leaf: from_carried(column, arrow_type(leaf.type))
            for leaf, column in zip(self.leaves, columns, strict=True)
        }
        try:
            return evaluated_column(
                self.expression, known.__getitem__, self.constants, len(columns[0])
            )
        except OmnigraphError as error:
            raise _WorkerFailure(error) from None


def evaluated_column(
    expression: ex.Expression,
    leaf: Callable[[ColumnExpression], pa.Array],
    constants: Constants,
    count: int,
) -> pa.Array:
    """An expression as one carried column of ``count`` rows."""
    value = evaluate(expression, leaf, constants.parameters, constants.now)
    if isinstance(value, pa.Scalar):
        value = pa.repeat(value, count)
    elif isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    type = arrow_type(expression.type)
    return to_carried(value if value.type == type else value.cast(type))


@dataclass(frozen=True, slots=True)
class ListAggregate:
    """An aggregate over all numbers of a group, which are passed as a list."""

    name: str
    fraction: float | None
    """The percentile, if the function is one."""

    def function(self) -> Callable[..., pa.Array]:
        """The function that Spark calls."""

        def aggregated(lists: pa.Array) -> pa.Array:
            return self(lists)

        return aggregated

    def __call__(self, lists: pa.Array) -> pa.Array:
        """One number per list."""
        group = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        numbers = pc.list_flatten(lists).to_numpy(zero_copy_only=False)
        if self.name == "stddev":
            return deviations(numbers, group, len(lists))
        return percentiles(numbers, group, len(lists), self.fraction)


def fitting_sums(totals: pa.Array) -> pa.Array:
    """Sums of integers as I64; raises the `InputError` of `sum` for one that does not fit."""
    try:
        return totals.cast(pa.int64())
    except pa.ArrowInvalid:
        extreme = max(pc.min_max(totals).as_py().values(), key=abs)
        raise _WorkerFailure(sum_overflow(float(extreme))) from None


# --- search ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextMatchColumn:
    """Whether texts match a query; none does if the query is null."""

    property: str
    query: Sought | None
    edits: int | None
    """The edit distance of a fuzzy search."""

    def values(self, texts: pa.Array) -> pa.Array:
        """One truth value per text."""
        matches = np.zeros(len(texts), np.bool_)
        if self.query is not None:
            column = TextColumn.of(texts)
            if self.edits is None:
                matches[column.matching(self.query)] = True
            else:
                matches[column.index.fuzzy(self.query.text, self.edits)] = True
        return pa.array(matches)


@dataclass(frozen=True, slots=True)
class Bm25Column:
    """BM25 scores of texts, with the word statistics of all texts of the property."""

    property: str
    query: Sought | None
    statistics: WordStatistics

    def values(self, texts: pa.Array) -> pa.Array:
        """One score per text; 0 where no word is shared."""
        if self.query is None:
            return pa.array(np.zeros(len(texts)))
        return pa.array(TextColumn.of(texts).scores_in(self.query, self.statistics))


@dataclass(frozen=True, slots=True)
class HighlightColumn:
    """Fragments of texts with marked hits."""

    property: str
    query: Sought | None
    style: str

    def values(self, texts: pa.Array) -> pa.Array:
        """One list of fragments per text; null for a null text."""
        return highlights(texts, self.query, self.style)


@dataclass(frozen=True, slots=True)
class DistanceColumn:
    """Squared distances of vectors from a query vector."""

    property: str
    query: tuple[float, ...]

    def values(self, vectors: pa.Array) -> pa.Array:
        """One distance per vector; null for a null vector."""
        column = VectorColumn.of(vectors)
        everyone = np.arange(len(vectors), dtype=np.int32)
        distances = column.distances(np.array(self.query, np.float64), everyone)
        return pa.array(distances, mask=~column.valid)


SearchColumn = TextMatchColumn | Bm25Column | HighlightColumn | DistanceColumn


# --- scans ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One version of a table, divided into parts that tasks read."""

    address: str
    version: int
    options: Mapping[str, str] | None = field(repr=False)
    """Storage options, including the driver's credentials."""
    parts: tuple[tuple[int, ...], ...]
    """The fragments of each part; one task reads one part."""
    names: tuple[str, ...]
    """The columns that this version has."""
    stored: StoredColumns
    grants: tuple[RowGrant, ...] | None = None
    """Conditions on its rows, one of which has to be true; None for all rows."""
    ends: ShownEnds = field(default_factory=lambda: ShownEnds({}))

    def batches(
        self, part: int, columns: Mapping[str, pa.DataType]
    ) -> Iterator[dict[str, pa.Array]]:
        """Columns of the visible rows, in batches."""
        if self.grants is None:
            yield from self._batches(part, columns)
            return
        read = {ID: pa.string(), **columns_tested(self.grants, self.ends), **columns}
        for found in self._batches(part, read):
            mask = granted(self.grants, self.ends, pa.table(found))
            if pc.any(mask).as_py():
                yield {name: found[name].filter(mask) for name in columns or read}

    def _batches(
        self, part: int, columns: Mapping[str, pa.DataType]
    ) -> Iterator[dict[str, pa.Array]]:
        """Columns of all rows, in batches; a column that this version lacks is null."""
        found = {name: self.stored.name(name) for name in columns}
        known = {name: at for name, at in found.items() if at is not None and at in self.names}
        for batch in committed_batches(
            self.address,
            self.version,
            self.parts[part],
            list(dict.fromkeys(known.values())) or [ID],
            storage_options=None if self.options is None else dict(self.options),
        ):
            if batch.num_rows:
                yield {
                    name: self.stored.as_today(name, batch.column(known[name]))
                    if name in known
                    else pa.nulls(batch.num_rows, type)
                    for name, type in columns.items()
                }


@dataclass(frozen=True, slots=True)
class TableScan:
    """Reads the columns that a query needs of the rows that pass the conditions of a step."""

    table: StoredTable
    columns: Mapping[str, pa.DataType]
    """The stored columns to read."""
    outputs: tuple[tuple[str, str], ...]
    """A stored column or a search column, and its name in the frame."""
    constants: Constants
    search: Mapping[str, SearchColumn] = field(default_factory=dict)
    conditions: tuple[tuple[ex.Expression, ...], ...] = ()
    """Tested one tuple after the other: rows that fail one are not evaluated by the next."""
    orientation: Literal["out", "in", "both"] | None = None
    """For edges: which end is called `near`; `both` yields each edge twice."""
    has_edges: bool = False
    """For edges: whether each edge counts, not only the pair of nodes it links."""
    distinct: bool = False
    """For edges: yield each pair once. Only correct for a table that one task reads."""
    node_type: str | None = None
    """For nodes: the name of their type."""
    prefixes: Mapping[str, str] = field(default_factory=dict)
    """Prefixes that make references of the ids of nodes, or of those at an end of edges."""
    end_types: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """The names of types by their numbers, at each end of edges that is an interface."""

    def __call__(self, tasks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the parts whose numbers arrive."""
        try:
            for numbers in tasks:
                for part in numbers.column(0).to_pylist():
                    yield from self._rows(part)
        except OmnigraphError as error:
            raise _WorkerFailure(error) from None

    def _rows(self, part: int) -> Iterator[pa.RecordBatch]:
        batches = (
            self.shown(oriented)
            for columns in self.table.batches(part, self.columns)
            for oriented in self._oriented(self.kept(columns))
        )
        if not self.distinct:
            yield from batches
            return
        together = list(batches)
        if together:
            table = pa.Table.from_batches(together)
            yield from (
                table.group_by(table.column_names).aggregate([]).combine_chunks().to_batches()
            )

    def kept(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """The rows that pass every condition, with the values of search calls."""
        found = self._searched(columns)
        if self.node_type is not None and ID in found:
            found[ex.NODE_ID] = found[ID]
            found[ex.NODE_TYPE] = pa.repeat(pa.scalar(self.node_type), len(found[ID]))
        for together in self.conditions:
            count = len(next(iter(found.values())))
            masks = [
                holds(
                    predicate,
                    lambda leaf, found=found: _leaf(leaf, found),  # type: ignore[misc]
                    self.constants.parameters,
                    self.constants.now,
                    count,
                )
                for predicate in together
            ]
            mask = reduce(pc.and_, masks)
            found = {name: column.filter(mask) for name, column in found.items()}
        return found

    def _searched(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        found = dict(columns)
        for name, call in self.search.items():
            found[name] = call.values(columns[call.property])
        return found

    def _oriented(self, columns: dict[str, pa.Array]) -> Iterator[dict[str, pa.Array]]:
        if self.orientation is None:
            yield columns
            return
        ends = self._reference(SRC, columns), self._reference(DST, columns)
        for end, names in self.end_types.items():
            columns = {
                **columns,
                end: ids_in(columns[end]),
                END_TYPES[end]: type_names_in(columns[end], names),
            }
        if self.orientation != "in":
            yield {**columns, NEAR: ends[0], FAR: ends[1]}
        if self.orientation != "out":
            turned = {**columns, NEAR: ends[1], FAR: ends[0]}
            if self.orientation == "both" and self.has_edges:
                # A self-loop is one row, although both of its ends are here.
                no_loop = pc.not_equal(*ends)
                turned = {name: column.filter(no_loop) for name, column in turned.items()}
            yield turned

    def _reference(self, name: str, columns: Mapping[str, pa.Array]) -> pa.Array:
        return qualified(columns[name], self.prefixes.get(name, ""))

    def shown(self, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        """The output columns in their carrying types."""
        if self.prefixes.get(ID):
            columns = {**columns, ID: self._reference(ID, columns)}
        return pa.RecordBatch.from_arrays(
            [to_carried(columns[name]) for name, _ in self.outputs],
            schema=pa.schema(
                [
                    pa.field(shown, carried_type(columns[name].type), name not in NEVER_NULL)
                    for name, shown in self.outputs
                ]
            ),
        )


NEAR = "#near"
FAR = "#far"
"""The ends of an edge as a hop sees them."""

NEVER_NULL = frozenset((ID, NEAR, FAR))
"""Spark would otherwise test them for null below each join, and run two scans that differ only in
that instead of one."""


def _leaf(leaf: ColumnExpression, columns: Mapping[str, pa.Array]) -> pa.Array:
    match leaf:
        case ex.PropertyValue():
            return columns[leaf.property]
        case ex.EntityId():
            return columns[ID]
        case ex.OutputValue():
            return columns[leaf.name]
    raise InternalError(f"a scan cannot read {leaf}")


@dataclass(frozen=True, slots=True)
class WordCount:
    """Counts the words of a text property for the scores of one query."""

    table: StoredTable
    property: str
    query: Sought

    def __call__(self, part: int) -> WordStatistics:
        """The statistics of one part."""
        total = WordStatistics()
        for columns in self.table.batches(part, {self.property: pa.string()}):
            total = total.plus(TextColumn.of(columns[self.property]).statistics(self.query))
        return total
