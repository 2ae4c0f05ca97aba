"""Locating violations of a bulk load: finds the records with broken keys, and reports them.

Runs only if a check failed. Reads the input again, unless there are scratch rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.constraints import Holder, Violation
from omnigraph.loading.check_plan import (
    CheckJob,
    CheckPlan,
    CommittedPart,
    PartRows,
    RuleColumns,
    WrittenPart,
    columns_of,
    rule_keys,
)
from omnigraph.loading.checks import broken_by_threads, broken_by_workers
from omnigraph.loading.edge_identity import match_texts
from omnigraph.loading.executors import (
    RESULTS,
    ArrowFunction,
    TaskRunner,
    mapped,
    mapped_tasks,
    task_batch,
    task_numbers,
    unpickled,
)
from omnigraph.loading.pieces import InputPlan, Piece, Task
from omnigraph.loading.reading import PieceReader, Reading
from omnigraph.loading.records.absence import missing_value
from omnigraph.loading.records.problems import (
    Findings,
    Grammar,
    Problem,
    RecordPlace,
    Unit,
    problem_of,
    problems_of,
)
from omnigraph.loading.records.rows import TypedRows
from omnigraph.loading.replacing import MissingValue
from omnigraph.loading.skipping import BadRecord, type_key_of
from omnigraph.loading.sources import FoundFile, type_of
from omnigraph.loading.staging import (
    NUMBER,
    PIECE,
    Staged,
    list_frame_problems,
    list_problems,
    renumbered,
)
from omnigraph.model.arrow import ID
from omnigraph.model.records import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- where records are ----------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordPlaces:
    """Maps records of pieces to files and record numbers, independent of how the input was cut."""

    plan: InputPlan
    grammar: Grammar
    firsts: Mapping[int, int]
    """How many records of its file come before each piece."""

    @classmethod
    def of(cls, plan: InputPlan, grammar: Grammar, records: Mapping[int, int]) -> RecordPlaces:
        """The places in a planned input; ``records`` is the number of records of each piece."""
        firsts: dict[int, int] = {}
        so_far: dict[str, int] = {}
        for task in plan.tasks:
            for piece in task:
                firsts[piece.index] = (
                    so_far.get(piece.file.path, 0) if piece.is_range else piece.first
                )
                so_far[piece.file.path] = so_far.get(piece.file.path, 0) + records.get(
                    piece.index, 0
                )
        return cls(plan, grammar, firsts)

    @cached_property
    def _pieces(self) -> dict[int, tuple[str, Unit]]:
        """File name and unit of every piece, partitions of frames included, in input order."""
        pieces: dict[int, tuple[str, Unit]] = {
            number: (piece.file.shown, piece.unit(self.grammar))
            for number, piece in sorted(self.plan.pieces.items())
        }
        first = self.plan.first_frame
        for source in self.plan.frames:
            partitions = source.rows.rdd.getNumPartitions()
            for number in range(partitions):
                pieces[first + number] = (f"{source.name}[{number}]", "record")
            first += partitions
        return pieces

    @property
    def sources(self) -> list[str]:
        """The names of all pieces."""
        return [name for name, _ in self._pieces.values()]

    def first(self, piece: int) -> int:
        """How many records of its file come before a piece."""
        return self.firsts.get(piece, 0)

    def place(self, piece: int, number: int) -> RecordPlace:
        """The place of a record of a piece."""
        name, unit = self._pieces[piece]
        return RecordPlace(name, self.first(piece) + number, unit)

    def of_holder(self, table_key: str, holder: Holder, *, own: bool) -> RecordPlace | None:
        """The place of the record to show; None for a committed row."""
        piece, number = holder.record if own else holder.entity_record or holder.record
        if piece < 0:
            return None
        return self.place(piece, number)


# --- reports --------------------------------------------------------------------------------------


@dataclass(slots=True)
class LoadProblems:
    """Collects the problems of one load."""

    runner: TaskRunner
    reading: Reading
    plan: InputPlan
    places: RecordPlaces
    findings: Findings

    def add_records(self, staged: Staged) -> None:
        """Report problems of single records."""
        self.findings.counts.update(staged.counts)
        is_complete = len(staged.problems) == staged.counts.total()
        for piece, problem in staged.problems:
            placed = renumbered(problem, self.places.first(piece))
            self.findings.add(placed, listed=is_complete)
        if self.findings.errors_out is not None and not is_complete:
            self._list_all()

    def add_missing(self, missing: Mapping[str, tuple[int, list[MissingValue]]]) -> None:
        """Report new entities that lack a required property, from `Upsert.missing`."""
        for key, (count, first) in missing.items():
            self.findings.counts["bad_value"] += count
            type = type_of(key, self.reading.catalog)
            for piece, number, name in first:
                self.findings.add(missing_value(type, name, self.places.place(piece, number)))

    def _list_all(self) -> None:
        """Read the input again to list all problems: tasks return the first ones only."""
        count = len(self.plan.tasks)
        work = list_problems(self.reading, self.plan.tasks)
        if self.runner.uses_threads:
            for number in range(count):
                for batch in work(task_batch(number)):
                    self._list(batch.to_pylist())
            return
        with self.runner.named("check", "list every problem"):
            if count:
                self._list(mapped_tasks(self.runner.spark, count, work, RESULTS).toLocalIterator())
            first = self.plan.first_frame
            for source in self.plan.frames:
                of_frame = list_frame_problems(self.reading, source.found, first)
                self._list(mapped(source.rows, of_frame, RESULTS).toLocalIterator())
                first += source.rows.rdd.getNumPartitions()

    def _list(self, rows: Iterable[Any]) -> None:
        for problems in unpickled(rows):
            for piece, problem in problems:
                self.findings.list(renumbered(problem, self.places.first(piece)))

    def add_violations(self, job: CheckJob) -> None:
        """Report records that break constraints on several rows, committed ones included."""
        if self.runner.uses_threads:
            self._add(locate_by_threads(self.runner, job, self.reading, self.plan), job)
            return
        with self.runner.named("check", "find the records to blame"):
            self._add(locate_by_workers(self.runner.spark, job, self.reading, self.plan), job)

    def _add(self, rows: Iterable[HolderRow], job: CheckJob) -> None:
        for problem in problems_of(explain(rows, job.plan), self.places.of_holder):
            self.findings.note(problem)

    # --- for loads that skip bad records ---

    def bad_records(
        self,
        job: CheckJob | None,
        missing: Mapping[str, tuple[int, list[MissingValue]]],
        ambiguous: Sequence[tuple[int, Problem]],
    ) -> Iterator[BadRecord]:
        """Every record that breaks a constraint, lacks a required value or has an ambiguous id."""
        catalog = self.reading.catalog
        for piece, problem in ambiguous:
            assert problem.place is not None
            placed = renumbered(problem, self.places.first(piece))
            key = type_key_of(problem, catalog)
            yield BadRecord((piece, problem.place.number), key, placed)
        for key, (_, several) in missing.items():
            type = type_of(key, catalog)
            for piece, number, name in several:
                problem = missing_value(type, name, self.places.place(piece, number))
                yield BadRecord((piece, number), key, problem)
        if job is None:
            return
        if self.runner.uses_threads:
            yield from self._culprits(
                locate_by_threads(self.runner, job, self.reading, self.plan), job
            )
            return
        with self.runner.named("check", "find the records to skip"):
            rows = locate_by_workers(self.runner.spark, job, self.reading, self.plan)
            yield from self._culprits(rows, job)

    def _culprits(self, rows: Iterable[HolderRow], job: CheckJob) -> Iterator[BadRecord]:
        catalog = self.reading.catalog
        for violation in explain(rows, job.plan, by_record=True):
            problem = problem_of(violation, self.places.of_holder)
            culprit = violation.culprit
            record = None if culprit is None or culprit.record[0] < 0 else culprit.record
            place = None if record is None else self.places.place(*record)
            yield BadRecord.of(record, violation, replace(problem, place=place), catalog)


def explain(
    rows: Iterable[HolderRow], plan: CheckPlan, *, by_record: bool = False
) -> Iterator[Violation]:
    """The violations of rows with broken keys, which are sorted by rule and key.

    ``by_record``: one violation for each record involved, as in `KeyConstraint`.
    """
    for number, of_rule in groupby(rows, key=lambda row: row["rule"]):
        keyed = (
            (key, [_holder(row) for row in of_key])
            for key, of_key in groupby(of_rule, key=lambda row: row["key"])
        )
        constraints = plan.rules[number].constraints
        if by_record:
            for key, holders in keyed:
                for constraint in constraints:
                    yield from constraint.by_record(key, holders)
            continue
        if len(constraints) == 1:
            yield from constraints[0].explain(keyed)
            continue
        for key, holders in keyed:
            for constraint in constraints:
                yield from constraint.violations(key, holders)


def _holder(row: HolderRow) -> Holder:
    entity_record = (row["at_piece"], row["at_number"])
    is_record = row["role"] == "record"
    return Holder(
        row["role"],
        row["id"],
        (row["piece"], row["number"]) if is_record else entity_record,
        row["member"],
        is_kept=row["at_piece"] < 0,
        entity_record=entity_record,
    )


# --- rows that have broken keys, in the order of rules, keys and records --------------------------

HolderRow = Mapping[str, Any]
"""A row of `HOLDERS`, with the place of the first record of its entity."""

HOLDERS = pa.schema(
    {
        "rule": pa.int32(),
        "key": pa.string(),
        "role": pa.string(),
        "piece": pa.int32(),
        "number": pa.int64(),
        "id": pa.string(),
        "entity": pa.string(),
        "member": pa.string(),
        "table": pa.string(),
    }
)
"""Keys and places of rows; ``entity`` is the value an upsert matches them by: id or edge key."""
PLACES = pa.schema(
    {"table": pa.string(), "entity": pa.string(), "piece": pa.int32(), "number": pa.int64()}
)
NO_PIECE = -1
"""The piece of rows that were not read from the input."""

_ORDER = ("rule", "key", "piece", "number", "id", "member")
_ROWS_AT_ONCE = 10_000


def locate_by_workers(
    spark: SparkSession, job: CheckJob, reading: Reading, plan: InputPlan
) -> Iterator[HolderRow]:
    """Every row that has a broken key, found by Spark workers."""
    if job.records:
        found = _upsert_holders(spark, job, last=reading.skips)
    else:
        found = _holders(spark, job, reading, plan)
    broken = broken_by_workers(spark, job).select("rule", "key").distinct()
    rows: Iterator[Any] = found.join(broken, ["rule", "key"]).orderBy(*_ORDER).toLocalIterator()
    return rows


def locate_by_threads(
    runner: TaskRunner, job: CheckJob, reading: Reading, plan: InputPlan
) -> Iterator[HolderRow]:
    """The same by threads of this process; in Arrow, because there may be millions of rows."""
    counts = pa.Table.from_batches(broken_by_threads(runner, job))
    broken = counts.group_by(["rule", "key"]).aggregate([])
    keys = pc.unique(broken["key"])
    of_parts = locate_parts(job)
    if job.records:
        found = _chosen(runner, range(len(job.parts)), of_parts, keys)
        at = _entity_places(runner, job, pc.unique(found["entity"]), last=reading.skips)
        found = found.join(at, ["table", "entity"], join_type="left outer")
        for name in ("at_piece", "at_number"):
            at_column = pc.fill_null(found[name], NO_PIECE)
            found = found.set_column(found.schema.get_field_index(name), name, at_column)
    else:
        records = locate_records(reading, job.plan, plan.tasks)
        parts = enumerate(job.parts)
        committed = [number for number, part in parts if isinstance(part, CommittedPart)]
        found = pa.concat_tables(
            [
                _chosen(runner, range(len(plan.tasks)), records, keys),
                _chosen(runner, committed, of_parts, keys),
            ]
        )
        found = found.append_column("at_piece", found["piece"])
        found = found.append_column("at_number", found["number"])
    rows = found.join(broken, ["rule", "key"], join_type="inner")
    ordered = rows.sort_by([(name, "ascending") for name in _ORDER])
    return (row for batch in ordered.to_batches(_ROWS_AT_ONCE) for row in batch.to_pylist())


def _entity_places(
    runner: TaskRunner, job: CheckJob, entities: pa.Array, *, last: bool
) -> pa.Table:
    """The place of the first (or last) record of each entity of an upsert."""
    numbers = range(len(job.records))
    found = _chosen(runner, numbers, record_places(job), entities, column="entity", schema=PLACES)
    in_order = found.sort_by([("piece", "ascending"), ("number", "ascending")])
    which = "last" if last else "first"
    chosen = in_order.group_by(["table", "entity"], use_threads=False).aggregate(
        [("piece", which), ("number", which)]
    )
    return chosen.rename_columns(["table", "entity", "at_piece", "at_number"])


def _chosen(
    runner: TaskRunner,
    numbers: Sequence[int],
    function: ArrowFunction,
    values: pa.Array,
    *,
    column: str = "key",
    schema: pa.Schema = HOLDERS,
) -> pa.Table:
    """The rows of a function with one of ``values`` in ``column``."""

    def run(number: int) -> list[pa.RecordBatch]:
        return [
            batch.filter(pc.is_in(batch[column], value_set=values))
            for batch in function(task_batch(number))
        ]

    found = runner.map_threads("check", numbers, run)
    return pa.Table.from_batches([batch for batches in found for batch in batches], schema)


def _holders(spark: SparkSession, job: CheckJob, reading: Reading, plan: InputPlan) -> DataFrame:
    """All keys of the input, which is read again, and of committed rows."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    sources: list[DataFrame] = []
    if plan.tasks:
        located = locate_records(reading, job.plan, plan.tasks)
        sources.append(mapped_tasks(spark, len(plan.tasks), located, HOLDERS))
    first = plan.first_frame
    for source in plan.frames:
        located = locate_frame(reading, job.plan, source.found, first)
        sources.append(mapped(source.rows, located, HOLDERS))
        first += source.rows.rdd.getNumPartitions()
    committed = [number for number, part in enumerate(job.parts) if isinstance(part, CommittedPart)]
    if committed:
        numbers = spark.range(0, len(job.parts), 1, len(job.parts))
        wanted = numbers.filter(F.col("id").isin(committed))
        sources.append(mapped(wanted, locate_parts(job), HOLDERS))
    found = sources[0]
    for more in sources[1:]:
        found = found.union(more)
    return found.withColumn("at_piece", F.col("piece")).withColumn("at_number", F.col("number"))


