"""The driver's side of an upsert, and its state between attempts.

If the branch moves, only the tables that changed are matched again, with the scratch rows: the
input is not read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field, replace
from typing import Any

from omnigraph.commit.kernel import Capture
from omnigraph.commit.plan import ChangeSet, TableChange, WrittenRows
from omnigraph.loading.check_plan import CheckJob, ChecksPlanner, CommittedPart, Part, WrittenPart
from omnigraph.loading.edge_identity import match_columns
from omnigraph.loading.executors import RESULTS, TaskRunner, mapped, mapped_tasks, unpickled
from omnigraph.loading.reading import Reading
from omnigraph.loading.replacing import MissingValue, replace_rows
from omnigraph.loading.sources import type_of
from omnigraph.loading.staging import BufferedRows, Staged
from omnigraph.loading.upsert_tasks import (
    IDS,
    CommittedIds,
    Deleted,
    DeleteTask,
    Matches,
    Matching,
    Stretches,
    UpsertJob,
    committed_ids,
    committed_texts,
    delete_rows,
    list_ids,
    match_ids,
    match_parts,
)
from omnigraph.model.arrow import ID
from omnigraph.model.receipts import LoadedType
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import table_schema
from omnigraph.storage.written import TablePlace, fragment_groups

BROADCAST_IDS_MAX = 1_000_000
"""Up to this many records, every worker holds all their ids and matches a part of the committed
rows. Beyond, Spark partitions the ids of records and committed rows by key."""

SHARE_IDS = 1_000_000
"""Ids per partition in that case, at about 100 bytes each."""

PART_ROWS = 250_000
"""The least number of committed rows per task, if there are that many."""


def committed_parts(capture: Capture, key: str) -> list[CommittedPart]:
    """The committed rows of a type, in parts for workers."""
    handle = capture.reader.handle(key)
    entry = capture.snapshot.table(key)
    address = capture.reader.where(entry).address
    return [
        CommittedPart(key, address, entry.version, fragment_ids, rows)
        for fragment_ids, rows in fragment_groups(handle, PART_ROWS)
    ]


@dataclass(slots=True)
class _Replaced:
    """The rows written for one type, matched with one version of its table."""

    version: tuple[str, int]
    place: TablePlace
    fragments: list[str] = field(default_factory=list)
    deletions: Stretches = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    missing: list[MissingValue] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Upsert:
    """The scratch rows of a load, and the rows written for the latest captured head."""

    jobs: TaskRunner
    reading: Reading
    staged: Staged
    buffered: BufferedRows
    """Scratch rows in memory."""
    sources: Mapping[str, TablePlace]
    """The scratch place of each type, by type key."""
    place_of: Callable[[Capture, str], TablePlace]
    """The place to write rows of a type to."""
    discard: Callable[[TablePlace, Sequence[str]], None]
    """Deletes written rows that will not be committed."""
    id_prefetch: IdPrefetch
    """Ids of committed rows, read ahead for threads of this process."""
    scratch: str
    storage_options: dict[str, str]
    missing_max: int | None
    """How many missing required values each task lists; None for all."""
    _replaced: dict[str, _Replaced] = field(default_factory=dict)
    _folded: set[str] = field(default_factory=set)

    # --- match and replace ---

    def meet(self, capture: Capture) -> None:
        """Write the rows that are new or differ from those of the captured head."""
        known = {key: each.version for key, each in self._replaced.items()}
        keys = sorted(self.staged.fragments)
        moved = [key for key in keys if known.get(key) != self._version(capture, key)]
        if not moved:
            return
        for key in moved:
            self.forget(key)
        job = self._job(capture, moved)
        matches = self._match(job)
        for key in moved:
            self._replaced[key] = _Replaced(self._version(capture, key), job.places[key])
        parts = len(job.records)
        label = f"write {parts} parts of {', '.join(moved)}"
        for written in self.jobs.map_tasks("match", label, parts, replace_rows(job, matches)):
            replaced = self._replaced[written.table_key]
            replaced.fragments += written.fragments
            replaced.counts.update(written.counts)
            replaced.missing += written.missing
            replaced.refused += written.refused
            _extend(replaced.deletions, written.deletions)

    def forget(self, key: str) -> None:
        """Delete the rows written for a type."""
        known = self._replaced.pop(key, None)
        if known is not None:
            self.discard(known.place, known.fragments)

    def forget_all(self) -> None:
        """Delete all rows written."""
        for key in list(self._replaced):
            self.forget(key)

    def _version(self, capture: Capture, key: str) -> tuple[str, int]:
        entry = capture.snapshot.table(key)
        return capture.reader.where(entry).address, entry.version

    def _job(self, capture: Capture, keys: Sequence[str]) -> UpsertJob:
        committed = [
            part
            for key in keys
            if not capture.reader.is_empty(key)
            for part in committed_parts(capture, key)
        ]
        return UpsertJob(
            self.reading,
            tuple(keys),
            tuple(self._records(keys)),
            tuple(committed),
            {key: self.place_of(capture, key) for key in keys},
            {key: self._version(capture, key) for key in keys},
            {key: self._matched_by(key) for key in keys},
            None if self.jobs.uses_threads else self.scratch,
            self.missing_max,
            self.storage_options,
        )

    def _matched_by(self, key: str) -> tuple[str, ...]:
        type = type_of(key, self.reading.catalog)
        return match_columns(type, has_ids=key in self.staged.named)

    def _records(self, keys: Iterable[str]) -> list[WrittenPart]:
        return [
            WrittenPart(key, self.sources[key], each, True, self.buffered.get(each))
            for key in keys
            for each in self.staged.fragments[key]
        ]

    def _match(self, job: UpsertJob) -> Stretches:
        self._folded -= set(job.tables)
        stretches: Stretches = {}
        for found in (
            self._match_by_threads(job) if self.jobs.uses_threads else self._match_by_workers(job)
        ):
            if found.has_folded:
                self._folded.add(found.table_key)
            _extend(stretches, found.stretches)
        return stretches

    def _match_by_threads(self, job: UpsertJob) -> Iterator[Matches]:
        """Match all records of each type with parts of the committed rows, on threads."""
        for key in job.tables:
            parts = [part for part in job.committed if part.table_key == key]
            with ThreadPoolExecutor(1) as beside:
                records = beside.submit(Matching.of, job, key)

                def meet(part: CommittedPart, records: Future[Matching] = records) -> None:
                    by_id = job.matched_by[part.table_key] == (ID,)
                    # `Matching.of` runs in parallel to this read.
                    texts = self.id_prefetch.take(part) if by_id else committed_texts(part, job)
                    records.result().meet(texts)

                self.jobs.map_threads("match", parts, meet)
                yield records.result().result()

    def _match_by_workers(self, job: UpsertJob) -> Iterable[Matches]:
        parts: list[Part] = [*job.records, *job.committed]
        ids = sum(part.rows for part in parts)
        label = f"{ids} ids of {', '.join(job.tables)}"
        if sum(part.rows for part in job.records) <= BROADCAST_IDS_MAX:
            return self.jobs.map_workers("match", label, *match_parts(job))
        shares = max(self.jobs.slots, -(-ids // SHARE_IDS))

        def collect() -> list[Any]:
            listed = mapped_tasks(self.jobs.spark, len(parts), list_ids(job), IDS)
            shared = listed.repartition(shares, "table", "key")
            return mapped(shared, match_ids(job), RESULTS).collect()

        return unpickled(self.jobs.run("match", label, collect))

    # --- check ---

    def check_job(self, capture: Capture) -> CheckJob | None:
        """The keys to count to check every rule; None if no rule can be broken."""
        catalog = self.reading.catalog
        refused: dict[str, tuple[str, ...]] = {
            key: (*self.staged.refused.get(key, ()), *self._refused(key))
            for key in {*self.staged.refused, *self._replaced}
        }
        keys = {*self._replaced, *self.staged.refused}
        # A type without changed rows needs no check, unless several records have the same id.
        same = {
            key
            for key, known in self._replaced.items()
            if not known.fragments and not known.refused
        }
        written = keys - (same - self._folded)
        is_empty, named = capture.reader.is_empty, self.staged.named
        by_key = {key for key in self._replaced if self._matched_by(key) != (ID,)}
        plan = ChecksPlanner(
            catalog, "merge", written, set(), is_empty, named, self._folded, by_key
        ).plan()
        if not plan.rules:
            return None
        parts: list[Part] = []
        for key in sorted(self._replaced):
            known = self._replaced[key]
            if plan.written.get(key):
                parts += [WrittenPart(key, known.place, each) for each in known.fragments]
            if plan.records.get(key):
                parts += self._records([key])
        for key in sorted(plan.committed):
            gone = self._replaced[key].deletions if key in self._replaced else {}
            for part in committed_parts(capture, key):
                own = {number: gone[number] for number in part.fragment_ids if number in gone}
                parts.append(replace(part, gone=own))
        return CheckJob(
            plan,
            tuple(parts),
            self.reading.minting.prefix,
            self.storage_options,
            {} if self.reading.skips else {key: ids for key, ids in refused.items() if ids},
            tuple(self._records(self.staged.fragments)),
            {key: (type_of(key, catalog), self._matched_by(key)) for key in by_key},
        )

    def _refused(self, key: str) -> Sequence[str]:
        return self._replaced[key].refused if key in self._replaced else ()

    @property
    def refused(self) -> dict[str, list[str]]:
        """By type key: the ids of new entities that lack a required property."""
        return {key: known.refused for key, known in self._replaced.items() if known.refused}

    @property
    def missing(self) -> dict[str, tuple[int, list[MissingValue]]]:
        """By type key: how many required values new entities lack, and the first of these."""
        return {
            key: (known.counts["missing"], known.missing)
            for key, known in sorted(self._replaced.items())
            if known.missing
        }

    # --- what to commit ---

    def counts(self) -> dict[str, LoadedType]:
        """The counts for the receipt, by type key."""
        catalog = self.reading.catalog
        return {
            key: LoadedType(
                type_of(key, catalog).name,
                known.counts["records"],
                known.counts["inserted"],
                known.counts["updated"],
                known.counts["unchanged"],
                known.counts["kept"],
            )
            for key, known in sorted(self._replaced.items())
        }

    def changes(self) -> ChangeSet:
        """The change of each table that changes, with replaced rows marked as deleted."""
        tasks = self._delete_tasks()
        left: dict[str, list[Deleted]] = {}
        label = f"delete rows of {len({task.table_key for task in tasks})} types"
        delete = delete_rows(tasks, self.storage_options)
        for deleted in self.jobs.map_tasks("match", label, len(tasks), delete):
            left.setdefault(deleted.table_key, []).append(deleted)
        changes: dict[str, TableChange] = {}
        for key, known in sorted(self._replaced.items()):
            if not known.fragments:
                continue
            parts = left.get(key, [])
            written = WrittenRows(
                tuple(known.fragments),
                tuple(fragment for part in parts for fragment in part.updated),
                tuple(number for part in parts for number in part.removed),
                {} if self._is_forked(known) else known.deletions,
            )
            nothing = table_schema(type_of(key, self.reading.catalog)).empty_table()
            changes[key] = TableChange(key, "upsert", nothing, written=written)
        return ChangeSet(changes)

    def _is_forked(self, known: _Replaced) -> bool:
        """Whether the table is forked to the branch, so that workers can mark deletions in it."""
        return known.place.mode == "overwrite"

    def _delete_tasks(self) -> list[DeleteTask]:
        slots = self.jobs.slots
        tasks = []
        for key, known in sorted(self._replaced.items()):
            numbers = sorted(known.deletions) if self._is_forked(known) else []
            for start in range(min(slots, len(numbers))):
                own = {number: known.deletions[number] for number in numbers[start::slots]}
                tasks.append(DeleteTask(key, *known.version, own))
        return tasks


def _extend(known: Stretches, more: Stretches) -> None:
    for number, stretches in more.items():
        known.setdefault(number, []).extend(stretches)


PREFETCH_ROWS = 2_000_000
"""The most committed rows whose ids are prefetched, at about 40 bytes each."""

_Key = tuple[str, int, tuple[int, ...]]


class IdPrefetch:
    """Reads ids of committed rows ahead, up to a limit; `take` reads the other parts on demand."""

    def __init__(self, storage_options: dict[str, str] | None) -> None:
        self._options = storage_options
        self._started: dict[_Key, Future[list[CommittedIds]]] = {}

    def start(self, parts: Iterable[CommittedPart]) -> None:
        """Begin to read parts, up to `PREFETCH_ROWS` rows."""
        room = PREFETCH_ROWS
        executor = ThreadPoolExecutor(1)
        for part in parts:
            if part.rows > room:
                break
            room -= part.rows
            self._started[_key(part)] = executor.submit(committed_ids, part, self._options)
        executor.shutdown(wait=False)

    def take(self, part: CommittedPart) -> Iterable[CommittedIds]:
        """The ids of a part, which are then forgotten."""
        started = self._started.pop(_key(part), None)
        return committed_ids(part, self._options) if started is None else started.result()


def _key(part: CommittedPart) -> _Key:
    return part.address, part.version, part.fragment_ids
