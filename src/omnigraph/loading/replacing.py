"""The task of an upsert that writes rows: new ones, and those that differ from the committed ones.

A property that a record lacks (`records.absence`) keeps its stored value: only properties that the
record has are compared, and stored values are read only for rows that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pyarrow as pa
from lance import LanceDataset

from omnigraph.loading.check_plan import WrittenPart
from omnigraph.loading.records.absence import (
    ABSENT,
    ABSENT_FIELD,
    Absent,
    Mask,
    completed,
    is_needed,
)
from omnigraph.loading.sources import type_of
from omnigraph.loading.staging import NUMBER, PIECE
from omnigraph.loading.upsert_tasks import NEW, Stretches, UpsertJob
from omnigraph.model.arrow import DST, ID, SRC, same_values
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import TableType, table_schema
from omnigraph.storage import blobs
from omnigraph.storage.written import (
    OFFSET,
    Numbers,
    Stretch,
    open_version,
    read_stretches,
    rows_by_place,
    with_row_ids,
    write_rows,
    write_stretches,
)

_WINDOW_ROWS = 65_536
"""Rows compared at a time."""
_BLOB_WINDOW_ROWS = 1_024
"""Rows compared at a time if their stored blobs are read."""

MissingValue = tuple[int, int, str]
"""The piece and number of a record, and the required property it lacks."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The result of one task: the rows written for some records of one type."""

    table_key: str
    fragments: list[str]
    deletions: Stretches
    """By fragment of the table: the committed rows that are replaced."""
    counts: dict[str, int]
    """`records`, `inserted`, `updated`, `unchanged`, `kept` and `missing`."""
    missing: list[MissingValue]
    """The first missing values of records for new entities, up to ``missing_max`` of the job."""
    refused: list[str]
    """The ids of all such entities, which are not written."""


def replace_rows(
    job: UpsertJob, matches: Mapping[int, Sequence[Stretch]]
) -> Callable[[int], Replacement]:
    """The function that writes the new and changed rows of one part of ``job.records``."""
    return lambda number: _Replacing(job, job.records[number], matches.get(number, ())).result()