def _upsert_holders(spark: SparkSession, job: CheckJob, *, last: bool) -> DataFrame:
    """All keys of the rows that an upsert read and wrote, and of committed rows that remain."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = mapped_tasks(spark, len(job.parts), locate_parts(job), HOLDERS)
    chosen = F.max if last else F.min
    places = (
        mapped_tasks(spark, len(job.records), record_places(job), PLACES)
        .groupBy("table", "entity")
        .agg(chosen(F.struct("piece", "number")).alias("at"))
        .select(
            "table",
            "entity",
            F.col("at.piece").alias("at_piece"),
            F.col("at.number").alias("at_number"),
        )
    )
    return rows.join(places, ["table", "entity"], "left").na.fill(-1, ["at_piece", "at_number"])


# --- in tasks -------------------------------------------------------------------------------------


def locate_records(reading: Reading, plan: CheckPlan, tasks: Sequence[Task]) -> ArrowFunction:
    """The function Spark runs over task numbers: reads the input again for keys and places."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = PieceReader(reading)
        for number in task_numbers(batches):
            for piece in tasks[number]:
                for chunk, _ in reader.read(piece):
                    for rows in chunk:
                        yield from _located_rows(rows, piece, reading, plan)

    return run


def locate_frame(
    reading: Reading, plan: CheckPlan, found: FoundFile, first_piece: int
) -> ArrowFunction:
    """The same for the rows of a frame."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        piece = Piece.of_partition(found, first_piece)
        reader = PieceReader(reading)
        type = type_of(found.table_key or "", reading.catalog)
        for batch in batches:
            (rows,), _ = reader.table_rows(batch, type, piece)
            yield from _located_rows(rows, piece, reading, plan)

    return run


def _located_rows(
    rows: TypedRows, piece: Piece, reading: Reading, plan: CheckPlan
) -> Iterator[pa.RecordBatch]:
    key = rows.type.table_key
    return located(
        plan.written.get(key, ()),
        rows.rows,
        reading.minting.prefix,
        pieces=_all(piece.index, rows.rows, pa.int32()),
        numbers=rows.numbers,
        table_key=key,
    )


def locate_parts(job: CheckJob) -> ArrowFunction:
    """The function Spark runs over part numbers: the keys of their rows.

    Committed and written rows have no piece; records of the latter are found by id.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_numbers(batches):
            part = job.parts[number]
            several = columns_of(job.plan, part)
            has_places = isinstance(part, WrittenPart) and part.holds_records
            places = (PIECE, NUMBER) if has_places else ()
            rows = PartRows(job, part, several, *_entity_columns(job, part.table_key), *places)
            for fed in several:
                for some in rows.of(fed).to_batches():
                    yield from located(
                        [fed],
                        some,
                        job.minted_prefix,
                        entities=_entities(job, part.table_key, some),
                        pieces=some[PIECE] if has_places else _all(NO_PIECE, some, pa.int32()),
                        numbers=some[NUMBER] if has_places else _all(0, some, pa.int64()),
                        table_key=part.table_key,
                    )

    return run


