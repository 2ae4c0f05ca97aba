"""An upsert, in workers.

=======  ==========================================================================================
match    the ids of records meet those of committed rows, a share of them in each worker: of records
         with one id the last one counts, and it is new or takes the place of a row
replace  each worker takes some of the records, leaves out those that change nothing, writes the
         others, and notes which committed rows they replace
delete   each worker marks the replaced rows of some fragments
=======  ==========================================================================================

Only ids and numbers pass through Spark. Rows that are replaced keep their row ids; the fragments
they lie in stay as they are, with a list of deleted rows beside them. Until all of it is committed,
nobody can see it, and every step can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.commit.records.envelope import TableType
from omnigraph.commit.unchanged import same_values
from omnigraph.model.arrow import ID
from omnigraph.pipeline.counting import CommittedPart, WrittenPart
from omnigraph.pipeline.jobs import Work
from omnigraph.pipeline.reading import Reading
from omnigraph.pipeline.sources import type_of
from omnigraph.pipeline.staging import NUMBER, PIECE, Answer, encoded_answers
from omnigraph.schema.table_schema import table_schema
from omnigraph.storage.written import TablePlace, committed_batches, read_written, write_rows
from omnigraph.storage.written_upserts import (
    OFFSET,
    ROW_ADDRESS,
    ROW_ID,
    Deletions,
    Numbers,
    Stretch,
    delete_written,
    open_version,
    read_stretches,
    rows_by_row_id,
    with_row_ids,
    write_stretches,
)

IDS = "table int, key string, part int, row int, piece int, number long, row_id long, address long"
"""An id and whose it is: a record's, by its part and place there, or a committed row's."""

NEW = -1
"""The address of a record whose id no committed row has."""
FOLDED = -2
"""The address of a record that a later one with the same id overrules."""

_NOBODY = -1
_WINDOW_ROWS = 65_536
"""Committed rows that are held against records at a time."""


@dataclass(frozen=True, slots=True)
class UpsertJob:
    """Everything the workers of an upsert are told."""

    reading: Reading
    tables: tuple[str, ...]
    """Type keys; they are numbered."""
    records: tuple[WrittenPart, ...]
    """What was read, with its places."""
    committed: tuple[CommittedPart, ...]
    places: Mapping[str, TablePlace]
    """Where new rows are written, by type key."""
    versions: Mapping[str, tuple[str, int]]
    """Address and version of each table with committed rows."""
    scratch: str
    """Where workers put numbers for each other."""
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def options(self) -> dict[str, str] | None:
        """Storage options as storage takes them."""
        return self.storage_options or None

    def aside(self, name: str) -> TablePlace:
        """The place of numbers of one kind."""
        return TablePlace(f"{self.scratch}/{name}")


# --- match ----------------------------------------------------------------------------------------


def list_ids(job: UpsertJob) -> Work:
    """The function Spark runs over numbers of parts, those of records first: their ids."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                if number < len(job.records):
                    yield from _record_ids(job, number)
                else:
                    yield from _committed_ids(job, job.committed[number - len(job.records)])

    return run


def _record_ids(job: UpsertJob, number: int) -> Iterator[pa.RecordBatch]:
    part = job.records[number]
    first = 0
    for batch in read_written(
        part.place, part.fragment, [ID, PIECE, NUMBER], storage_options=job.options
    ):
        # Ids that were minted for this load are nobody else's.
        given = pc.invert(pc.starts_with(batch[ID], job.reading.minting.prefix))
        rows = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int32))
        first += batch.num_rows
        own = pa.record_batch([batch[ID], rows, batch[PIECE], batch[NUMBER]], list("irpn"))
        own = own.filter(given)
        count = own.num_rows
        nowhere = pa.repeat(pa.scalar(_NOBODY, pa.int64()), count)
        yield _ids(
            [
                pa.repeat(pa.scalar(job.tables.index(part.table_key), pa.int32()), count),
                own["i"],
                pa.repeat(pa.scalar(number, pa.int32()), count),
                *(own["r"], own["p"], own["n"], nowhere, nowhere),
            ]
        )


def _committed_ids(job: UpsertJob, part: CommittedPart) -> Iterator[pa.RecordBatch]:
    for batch in committed_batches(
        part.address,
        part.version,
        part.fragment_ids,
        [ID],
        storage_options=job.options,
        with_places=True,
    ):
        count = batch.num_rows
        nothing = pa.repeat(pa.scalar(_NOBODY, pa.int32()), count)
        yield _ids(
            [
                pa.repeat(pa.scalar(job.tables.index(part.table_key), pa.int32()), count),
                batch[ID],
                *(nothing, nothing, nothing, nothing.cast(pa.int64())),
                batch[ROW_ID].cast(pa.int64()),
                batch[ROW_ADDRESS].cast(pa.int64()),
            ]
        )


def _ids(columns: Sequence[pa.Array]) -> pa.RecordBatch:
    names = ["table", "key", "part", "row", "piece", "number", "row_id", "address"]
    return pa.RecordBatch.from_arrays(list(columns), names=names)