class _Replacing:
    """Writes one part of the records."""

    def __init__(self, job: UpsertJob, part: WrittenPart, matches: Sequence[Stretch]) -> None:
        self._job = job
        self._key = part.table_key
        self._type: TableType = type_of(self._key, job.reading.catalog)
        self._schema = table_schema(self._type)
        self._blobs = {prop.name for prop in self._type.properties.values() if prop.type.is_blob}
        self._part = part
        self._rows, self._absent = self._read()
        rows, row_ids, addresses = read_stretches(
            matches, ["row", "row_id", "address"], storage_options=job.options
        )
        self._row_ids = np.full(self._rows.num_rows, -1, np.int64)
        self._addresses = np.full(self._rows.num_rows, NEW, np.int64)
        self._row_ids[rows], self._addresses[rows] = row_ids, addresses
        self._keeps_ids = job.matched_by[self._key] != (ID,)
        """Whether edges were matched by their key: they keep their ids and their ends."""
        self._updated: list[Numbers] = []
        self._unchanged = 0

    def _read(self) -> tuple[pa.Table, Absent]:
        keeps_absent = self._job.reading.keeps_absent
        # Scratch columns lack the metadata that makes them blobs.
        schema = self._schema.append(ABSENT_FIELD) if keeps_absent else self._schema
        batches = [
            pa.RecordBatch.from_arrays([batch[name] for name in schema.names], schema=schema)
            for batch in self._part.batches(schema.names, self._job.options)
        ]
        rows = pa.Table.from_batches(batches, schema)
        absent = rows[ABSENT] if keeps_absent else pa.nulls(rows.num_rows, ABSENT_FIELD.type)
        return rows.select(self._schema.names), Absent(self._type, absent)

    def result(self) -> Replacement:
        """Write the rows."""
        new = np.flatnonzero(self._addresses == NEW)
        known = np.flatnonzero(self._addresses >= 0)
        # Sort by row id: reads are sequential, and runs of row ids encode compactly.
        known = known[np.argsort(self._row_ids[known], kind="stable")]  # often in order already
        missing = self._missing(new)
        refused = np.unique(np.concatenate([np.zeros(0, np.int64), *missing.values()]))
        complete = np.setdiff1d(new, refused) if len(refused) else new
        with ThreadPoolExecutor(1) as beside:
            inserting = beside.submit(self._write, self._taken(complete))
            written = self._write(self._changed(known))
            replaced = np.concatenate([np.zeros(0, np.int64), *self._updated])
            updated = with_row_ids(written, self._row_ids[replaced])
        return Replacement(
            self._key,
            [*updated, *inserting.result()],
            self._deleted(np.sort(self._addresses[replaced])),
            {
                "records": self._rows.num_rows,
                "inserted": len(new),
                "updated": len(replaced),
                "unchanged": self._unchanged,
                "kept": int(np.count_nonzero(self._absent.rows[known])),
                "missing": sum(map(len, missing.values())),
            },
            self._located(missing),
            self._rows[ID].take(pa.array(refused)).to_pylist() if len(refused) else [],
        )

    # --- required values that new entities lack ---

    def _missing(self, new: Numbers) -> dict[str, Numbers]:
        """By required property: the new rows that lack it."""
        return {
            name: new[self._absent.lacking(name)[new]]
            for name in self._absent.names
            if is_needed(self._type.properties[name])
        }

    def _located(self, missing: Mapping[str, Numbers]) -> list[MissingValue]:
        if not any(map(len, missing.values())):
            return []
        batches = self._part.batches([PIECE, NUMBER], self._job.options)
        places = pa.Table.from_batches(batches)
        pieces, numbers = (places[name].to_numpy() for name in (PIECE, NUMBER))
        found = [
            (int(pieces[row]), int(numbers[row]), name)
            for name, rows in missing.items()
            for row in rows[: self._job.missing_max].tolist()
        ]
        return sorted(found)[: self._job.missing_max]

    # --- changed rows ---

    @cached_property
    def _dataset(self) -> LanceDataset:
        """The table at the matched version."""
        address, version = self._job.versions[self._key]
        return open_version(address, version, self._job.options)

    def _taken(self, at: Numbers) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(at), _WINDOW_ROWS):
            yield from _rows_at(self._rows, at[start : start + _WINDOW_ROWS]).to_batches()

    def _changed(self, known: Numbers) -> Iterator[pa.RecordBatch]:
        """The records that differ from their committed rows; adds positions to ``_updated``."""
        # Blobs are not read for a comparison: a record that has one is always written.
        maybe = np.ones(len(known), np.bool_)
        for name in self._blobs:
            maybe &= self._absent.lacking(name)[known]
        # Primitive columns first: rows that differ there need no read of other columns.
        same = self._same(known, maybe, are_numbers=True)
        keeps_blobs = not self._blobs.isdisjoint(self._absent.names)
        step = _BLOB_WINDOW_ROWS if keeps_blobs else _WINDOW_ROWS
        for start in range(0, len(known), step):
            window = slice(start, start + step)
            at, equal = known[window], same[window]
            equal = self._same(at, equal, are_numbers=False)
            self._unchanged += int(np.count_nonzero(equal))
            at = at[~equal]
            self._updated.append(at)
            yield from self._completed(at).to_batches()

    def _same(self, at: Numbers, maybe: Mask, *, are_numbers: bool) -> Mask:
        """``maybe`` without rows that differ; compares primitive columns or all others."""
        places = np.flatnonzero(maybe)
        of = at[places]
        lacking = {name: self._absent.lacking(name)[of] for name in self._absent.names}
        names = [
            column.name
            for column in self._schema
            if column.name not in ((ID, SRC, DST) if self._keeps_ids else (ID,))
            and column.name not in self._blobs
            and pa.types.is_primitive(column.type) == are_numbers
            and not (column.name in lacking and lacking[column.name].all())
        ]
        if not names or not len(of):
            return maybe
        committed = rows_by_place(self._dataset, self._row_ids[of], self._addresses[of], names)
        own = _rows_at(self._rows.select(names), of)
        equal = [
            same_values(own[name], committed[name]) | lacking.get(name, np.bool_(False))
            for name in names
        ]
        found = np.zeros(len(at), np.bool_)
        found[places[np.logical_and.reduce(equal)]] = True
        return found

    def _completed(self, at: Numbers) -> pa.Table:
        """The records at some positions, with stored values for properties they lack."""
        rows = _rows_at(self._rows, at)
        lacking = {name: self._absent.lacking(name)[at] for name in self._absent.names}
        if self._keeps_ids:
            lacking[ID] = np.ones(len(at), np.bool_)
        lacking = {name: mask for name, mask in lacking.items() if mask.any()}
        stored: dict[str, pa.ChunkedArray] = {}
        if readable := [name for name in lacking if name not in self._blobs]:
            some = np.logical_or.reduce([lacking[name] for name in readable])
            of = at[some]
            found = rows_by_place(self._dataset, self._row_ids[of], self._addresses[of], readable)
            for name in readable:
                own = lacking[name][some]
                stored[name] = found[name] if own.all() else found[name].filter(pa.array(own))
        for name in lacking.keys() & self._blobs:
            ids = stored.get(ID, rows[ID]).filter(pa.array(lacking[name])).combine_chunks()
            stored[name] = pa.chunked_array([blobs.values(self._dataset, name, ids)])
        for name, column in stored.items():
            index = self._schema.get_field_index(name)
            value = completed(rows[name], column, lacking[name])
            rows = rows.set_column(index, self._schema.field(index), value)
        return rows

    def _write(self, batches: Iterator[pa.RecordBatch]) -> list[str]:
        place = self._job.places[self._key]
        return write_rows(place, self._schema, batches, storage_options=self._job.options)

    def _deleted(self, addresses: Numbers) -> Stretches:
        if not len(addresses):
            return {}
        return write_stretches(
            self._job.scratch_place("deletions"),
            {OFFSET: addresses & 0xFFFFFFFF},
            addresses >> 32,
            storage_options=self._job.options,
        )


def _rows_at(rows: pa.Table, at: Numbers) -> pa.Table:
    """Some rows of a table; a contiguous range is not copied."""
    if len(at) and at[-1] - at[0] == len(at) - 1 and bool((np.diff(at) == 1).all()):
        return rows.slice(int(at[0]), len(at))
    return rows.take(pa.array(at))
