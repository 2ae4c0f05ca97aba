"""Merges, diffs and upkeep on Spark: workers compare branches, and check and write differing rows.

=======  ==========================================================================================
list     each task reads the ids of some fragments that two versions of a table do not share
compare  Spark partitions these by id, and a task compares the entities of its share: the code is
         that of a merge or diff in process, with the entities of one share for a range of ids
check    tasks check the rows to write against the schema, as in a bulk load
write    tasks write the rows that are not taken over as whole fragments
=======  ==========================================================================================

Only ids and numbers pass through Spark, and the driver gets positions of rows, except for rows that
mix properties of both sides: the driver holds them and writes them with the commit. A task may be
repeated by another worker; nothing is visible before the commit, which is that of any merge. If a
task finds a violation, the driver repeats the check in process, so that conflicts have the same
messages and order. The driver may then find none, since tasks check more strictly.

In upkeep, executors rewrite fragments and build indexes (`SparkWorkers`). The driver plans, stages
the transactions and publishes once, as in process; see `upkeep/optimize.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.delta import NO_CHANGES, Candidates, Changes, IdRange, TableDelta
from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import TableRows, Versions, chunked
from omnigraph.branching.three_way import ConflictRules, MergedRows, TypeSides
from omnigraph.branching.workers import InProcess, TypeMerge
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import TableChange, WrittenRows
from omnigraph.commit.validation.constraints import value_constraints
from omnigraph.commit.validation.evaluation import broken_values
from omnigraph.effects.uri import Root
from omnigraph.loading.check_plan import CheckJob, ChecksPlanner, Part
from omnigraph.loading.checks import count_broken
from omnigraph.loading.executors import (
    RESULTS,
    ArrowFunction,
    TaskRunner,
    mapped,
    mapped_tasks,
    pickled,
    task_numbers,
    unpickled,
)
from omnigraph.loading.upsert import PART_ROWS, SHARE_IDS, committed_parts
from omnigraph.model.arrow import ID
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.merging import MergeConflict
from omnigraph.model.records import dataclass
from omnigraph.pipeline.spark.session import SessionSettings, SparkWhenNeeded
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import Positions
from omnigraph.storage.row_places import (
    PLACES,
    POSITION,
    UPDATED_AT,
    offsets_at,
    unshared_fragments,
    unshared_rows,
)
from omnigraph.storage.upkeep_tasks import UpkeepTask, run_at
from omnigraph.storage.written import OFFSET, Deletions, Stretch, TablePlace, write_rows

LISTED = pa.schema(
    [
        ("table", pa.int32()),
        ("side", pa.int32()),
        (ID, pa.string()),
        (POSITION, pa.int64()),
        (UPDATED_AT, pa.int64()),
    ]
)
"""Rows that versions do not share. Spark has no unsigned numbers: versions are passed as bits."""

NOTHING_MINTED = "\0"
"""A prefix that no id has, since a merge mints no ids."""


@contextmanager
def spark_comparison(kernel: Kernel, options: SparkOptions, work: str) -> Iterator[SparkComparison]:
    """Workers of the given or active session, else of a new one that ends with the block."""
    settings = SessionSettings.of(os.environ, master=options.master, conf=options.conf)
    with SparkWhenNeeded(options.session, settings) as session:
        yield SparkComparison(kernel, TaskRunner(session, kernel.ids.ulid(), work=work))


class SparkComparison:
    """Runs the tasks of one merge or diff; the session starts with the first one."""

    def __init__(self, kernel: Kernel, runner: TaskRunner) -> None:
        self._kernel = kernel
        self._runner = runner

    # --- compare ---

    def compare(self, sides: Sequence[TypeSides], rules: ConflictRules) -> list[MergedRows]:
        """The merged rows of each type; types that metadata alone decides are not read."""
        found = [each.without_reading() for each in sides]
        undecided = [number for number, rows in enumerate(found) if rows is None]
        chosen = [sides[number] for number in undecided]

        def merged(number: int, listed: Sequence[pa.Table]) -> MergedRows:
            own = chosen[number]
            theirs = Candidates(own.base, own.source, *listed[:2])
            ours = Candidates(own.base, own.target, *listed[2:])
            return own.merged_among(theirs, ours, rules, Spill())

        parts = self._shares("merge", [each.changed_sides for each in chosen], merged)
        spill = Spill()
        for number, own, several in zip(undecided, chosen, parts, strict=True):
            rows = MergedRows.joined(several, spill.rows(table_schema(own.source.type)))
            conflicts = None if rows.conflicts is None else rows.conflicts.by_id()
            # In storage order, so that they are read fragment by fragment.
            found[number] = replace(rows, taken=np.sort(rows.taken), conflicts=conflicts)
        return [rows for rows in found if rows is not None]

    def deltas(self, pairs: Sequence[Versions]) -> list[TableDelta]:
        """The differences between two versions of each type."""

        def compared(number: int, listed: Sequence[pa.Table]) -> Changes:
            return Candidates(*pairs[number], *listed).within(IdRange()).changes

        sides = [(pair, pair[::-1]) for pair in pairs]
        deltas = []
        for pair, parts in zip(pairs, self._shares("diff", sides, compared), strict=True):
            changes = Changes.joined([NO_CHANGES, *parts])
            changes = changes.at(pc.sort_indices(changes.ids).to_numpy())
            deltas.append(TableDelta(*pair, changes, PLACES.empty_table()))
        return deltas

    def _shares(
        self,
        label: str,
        sides: Sequence[Sequence[Versions]],
        function: Callable[[int, Sequence[pa.Table]], Any],
    ) -> list[list[Any]]:
        """By type: the results of ``function``, one per share of its entities."""
        results: list[list[Any]] = [[] for _ in sides]
        tasks = list(_list_tasks(sides))
        if not tasks:
            # The versions share all rows: nothing to compare.
            return results
        rows = sum(task.rows for task in tasks)
        shares = max(self._runner.slots, -(-rows // SHARE_IDS))

        def collect() -> list[Any]:
            listed = mapped_tasks(self._runner.spark, len(tasks), _listed(sides, tasks), LISTED)
            shared = listed.repartition(shares, "table", ID)
            counts = [len(each) for each in sides]
            return mapped(shared, _compared(counts, function), RESULTS).collect()

        collected = self._runner.run("compare", f"{label} of {rows:,} rows", collect)
        for number, result in unpickled(collected):
            results[number].append(result)
        return results

    # --- check ---

    def violations(
        self, merges: Sequence[TypeMerge], catalog: Catalog, target: Capture
    ) -> Sequence[MergeConflict]:
        """Constraints that merged rows would break; if tasks find any, the driver explains them."""
        parts = [part for merge in merges for part in _taken_parts(merge)]
        if not self._has_broken_values(parts) and not self._has_broken_keys(
            merges, parts, catalog, target
        ):
            return ()
        return InProcess(self._kernel).violations(merges, catalog, target)

    def _has_broken_values(self, parts: Sequence[TakenPart]) -> bool:
        checked = [part for part in parts if any(True for _ in value_constraints(part.type))]
        label = f"values of {len(checked)} parts"
        count: Callable[[int], int] = lambda number: checked[number].broken_values()  # noqa: E731
        return any(self._runner.map_workers("check", label, len(checked), count))

    def _has_broken_keys(
        self,
        merges: Sequence[TypeMerge],
        parts: Sequence[TakenPart],
        catalog: Catalog,
        target: Capture,
    ) -> bool:
        written = {part.table_key for part in parts}
        losing = {merge.target.key for merge in merges if merge.rows.deleted}
        is_empty = target.reader.is_empty
        plan = ChecksPlanner(
            catalog, "merge", written, set(), is_empty, written, losing=losing
        ).plan()
        if not plan.rules:
            return False
        gone = {merge.target.key: _deletions(merge) for merge in merges}
        read: list[Part] = [part for part in parts if plan.written.get(part.table_key)]
        for key in sorted(plan.committed):
            own = gone.get(key, {})
            for part in committed_parts(target, key):
                of_part = {number: own[number] for number in part.fragment_ids if number in own}
                read.append(replace(part, gone=of_part))
        options = self._kernel.root.storage_options()
        job = CheckJob(plan, tuple(read), NOTHING_MINTED, options, {})
        return bool(count_broken(self._runner, job))

    # --- write ---

    def written(
        self, merges: Sequence[TypeMerge], places: Mapping[str, TablePlace]
    ) -> dict[str, TableChange]:
        """The change of each table, with the rows that workers have written."""
        parts = [
            TakenPart(merge.target.key, merge.sides.source, positions)
            for merge in merges
            for positions in chunked(np.sort(merge.rest), PART_ROWS)
        ]
        options = self._kernel.root.storage_options() or None

        def write(number: int) -> list[str]:
            return parts[number].write(places[parts[number].table_key], options)

        label = f"{len(parts)} parts of {', '.join(sorted({each.table_key for each in parts}))}"
        fragments: dict[str, list[str]] = {}
        written = self._runner.map_workers("write", label, len(parts), write)
        for part, several in zip(parts, written, strict=True):
            fragments.setdefault(part.table_key, []).extend(several)
        changes = {}
        for merge in merges:
            rows = merge.rows.mixed
            change = merge.change(
                table_schema(merge.target.type).empty_table() if rows is None else rows
            )
            own = WrittenRows(tuple(fragments.get(merge.target.key, ())))
            changes[merge.target.key] = replace(change, written=own)
        return changes


# --- tasks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ListTask:
    """Some fragments of one of the versions that are compared."""

    table: int
    side: int
    fragment_ids: frozenset[int]
    rows: int


def _list_tasks(sides: Sequence[Sequence[Versions]]) -> Iterator[_ListTask]:
    for table, versions in enumerate(sides):
        for side, (mine, other) in enumerate(versions):
            group: set[int] = set()
            rows = 0
            for fragment_id, own in unshared_fragments(mine.handle, other.handle):
                group.add(fragment_id)
                rows += own
                if rows >= PART_ROWS:
                    yield _ListTask(table, side, frozenset(group), rows)
                    group, rows = set(), 0
            if group:
                yield _ListTask(table, side, frozenset(group), rows)


def _listed(sides: Sequence[Sequence[Versions]], tasks: Sequence[_ListTask]) -> ArrowFunction:
    """The function Spark runs over task numbers: rows of `LISTED`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_numbers(batches):
            task = tasks[number]
            mine, other = sides[task.table][task.side]
            for rows in unshared_rows(mine.handle, other.handle, task.fragment_ids):
                count = rows.num_rows
                listed = pa.table(
                    [
                        pa.repeat(pa.scalar(task.table, pa.int32()), count),
                        pa.repeat(pa.scalar(task.side, pa.int32()), count),
                        rows[ID],
                        rows[POSITION],
                        rows[UPDATED_AT].combine_chunks().view(pa.int64()),
                    ],
                    schema=LISTED,
                )
                yield from listed.to_batches()

    return run