def match_ids(job: UpsertJob) -> Work:
    """The function Spark runs over `IDS`, all those of one key in one worker: who meets whom.

    It answers where the matches of each part of the records lie, and how many were folded.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records, committed = _parted(batches)
        answers: list[Answer] = []
        for number in pc.unique(records["table"]).sort().to_pylist():
            own = [
                held.filter(pc.equal(held["table"], number)) if len(job.tables) > 1 else held
                for held in (records, committed)
            ]
            answers += _matched(job, job.tables[number], *own)
        if answers:
            yield encoded_answers(-1, answers)

    return run


def _parted(batches: Iterator[pa.RecordBatch]) -> tuple[pa.Table, pa.Table]:
    """The ids of records and those of committed rows; most batches have one kind only."""
    records: list[pa.RecordBatch] = []
    committed: list[pa.RecordBatch] = []
    for batch in batches:
        is_record = pc.greater(batch["part"], _NOBODY)
        count = pc.sum(is_record).as_py() or 0
        if count == batch.num_rows:
            records.append(batch)
        elif not count:
            committed.append(batch)
        else:
            records.append(batch.filter(is_record))
            committed.append(batch.filter(pc.invert(is_record)))
    found = [pa.Table.from_batches(each, _IDS_SCHEMA) for each in (records, committed)]
    return found[0], found[1]


_IDS_SCHEMA = pa.schema(
    [
        ("table", pa.int32()),
        ("key", pa.string()),
        ("part", pa.int32()),
        ("row", pa.int32()),
        ("piece", pa.int32()),
        ("number", pa.int64()),
        ("row_id", pa.int64()),
        ("address", pa.int64()),
    ]
)


def _matched(
    job: UpsertJob, table_key: str, records: pa.Table, committed: pa.Table
) -> Iterator[Answer]:
    keys = records["key"].combine_chunks().dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((_numbers(records, "number"), _numbers(records, "piece")))
    last = np.zeros(len(keys.dictionary), np.int64)
    last[codes[order]] = order
    is_last = last[codes] == np.arange(len(codes))
    row_ids = np.full(len(keys.dictionary), _NOBODY, np.int64)
    addresses = np.full(len(keys.dictionary), NEW, np.int64)
    # Looked up among the keys of the records, which are mostly the fewer.
    met = pc.index_in(committed["key"], value_set=keys.dictionary).combine_chunks()
    at = np.flatnonzero(met.is_valid().to_numpy(zero_copy_only=False))
    by_key = met.drop_null().to_numpy(zero_copy_only=False)
    row_ids[by_key] = _numbers(committed, "row_id")[at]
    addresses[by_key] = _numbers(committed, "address")[at]
    row_ids, addresses = row_ids[codes], np.where(is_last, addresses[codes], FOLDED)
    parts, rows = _numbers(records, "part"), _numbers(records, "row")
    by_part = np.lexsort((rows, parts))
    matches = pa.table(
        {
            "row": rows[by_part].astype(np.int64),
            "row_id": row_ids[by_part],
            "address": addresses[by_part],
        }
    )
    place = job.aside("matches")
    stretches = write_stretches(place, matches, parts[by_part], storage_options=job.options)
    for part, where in stretches.items():
        yield Answer("matches", {"part": part, "stretches": encoded_stretches(where)})
    folded = int(np.count_nonzero(~is_last))
    if folded:
        yield Answer("folded", {"table": table_key, "records": folded})


def _numbers(rows: pa.Table, column: str) -> Numbers:
    numbers: Numbers = rows[column].combine_chunks().to_numpy(zero_copy_only=False)
    return numbers


# --- replace --------------------------------------------------------------------------------------


def replace_rows(job: UpsertJob, matches: Mapping[int, Sequence[Stretch]]) -> Work:
    """The function Spark runs over numbers of ``job.records``: write what is new or differs."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                replacing = _Replacing(job, job.records[number], matches.get(number, ()))
                yield encoded_answers(number, list(replacing.answers()))

    return run


