"""The tasks of an upsert.

=======  ==========================================================================================
match    joins the ids of records with those of committed rows; of several records with the same
         id, the last one wins
replace  each task writes the new and changed rows among some records, with stored values for
         absent properties, and lists the committed rows that they replace
delete   each task marks the replaced rows of some fragments as deleted
=======  ==========================================================================================

Only ids and numbers pass through Spark. New rows keep the row ids of the rows they replace, whose
fragments get a deletion file. Nothing is visible before the commit, so every task can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.evaluation import Prints, fingerprints
from omnigraph.loading.check_plan import CommittedPart, WrittenPart
from omnigraph.loading.edge_identity import match_texts
from omnigraph.loading.executors import ArrowFunction, pickled, task_numbers
from omnigraph.loading.reading import Reading
from omnigraph.loading.sources import type_of
from omnigraph.loading.staging import NUMBER, PIECE
from omnigraph.model.arrow import ID
from omnigraph.model.records import dataclass
from omnigraph.model.types import ROW_ADDRESS, ROW_ID
from omnigraph.storage.written import (
    Deletions,
    Numbers,
    Stretch,
    TablePlace,
    committed_batches,
    delete_written,
    open_version,
    write_stretches,
)

NEW = -1
"""Instead of an address: no committed row has the id of this record."""
FOLDED = -2
"""Instead of an address: a later record with the same id replaces this one."""

_ABSENT = -1
"""In `IDS` and row ids, for columns that do not apply: not a record, or no committed row."""


@dataclass(frozen=True, slots=True)
class UpsertJob:
    """The arguments of the tasks of an upsert."""

    reading: Reading
    tables: tuple[str, ...]
    """Type keys; `IDS` refers to them by index."""
    records: tuple[WrittenPart, ...]
    """The scratch rows, with the places of their records."""
    committed: tuple[CommittedPart, ...]
    places: Mapping[str, TablePlace]
    """Where new rows are written, by type key."""
    versions: Mapping[str, tuple[str, int]]
    """Address and version of each table with committed rows."""
    matched_by: Mapping[str, tuple[str, ...]]
    """By type key: the columns by which rows are matched, which are the id or an edge's key."""
    scratch: str | None
    """Where workers exchange arrays of numbers; None for tasks in this process."""
    missing_max: int | None = None
    """Records without a required value that each task names; None for all of them."""
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def options(self) -> dict[str, str] | None:
        """The storage options; None if there are none."""
        return self.storage_options or None

    def texts(self, table_key: str, rows: pa.RecordBatch) -> pa.StringArray:
        """The text that each row of a type is matched by."""
        columns = self.matched_by[table_key]
        if columns == (ID,):
            return rows[ID]
        return match_texts(type_of(table_key, self.reading.catalog), columns, rows)

    def scratch_place(self, name: str) -> TablePlace | None:
        """The scratch place for arrays of one kind."""
        return None if self.scratch is None else TablePlace(f"{self.scratch}/{name}")


# --- match ----------------------------------------------------------------------------------------

_SLOTS_PER_TEXT = 16
_SLOT_BITS_MAX = 26


class WantedTexts:
    """A set of texts to find in large columns; safe to share between threads.

    Most texts of a column are not in the set. Fingerprints exclude them a whole column at a time,
    without a hash table; only texts with equal fingerprints are compared.
    """

    def __init__(self, texts: pa.StringArray) -> None:
        self._texts = texts
        prints = fingerprints(texts)
        self._order = np.argsort(prints)
        self._prints = prints[self._order]
        self.are_apart = not bool((self._prints[1:] == self._prints[:-1]).any())
        """Whether all fingerprints are distinct, which implies that all texts are."""
        bits = min((_SLOTS_PER_TEXT * len(texts) + 1).bit_length(), _SLOT_BITS_MAX)
        self._shift = np.uint64(64 - bits)
        self._slots = np.zeros(1 << bits, np.bool_)
        self._slots[prints >> self._shift] = True

    def __len__(self) -> int:
        return len(self._texts)

    def among(self, texts: pa.StringArray, prints: Prints) -> tuple[Numbers, Numbers]:
        """Positions of wanted texts in ``texts``, and their positions in the set."""
        at = np.flatnonzero(self._slots[prints >> self._shift])
        at = at[np.argsort(prints[at])]  # `searchsorted` is several times faster in order
        found = np.searchsorted(self._prints, prints[at])
        found = np.minimum(found, len(self._prints) - 1)
        is_like = self._prints[found] == prints[at]
        at, found = at[is_like], self._order[found[is_like]]
        alike = texts.take(pa.array(at))
        if self.are_apart:
            is_same = pc.equal(alike, self._texts.take(pa.array(found)))
        else:
            numbers = pc.index_in(alike, value_set=self._texts)
            is_same = numbers.is_valid()
            found = numbers.fill_null(0).to_numpy().astype(np.int64)
        chosen = is_same.to_numpy(zero_copy_only=False)
        return at[chosen], found[chosen]