def _compared(
    sides: Sequence[int], function: Callable[[int, Sequence[pa.Table]], Any]
) -> ArrowFunction:
    """The function Spark runs over `LISTED`, partitioned by id: results by number of the type."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(list(batches), LISTED)
        for table in pc.unique(rows["table"]).sort().to_pylist():
            own = rows.filter(pc.equal(rows["table"], table))
            listed = [
                _places(own.filter(pc.equal(own["side"], side))) for side in range(sides[table])
            ]
            yield pickled((table, function(table, listed)))

    return run


def _places(listed: pa.Table) -> pa.Table:
    updated_at = listed[UPDATED_AT].combine_chunks().view(pa.uint64())
    return pa.table([listed[ID], listed[POSITION], updated_at], schema=PLACES)


@dataclass(frozen=True, eq=False)
class TakenPart:
    """Rows of a type that a merge writes to the target, by their place in the source."""

    table_key: str
    source: TableRows
    positions: Positions
    mixed: pa.Table | None = field(default=None, repr=False)
    """Instead of places: rows with properties of both sides."""

    @property
    def type(self) -> Any:
        """The type of the rows."""
        return self.source.type

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.positions) if self.mixed is None else self.mixed.num_rows

    def batches(
        self, columns: Sequence[str], storage_options: dict[str, str] | None
    ) -> Iterable[pa.RecordBatch]:
        """Columns of its rows."""
        parts = (
            self.source.columns_of(self.positions, columns)
            if self.mixed is None
            else [self.mixed.select(columns)]
        )
        for part in parts:
            yield from part.to_batches()

    def broken_values(self) -> int:
        """How many values break a constraint of their property."""
        if self.mixed is not None:
            return len(broken_values(self.type, self.mixed))
        wanted = {constraint.property for constraint in value_constraints(self.type)}
        if wanted & set(self.source.blob_columns):
            parts = self.source.complete(self.positions)
        else:
            columns = [name for name in self.source.columns if name in wanted]
            parts = self.source.columns_of(self.positions, columns)
        return sum(len(broken_values(self.type, part)) for part in parts)

    def write(self, place: TablePlace, storage_options: dict[str, str] | None) -> list[str]:
        """Write the rows to a place; their fragments as JSON."""
        batches = (
            batch for part in self.source.complete(self.positions) for batch in part.to_batches()
        )
        return write_rows(place, table_schema(self.type), batches, storage_options=storage_options)


def _taken_parts(merge: TypeMerge) -> Iterator[TakenPart]:
    """The rows that a merge writes, whole fragments included."""
    source = merge.sides.source
    for positions in chunked(np.sort(merge.rows.taken), PART_ROWS):
        yield TakenPart(merge.target.key, source, positions)
    if merge.rows.mixed is not None:
        yield TakenPart(merge.target.key, source, np.zeros(0, np.int64), merge.rows.mixed)


def _deletions(merge: TypeMerge) -> Deletions:
    """The rows of the target that are replaced or deleted, as offsets by fragment."""
    handle: Handle = merge.target.handle
    return {
        fragment_id: [Stretch("", 0, len(offsets), {OFFSET: offsets})]
        for fragment_id, offsets in offsets_at(handle, merge.exchanged.positions).items()
    }


# --- upkeep --------------------------------------------------------------------------------------


class SparkWorkers:
    """Runs tasks of upkeep as Spark jobs; the session starts with the first job."""

    def __init__(self, root: Root, session: SparkWhenNeeded, operation_id: str) -> None:
        self._options = root.storage_options() or None
        self._session = session
        self._runner = TaskRunner(session, operation_id, work="upkeep")

    @property
    def spread(self) -> int:
        """The number of tasks that run at a time, at least two."""
        return max(2, self._session.slots)

    def run(self, handle: Handle, tasks: Sequence[UpkeepTask]) -> list[bytes]:
        """The results of all tasks, in their order."""
        options, address, version, given = self._options, handle.uri, handle.version, list(tasks)

        def work(number: int) -> bytes:
            return run_at(address, version, given[number], options)

        return self._runner.map_workers("upkeep", _label(handle), len(given), work)


def _label(handle: Handle) -> str:
    return handle.uri.rsplit("/", 1)[-1]


@contextmanager
def spark_workers(root: Root, options: SparkOptions, operation_id: str) -> Iterator[SparkWorkers]:
    """Workers of the given or active session, else of a new one that ends with the block."""
    settings = SessionSettings.of(os.environ, master=options.master, conf=options.conf)
    with SparkWhenNeeded(options.session, settings) as session:
        yield SparkWorkers(root, session, operation_id)