def record_places(job: CheckJob) -> ArrowFunction:
    """The function Spark runs over the indexes of ``job.records``: ids and places."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_numbers(batches):
            part = job.records[number]
            columns_of_entity = _entity_columns(job, part.table_key)
            for some in PartRows(job, part, (), *columns_of_entity, PIECE, NUMBER).all.to_batches():
                entities = _entities(job, part.table_key, some)
                columns = [_all(part.table_key, some, pa.string()), entities]
                yield pa.RecordBatch.from_arrays(
                    [*columns, some[PIECE], some[NUMBER]], schema=PLACES
                )

    return run


def _entity_columns(job: CheckJob, table_key: str) -> tuple[str, ...]:
    """The id, and the columns by which rows of a type are matched."""
    _, matched_by = job.matched_by.get(table_key, (None, ()))
    return tuple(dict.fromkeys((ID, *matched_by)))


def _entities(job: CheckJob, table_key: str, rows: pa.RecordBatch) -> pa.StringArray:
    """The text that each row is matched by."""
    if table_key not in job.matched_by:
        return rows[ID]
    return match_texts(*job.matched_by[table_key], rows)


def _all(value: int | str, rows: pa.RecordBatch, type: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, type), rows.num_rows)


def located(
    several: Iterable[RuleColumns],
    rows: pa.RecordBatch,
    minted_prefix: str,
    *,
    pieces: pa.Int32Array,
    numbers: pa.Int64Array,
    table_key: str,
    entities: pa.StringArray | None = None,
) -> Iterator[pa.RecordBatch]:
    """The keys of some rows, as rows of `HOLDERS`; ``entities`` are their ids by default."""
    for fed in several:
        keys, at = rule_keys(fed, rows, minted_prefix)
        columns = [pieces, numbers, rows[ID], rows[ID] if entities is None else entities]
        if at is not None:
            columns = [column.take(at) for column in columns]
        count = len(keys)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([fed.rule] * count, pa.int32()),
                keys,
                pa.array([fed.of.role] * count, pa.string()),
                *columns,
                pa.array([fed.of.member] * count, pa.string()),
                pa.array([table_key] * count, pa.string()),
            ],
            schema=HOLDERS,
        )