def list_ids(job: UpsertJob) -> ArrowFunction:
    """The function Spark runs over numbers of parts, records first, then committed rows: `IDS`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in task_numbers(batches):
            if number < len(job.records):
                yield from _listed_records(job, number)
            else:
                yield from _listed_committed(job, job.committed[number - len(job.records)])

    return run


def _listed_records(job: UpsertJob, number: int) -> Iterator[pa.RecordBatch]:
    table = job.tables.index(job.records[number].table_key)
    for batch in _record_ids(job, number):
        count = batch.num_rows
        absent = pa.repeat(pa.scalar(_ABSENT, pa.int64()), count)
        tables = pa.repeat(pa.scalar(table, pa.int32()), count)
        key, *places = batch.columns
        yield _ids([tables, key, *places, absent, absent])


def _listed_committed(job: UpsertJob, part: CommittedPart) -> Iterator[pa.RecordBatch]:
    for batch in _committed_batches(part, job):
        count = batch.num_rows
        absent = pa.repeat(pa.scalar(_ABSENT, pa.int32()), count)
        yield _ids(
            [
                pa.repeat(pa.scalar(job.tables.index(part.table_key), pa.int32()), count),
                job.texts(part.table_key, batch),
                *(absent, absent, absent, absent.cast(pa.int64())),
                batch[ROW_ID].cast(pa.int64()),
                batch[ROW_ADDRESS].cast(pa.int64()),
            ]
        )


def _record_ids(job: UpsertJob, number: int) -> Iterator[pa.RecordBatch]:
    """The ids and places of the records of a part, without minted ids."""
    first = 0
    key = job.records[number].table_key
    by_id = job.matched_by[key] == (ID,)
    for batch in job.records[number].batches([*job.matched_by[key], PIECE, NUMBER], job.options):
        parts = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
        rows = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int32))
        first += batch.num_rows
        texts = job.texts(key, batch)
        columns = [texts, parts, rows, batch[PIECE], batch[NUMBER]]
        own = pa.RecordBatch.from_arrays(columns, schema=_RECORDS_SCHEMA)
        # Ids minted for this load match no committed rows, nor do keys with a null member.
        prefix = job.reading.minting.prefix
        is_new = pc.starts_with(texts, prefix) if by_id else texts.is_null()
        yield own.filter(pc.invert(is_new)) if pc.any(is_new).as_py() else own


def _committed_batches(part: CommittedPart, job: UpsertJob) -> Iterable[pa.RecordBatch]:
    return _with_places(part, job.matched_by[part.table_key], job.options)


def _with_places(
    part: CommittedPart, columns: Sequence[str], storage_options: dict[str, str] | None
) -> Iterable[pa.RecordBatch]:
    return committed_batches(
        part.address,
        part.version,
        part.fragment_ids,
        list(columns),
        storage_options=storage_options,
        with_places=True,
    )


def _ids(columns: Sequence[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), schema=IDS)


def match_ids(job: UpsertJob) -> ArrowFunction:
    """The function Spark runs over `IDS`, partitioned by key: the `Matches` of each type."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records, committed = _parted(batches)
        for number in pc.unique(records["table"]).sort().to_pylist():
            own = [
                ids.filter(pc.equal(ids["table"], number)) if len(job.tables) > 1 else ids
                for ids in (records, committed)
            ]
            matching = Matching(job, job.tables[number], own[0])
            matching.meet(
                CommittedIds.of(batch["key"], batch["row_id"], batch["address"])
                for batch in own[1].to_batches()
            )
            yield pickled(matching.result())

    return run


def _parted(batches: Iterator[pa.RecordBatch]) -> tuple[pa.Table, pa.Table]:
    """The ids of records and those of committed rows."""
    records: list[pa.RecordBatch] = []
    committed: list[pa.RecordBatch] = []
    for batch in batches:
        is_record = pc.greater(batch["part"], _ABSENT)
        count = pc.sum(is_record).as_py() or 0
        if count == batch.num_rows:  # most batches have one kind only
            records.append(batch)
        elif not count:
            committed.append(batch)
        else:
            records.append(batch.filter(is_record))
            committed.append(batch.filter(pc.invert(is_record)))
    found = [pa.Table.from_batches(each, IDS) for each in (records, committed)]
    return found[0], found[1]


_RECORDS_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("part", pa.int32()),
        ("row", pa.int32()),
        ("piece", pa.int32()),
        ("number", pa.int64()),
    ]
)

IDS = pa.schema(
    [("table", pa.int32()), *_RECORDS_SCHEMA, ("row_id", pa.int64()), ("address", pa.int64())]
)
"""Ids of records (with part, row, piece and number) and of committed rows (row_id and address)."""


@dataclass(frozen=True, slots=True)
class CommittedIds:
    """Ids of committed rows, with row ids and addresses."""

    ids: pa.StringArray
    prints: Prints
    row_ids: npt.NDArray[Any]
    addresses: npt.NDArray[Any]

    @classmethod
    def of(cls, ids: pa.StringArray, row_ids: pa.Array, addresses: pa.Array) -> CommittedIds:
        """Compute the fingerprints."""
        return cls(ids, fingerprints(ids), row_ids.to_numpy(), addresses.to_numpy())


