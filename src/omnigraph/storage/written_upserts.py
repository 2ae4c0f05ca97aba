"""What workers need to replace committed rows by rows they write: row ids, places, deletions.

A worker knows a committed row by two numbers. Its row id stays with the entity, so the row that
takes its place is written under the same one. Its address says where it lies in this version, in
which fragment and at which offset, and is what a deletion names.

Lists of numbers that other workers need travel as files beside the rows, a `Stretch` each. Within
one process they need not be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.effects.io_counters import count
from omnigraph.errors import StorageError
from omnigraph.storage.datasets import lance_failure
from omnigraph.storage.written import SCAN_ROWS, TablePlace, fragment_rows, write_rows

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some rows of a file that a worker wrote, or of columns that stayed in memory."""

    address: str
    start: int
    rows: int
    held: Mapping[str, Numbers] | None = field(default=None, repr=False, compare=False)


def write_stretches(
    place: TablePlace | None,
    rows: Mapping[str, Numbers],
    groups: Numbers,
    *,
    storage_options: dict[str, str] | None = None,
) -> dict[int, list[Stretch]]:
    """Write columns that come sorted by ``groups``, and say where the rows of each group lie.

    Without a place they stay where they are.
    """
    files: list[tuple[str, int]] = [("", len(groups))]
    if place is not None:
        table = pa.table(dict(rows))
        written = write_rows(
            place, table.schema, table.to_batches(), storage_options=storage_options
        )
        files = [
            (place.data_file(json.loads(text)["files"][0]["path"]), fragment_rows(text))
            for text in written
        ]
    found: dict[int, list[Stretch]] = {}
    first = 0
    for address, size in files:
        numbers, starts, counts = np.unique(
            groups[first : first + size], return_index=True, return_counts=True
        )
        for number, start, rows_there in zip(numbers, starts, counts, strict=True):
            held = rows if place is None else None
            stretch = Stretch(address, int(start), int(rows_there), held)
            found.setdefault(int(number), []).append(stretch)
        first += size
    return found


def read_stretches(
    stretches: Sequence[Stretch],
    columns: Sequence[str],
    *,
    storage_options: dict[str, str] | None = None,
) -> list[Numbers]:
    """Columns of numbers of some stretches, one after another."""
    parts: list[list[Numbers]] = [[] for _ in columns]
    for stretch in stretches:
        if stretch.held is not None:
            for numbers, name in zip(parts, columns, strict=True):
                numbers.append(stretch.held[name][stretch.start : stretch.start + stretch.rows])
            continue
        count("lance", "scan", stretch.address)
        try:
            reader = LanceFileReader(stretch.address, storage_options, columns=list(columns))
            found = reader.read_range(stretch.start, stretch.rows).to_table()
        except (OSError, ValueError) as error:
            raise lance_failure(stretch.address, error) from error
        for numbers, name in zip(parts, columns, strict=True):
            numbers.append(found[name].combine_chunks().to_numpy(zero_copy_only=False))
    return [np.concatenate([np.zeros(0, np.int64), *numbers]) for numbers in parts]


def open_version(
    address: str, version: int, storage_options: dict[str, str] | None = None
) -> LanceDataset:
    """One version of a table, for a worker."""
    try:
        return lance.dataset(address, version=version, storage_options=storage_options)
    except (OSError, ValueError) as error:
        raise lance_failure(address, error) from error


def rows_by_row_id(dataset: LanceDataset, row_ids: Numbers, columns: Sequence[str]) -> pa.Table:
    """Committed rows in the order of their row ids given."""
    count("lance", "take", dataset.uri)
    try:
        return dataset._take_rows(pa.array(row_ids.astype(np.uint64)), columns=list(columns))
    except (OSError, ValueError) as error:
        raise lance_failure(dataset, error) from error


DENSE = 16
"""A scan of so many rows is as quick as fetching one of them."""


def rows_by_place(
    dataset: LanceDataset, row_ids: Numbers, addresses: Numbers, columns: Sequence[str]
) -> pa.Table:
    """Committed rows in the order given: fetched by row id, or out of a scan if they are many."""
    wanted = set(np.unique(addresses >> 32).tolist())
    fragments = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
    if DENSE * len(addresses) < sum(each.physical_rows for each in fragments):
        return rows_by_row_id(dataset, row_ids, columns)
    count("lance", "scan", dataset.uri)
    try:
        found = dataset.scanner(
            columns=list(columns),
            fragments=fragments,
            batch_size=SCAN_ROWS,
            with_row_address=True,
        ).to_table()
    except (OSError, ValueError) as error:
        raise lance_failure(dataset, error) from error
    places = found[ROW_ADDRESS].combine_chunks().to_numpy().astype(np.int64)
    order = np.argsort(places, kind="stable")  # as good as sorted already
    at = order[np.searchsorted(places, addresses, sorter=order)]
    return found.select(list(columns)).take(pa.array(at))


def with_row_ids(fragments: Sequence[str], row_ids: Numbers) -> list[str]:
    """Written fragments whose rows go on as the entities of ``row_ids``, in their order."""
    named = []
    first = 0
    for text in fragments:
        fragment = FragmentMetadata.from_json(text)
        own = row_ids[first : first + fragment.physical_rows]
        there = pa.array(own.astype(np.uint64))
        fragment.row_id_meta = RowIdSequence(there).to_inline_metadata()
        named.append(json.dumps(fragment.to_json()))
        first += fragment.physical_rows
    return named


Deletions = Mapping[int, Sequence[Stretch]]
"""By fragment, the offsets of rows that are to go, in the column `offset`."""


def delete_written(
    dataset: LanceDataset, deletions: Deletions, storage_options: dict[str, str] | None = None
) -> tuple[list[str], list[int]]:
    """Fragments as they are without some of their rows, and those of which nothing is left."""
    updated: list[str] = []
    removed: list[int] = []
    for fragment_id, offsets in _offsets(deletions, storage_options):
        fragment = dataset.get_fragment(fragment_id)
        if fragment is None:
            raise StorageError(
                f"{dataset.uri} has no fragment {fragment_id} any more", hint="repeat the load"
            )
        try:
            # Lance's own `delete_rows` looks at each number once more, which takes five times as
            # long as the deletion.
            left = fragment._fragment.delete_rows(offsets.tolist())
        except (OSError, ValueError) as error:
            raise lance_failure(dataset, error) from error
        if left is None:
            removed.append(fragment_id)
        else:
            updated.append(json.dumps(left.metadata().to_json()))
    return updated, removed


def _offsets(
    deletions: Deletions, storage_options: dict[str, str] | None
) -> Iterator[tuple[int, Numbers]]:
    for fragment_id, stretches in sorted(deletions.items()):
        (offsets,) = read_stretches(stretches, [OFFSET], storage_options=storage_options)
        yield fragment_id, offsets


OFFSET = "offset"