class _Replacing:
    """One part of the records, on its way into the table."""

    def __init__(self, job: UpsertJob, part: WrittenPart, matches: Sequence[Stretch]) -> None:
        self._job = job
        self._key = part.table_key
        self._type: TableType = type_of(self._key, job.reading.catalog)
        self._schema = table_schema(self._type)
        self._rows = self._read(part)
        rows, row_ids, addresses = read_stretches(
            matches, ["row", "row_id", "address"], storage_options=job.options
        )
        self._row_ids = np.full(self._rows.num_rows, _NOBODY, np.int64)
        self._addresses = np.full(self._rows.num_rows, NEW, np.int64)
        self._row_ids[rows], self._addresses[rows] = row_ids, addresses
        self._updated: list[Numbers] = []
        self._unchanged = 0

    def _read(self, part: WrittenPart) -> pa.Table:
        names = self._schema.names
        batches = [
            # Aside, columns lie without what makes blobs of them.
            pa.RecordBatch.from_arrays([batch[name] for name in names], schema=self._schema)
            for batch in read_written(
                part.place, part.fragment, names, storage_options=self._job.options
            )
        ]
        return pa.Table.from_batches(batches, self._schema)

    def answers(self) -> Iterator[Answer]:
        """Write, and say what was written."""
        new = np.flatnonzero(self._addresses == NEW)
        known = np.flatnonzero(self._addresses >= 0)
        # Neighbours in the table are read together, and a run of row ids takes little room.
        known = known[np.argsort(self._row_ids[known])]
        with ThreadPoolExecutor(1) as beside:
            inserting = beside.submit(self._write, self._taken(new))
            updated = self._write(self._changed(known))
        inserted = inserting.result()
        replaced = np.concatenate([np.zeros(0, np.int64), *self._updated])
        for fragment in (*with_row_ids(updated, self._row_ids[replaced]), *inserted):
            yield Answer("fragment", {"table": self._key, "fragment": fragment})
        yield from self._deleted(np.sort(self._addresses[replaced]))
        yield Answer(
            "loaded",
            {
                "table": self._key,
                "records": self._rows.num_rows,
                "inserted": len(new),
                "updated": len(replaced),
                "unchanged": self._unchanged,
            },
        )

    def _taken(self, at: Numbers) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(at), _WINDOW_ROWS):
            rows = self._rows.take(pa.array(at[start : start + _WINDOW_ROWS]))
            yield from rows.to_batches()

    def _changed(self, known: Numbers) -> Iterator[pa.RecordBatch]:
        """The records that differ from the committed rows they meet, noted in ``_updated``."""
        # Bytes of blobs are not read to compare them: a type that has some is always written.
        has_blobs = any(prop.type.is_blob for prop in self._type.properties.values())
        address, version = self._job.versions[self._key]
        is_known = len(known) and not has_blobs
        dataset = open_version(address, version, self._job.options) if is_known else None
        for start in range(0, len(known), _WINDOW_ROWS):
            at = known[start : start + _WINDOW_ROWS]
            rows = self._rows.take(pa.array(at))
            if dataset is not None:
                same = self._same(dataset, rows, self._row_ids[at])
                self._unchanged += int(np.count_nonzero(same))
                at, rows = at[~same], rows.filter(pa.array(~same))
            self._updated.append(at)
            yield from rows.to_batches()

    def _same(
        self, dataset: LanceDataset, rows: pa.Table, row_ids: Numbers
    ) -> npt.NDArray[np.bool_]:
        """Which rows are those that have their row ids already."""
        same = np.arange(rows.num_rows)
        # Numbers first: where one of them differs, the other columns need not be fetched.
        for is_small in (True, False):
            names = [
                field.name
                for field in self._schema
                if field.name != ID and pa.types.is_primitive(field.type) == is_small
            ]
            if names and len(same):
                committed = rows_by_row_id(dataset, row_ids[same], names)
                own = rows.select(names).take(pa.array(same))
                equal = [same_values(own[name], committed[name]) for name in names]
                same = same[np.logical_and.reduce(equal)]
        found = np.zeros(rows.num_rows, np.bool_)
        found[same] = True
        return found

    def _write(self, batches: Iterator[pa.RecordBatch]) -> list[str]:
        place = self._job.places[self._key]
        return write_rows(place, self._schema, batches, storage_options=self._job.options)

    def _deleted(self, addresses: Numbers) -> Iterator[Answer]:
        if not len(addresses):
            return
        offsets = pa.table({OFFSET: addresses & 0xFFFFFFFF})
        stretches = write_stretches(
            self._job.aside("deletions"),
            offsets,
            addresses >> 32,
            storage_options=self._job.options,
        )
        for fragment_id, where in stretches.items():
            yield Answer(
                "deletions",
                {
                    "table": self._key,
                    "fragment": fragment_id,
                    "stretches": encoded_stretches(where),
                },
            )


# --- delete ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Some fragments of a table, and what is to be deleted of them."""

    table_key: str
    address: str
    version: int
    deletions: Deletions


def delete_rows(tasks: Sequence[DeleteTask], storage_options: dict[str, str]) -> Work:
    """The function Spark runs over the numbers of tasks."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        options = storage_options or None
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = tasks[number]
                dataset = open_version(task.address, task.version, options)
                updated, removed = delete_written(dataset, task.deletions, options)
                left = {"table": task.table_key, "updated": updated, "removed": removed}
                yield encoded_answers(number, [Answer("left", left)])

    return run


# --- numbers on their way to the driver -----------------------------------------------------------


def encoded_stretches(stretches: Sequence[Stretch]) -> list[list[str | int]]:
    """Stretches as JSON."""
    return [[each.address, each.start, each.rows] for each in stretches]


def decoded_stretches(payload: Sequence[Sequence[str | int]]) -> list[Stretch]:
    """The opposite."""
    return [Stretch(str(address), int(start), int(rows)) for address, start, rows in payload]