def committed_ids(
    part: CommittedPart, storage_options: dict[str, str] | None
) -> list[CommittedIds]:
    """The ids of a part of the committed rows."""
    return [
        CommittedIds.of(batch[ID], batch[ROW_ID], batch[ROW_ADDRESS])
        for batch in _with_places(part, [ID], storage_options)
    ]


def committed_texts(part: CommittedPart, job: UpsertJob) -> list[CommittedIds]:
    """`committed_ids` for rows that are matched by id or by key."""
    return [
        CommittedIds.of(job.texts(part.table_key, batch), batch[ROW_ID], batch[ROW_ADDRESS])
        for batch in _committed_batches(part, job)
    ]


def match_parts(job: UpsertJob) -> tuple[int, Callable[[int], Matches]]:
    """The number of tasks and their function, if each worker can hold all records of a type.

    A task matches all records of a type with one part of its committed rows. A type without
    committed rows gets one task, too.
    """
    bare = sorted(set(job.tables) - {part.table_key for part in job.committed})

    def run(number: int) -> Matches:
        if number >= len(job.committed):
            return Matching.of(job, bare[number - len(job.committed)]).result()
        part = job.committed[number]
        matching = Matching.of(job, part.table_key)
        matching.meet(committed_texts(part, job))
        return matching.result()

    return len(job.committed) + len(bare), run


Stretches = dict[int, list[Stretch]]


@dataclass(frozen=True, slots=True)
class Matches:
    """The committed rows that match the records of one type."""

    table_key: str
    stretches: Stretches
    """By part of the records: where positions, row ids and addresses are stored."""
    has_folded: bool
    """Whether several records have the same id."""


class Matching:
    """Matches the records of one type with committed rows of the same ids."""

    def __init__(self, job: UpsertJob, table_key: str, records: pa.Table) -> None:
        self._job = job
        self._table_key = table_key
        self._parts, self._rows = _numbers(records, "part"), _numbers(records, "row")
        keys = records["key"].combine_chunks()
        self._wanted = WantedTexts(keys)
        self._codes: Numbers = np.arange(len(keys))
        if not self._wanted.are_apart:
            encoded = keys.dictionary_encode()
            self._wanted = WantedTexts(encoded.dictionary)
            self._codes = encoded.indices.to_numpy(zero_copy_only=False)
        count = len(self._wanted)
        self._is_last = np.ones(len(self._codes), np.bool_)
        if count < len(self._codes):
            order = np.lexsort((_numbers(records, "number"), _numbers(records, "piece")))
            last = np.zeros(count, np.int64)
            last[self._codes[order]] = order
            self._is_last = last[self._codes] == np.arange(len(self._codes))
        self._row_ids = np.full(count, _ABSENT, np.int64)
        self._addresses = np.full(count, NEW, np.int64)

    @classmethod
    def of(cls, job: UpsertJob, table_key: str) -> Matching:
        """Read the records of a type."""
        parts = [n for n, part in enumerate(job.records) if part.table_key == table_key]
        listed = [batch for number in parts for batch in _record_ids(job, number)]
        return cls(job, table_key, pa.Table.from_batches(listed, _RECORDS_SCHEMA))

    def meet(self, committed: Iterable[CommittedIds]) -> None:
        """Match the records with some committed rows, whose ids are distinct.

        Several threads may call this, each with other committed rows.
        """
        for each in committed:
            at, codes = self._wanted.among(each.ids, each.prints)
            self._row_ids[codes] = each.row_ids[at]
            self._addresses[codes] = each.addresses[at]

    def result(self) -> Matches:
        """The matches of each part; stores their arrays."""
        addresses = np.where(self._is_last, self._addresses[self._codes], FOLDED)
        chosen = np.flatnonzero(addresses != NEW)
        chosen = chosen[np.argsort(self._parts[chosen], kind="stable")]
        stretches: Stretches = {}
        if len(chosen):
            matches: dict[str, Numbers] = {
                "row": self._rows[chosen].astype(np.int64),
                "row_id": self._row_ids[self._codes[chosen]],
                "address": addresses[chosen],
            }
            place, parts = self._job.scratch_place("matches"), self._parts[chosen]
            stretches = write_stretches(place, matches, parts, storage_options=self._job.options)
        return Matches(self._table_key, stretches, not bool(self._is_last.all()))


def _numbers(rows: pa.Table, column: str) -> Numbers:
    numbers: Numbers = rows[column].combine_chunks().to_numpy(zero_copy_only=False)
    return numbers


# --- delete ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Some fragments of a table, and the rows to delete in them."""

    table_key: str
    address: str
    version: int
    deletions: Deletions


@dataclass(frozen=True, slots=True)
class Deleted:
    """The fragments of a table after rows in them were deleted."""

    table_key: str
    updated: list[str]
    removed: list[int]


def delete_rows(
    tasks: Sequence[DeleteTask], storage_options: dict[str, str]
) -> Callable[[int], Deleted]:
    """The function that marks the rows of one task as deleted."""

    def run(number: int) -> Deleted:
        task, options = tasks[number], storage_options or None
        dataset = open_version(task.address, task.version, options)
        return Deleted(task.table_key, *delete_written(dataset, task.deletions, options))

    return run
