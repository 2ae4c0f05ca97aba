"""Uncommitted rows that workers write for a table, and the transactions that add them to it.

A worker writes data files into the directory of the ref that will list them. The ref need not exist
yet: a table is forked to a branch by the first write. The worker returns a JSON description of each
fragment. Until a transaction with it is committed, the files are invisible, and cleanup may remove
them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, LanceFragment, RowIdSequence, write_fragments

from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import StorageError
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.records import dataclass
from omnigraph.model.types import ROW_ADDRESS
from omnigraph.storage.failures import LIBRARY_ERRORS, count_lance, lance_errors, lance_failure
from omnigraph.storage.layout import FILE_FORMAT

_ID_ENCODING = {b"lance-encoding:compression": b"lz4"}
"""The compression of id columns, which are most of a table of edges: twice as fast as Lance's
default, and hardly larger. For longer texts it would be worse."""

SCAN_ROWS = 65_536
"""Rows per batch for reads of few columns: Lance's default is a third slower."""

FRAGMENT_ROWS_MAX = 1 << 20
FRAGMENT_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where and how workers write the rows of one table."""

    address: str
    """The address of the dataset on the ref to write to, which may not exist yet."""
    mode: Literal["overwrite", "create"] = "create"
    """`overwrite` if a dataset exists at the address; writing changes no version in either mode."""
    field_ids: tuple[int, ...] = ()
    """The field ids of the table's columns, nested ones included; empty: numbered from 0."""
    columns: tuple[str, ...] = ()
    """The order in which columns are written, which determines field ids; empty for any order."""

    @classmethod
    def of(cls, handle: LanceDataset, address: str, *, replaces: bool) -> TablePlace:
        """The place for rows of the table behind ``handle``, on the ref with this address.

        ``replaces``: the rows will replace all rows of the table.
        """
        exists = handle.uri == address
        columns = tuple(handle.schema.names)
        if replaces:
            # A replaced table gets a new schema with new field ids.
            return cls(address, "overwrite" if exists else "create", columns=columns)
        numbers = tuple(field_ids(handle.lance_schema.fields()))
        # Files for an existing table are written in mode `overwrite`, too: in mode `append` Lance
        # takes the encoding of columns from the table and not from the given schema.
        return cls(address, "overwrite" if exists else "create", numbers, columns)

    def data_file(self, name: str) -> str:
        """The address of one data file."""
        return f"{self.address}/data/{name}"


def field_ids(fields: Iterable[Any]) -> Iterable[int]:
    """The field ids of columns, nested ones included."""
    for column in fields:
        yield column.id()
        yield from field_ids(column.children())


def write_rows(
    place: TablePlace,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    storage_options: dict[str, str] | None = None,
    rows_max: int = FRAGMENT_ROWS_MAX,
) -> list[str]:
    """Write rows into uncommitted data files; returns their fragments in Lance's JSON form."""
    count_lance("stage", place.address)
    failed: list[BaseException] = []
    order = list(place.columns or schema.names)
    schema = pa.schema([_encoded(schema.field(name)) for name in order])

    def guarded() -> Iterable[pa.RecordBatch]:
        try:
            for batch in batches:
                yield pa.RecordBatch.from_arrays([batch[name] for name in order], schema=schema)
        except BaseException as error:
            # Lance would wrap the error in one of its own.
            failed.append(error)
            raise

    reader = pa.RecordBatchReader.from_batches(schema, guarded())
    try:
        written = write_fragments(
            reader,
            place.address,
            schema=schema,
            mode=place.mode,
            max_rows_per_file=rows_max,
            max_bytes_per_file=FRAGMENT_BYTES_MAX,
            data_storage_version=FILE_FORMAT,
            enable_stable_row_ids=True,
            storage_options=storage_options,
            allow_external_blob_outside_bases=True,
        )
    except LIBRARY_ERRORS as error:
        if failed:
            raise failed[0] from error
        raise lance_failure(place.address, error) from error
    assert isinstance(written, list)
    return [json.dumps(_numbered(fragment.to_json(), place.field_ids)) for fragment in written]


def _encoded(column: pa.Field) -> pa.Field:
    """The column with the encoding for writing, which the schema of the table does not have."""
    if column.name not in (ID, SRC, DST):
        return column
    return column.with_metadata({**(column.metadata or {}), **_ID_ENCODING})


def _numbered(fragment: dict[str, Any], field_ids: Sequence[int]) -> dict[str, Any]:
    """A fragment with field ids counted from 0, renumbered by those of the table."""
    if field_ids:
        for file in fragment["files"]:
            file["fields"] = [field_ids[number] for number in file["fields"]]
    return fragment


def read_written(
    place: TablePlace,
    fragment: str,
    columns: Sequence[str],
    *,
    storage_options: dict[str, str] | None = None,
) -> Iterable[pa.RecordBatch]:
    """Columns of uncommitted rows that `write_rows` wrote."""
    for address in data_files(place, [fragment]):
        with lance_errors(address, "scan"):
            reader = LanceFileReader(address, storage_options, columns=list(columns))
            yield from reader.read_all(batch_size=65_536).to_batches()


def written_columns(
    place: TablePlace, fragment: str, *, storage_options: dict[str, str] | None = None
) -> list[str]:
    """The columns of rows that `write_rows` wrote, in the order of their file."""
    (address,) = data_files(place, [fragment])
    with lance_errors(address, "scan"):
        names: list[str] = LanceFileReader(address, storage_options).metadata().schema.names
        return names


def data_files(place: TablePlace, fragments: Iterable[str]) -> list[str]:
    """The addresses of the data files of written fragments."""
    return [
        place.data_file(file["path"]) for text in fragments for file in json.loads(text)["files"]
    ]


def fragment_rows(fragment: str) -> int:
    """The number of rows of a written fragment."""
    return int(json.loads(fragment)["physical_rows"])


# --- transactions ---------------------------------------------------------------------------------


def stage_written(
    handle: LanceDataset,
    kind: Literal["append", "replace", "upsert"],
    fragments: Sequence[str],
    uuid: str,
    *,
    updated: Sequence[str] = (),
    removed: Sequence[int] = (),
) -> Transaction:
    """Append written rows, whose ids are known to be new, or replace all rows of the table by them.

    An upsert replaces the rows that were deleted in the fragments ``updated`` and ``removed``.
    """
    written = written_fragments(handle, fragments)
    operation: LanceOperation.BaseOperation
    match kind:
        case "append":
            operation = LanceOperation.Append(written)
        case "replace":
            operation = LanceOperation.Overwrite(handle.schema, written)
        case "upsert":
            operation = replacing_rows(handle, removed, _decoded(updated), written)
    return Transaction(handle.version, operation, uuid=uuid)


def replacing_rows(
    handle: LanceDataset,
    removed: Sequence[int],
    updated: list[FragmentMetadata],
    written: list[FragmentMetadata],
) -> LanceOperation.Update:
    """The operation that adds fragments and deletes rows in others."""
    return LanceOperation.Update(
        removed_fragment_ids=list(removed),
        updated_fragments=updated,
        new_fragments=written,
        fields_modified=[],
        # Every column may have changed, so no index may count the new rows as covered.
        fields_for_preserving_frag_bitmap=list(field_ids(handle.lance_schema.fields())),
        update_mode="rewrite_rows",
    )


def written_fragments(handle: LanceDataset, fragments: Sequence[str]) -> list[FragmentMetadata]:
    """Fragments that were written to the ref of a table; raises `StorageError` for missing files.

    Lance would commit a missing file without an error, and the version could not be read.
    """
    _require_readable(handle, fragments)
    return _decoded(fragments)


def copy_written(
    store: ObjectStore, described: str, source: str, target: str, mint: Callable[[], str]
) -> str:
    """Copy the files of a fragment from one ref to another; returns the new fragment as JSON.

    The copies get new names, since file names identify contents.
    """
    root = f"{store.root.uri}/"
    fragment = json.loads(described)
    for file in fragment["files"]:
        name = f"{mint().lower()}.lance"
        places = [
            TablePlace(address).data_file(each).removeprefix(root)
            for address, each in ((source, file["path"]), (target, name))
        ]
        store.copy(*places)
        file["path"] = name
    return json.dumps(fragment)


def _decoded(fragments: Sequence[str]) -> list[FragmentMetadata]:
    return [FragmentMetadata.from_json(text) for text in fragments]


def _require_readable(handle: LanceDataset, fragments: Sequence[str]) -> None:
    for address in data_files(TablePlace(handle.uri), fragments):
        try:
            LanceFileReader(address, handle._storage_options).metadata()
        except LIBRARY_ERRORS as error:
            raise StorageError(
                f"{address} was removed while the write was running", hint="repeat the write"
            ) from error


def fragment_groups(handle: LanceDataset, rows_min: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """The fragments of a table in groups of at least ``rows_min`` rows, and each group's rows."""
    group: list[int] = []
    rows = 0
    for fragment in handle.get_fragments():
        group.append(fragment.fragment_id)
        rows += fragment.physical_rows
        if rows >= rows_min:
            yield tuple(group), rows
            group, rows = [], 0
    if group:
        yield tuple(group), rows


def committed_batches(
    address: str,
    version: int,
    fragment_ids: Sequence[int],
    columns: Sequence[str],
    *,
    filter: str | None = None,
    storage_options: dict[str, str] | None = None,
    with_places: bool = False,
) -> Iterable[pa.RecordBatch]:
    """Columns of some fragments of a version, for a worker that opens the table itself.

    ``with_places`` adds the row id and the address of each row.
    """
    with lance_errors(address, "scan"):
        dataset = lance.dataset(address, version=version, storage_options=storage_options)
        wanted = set(fragment_ids)
        chosen = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
        scanner = dataset.scanner(
            columns=list(columns),
            fragments=chosen,
            filter=filter,
            batch_size=SCAN_ROWS,
            with_row_id=with_places,
            with_row_address=with_places,
        )
        yield from scanner.to_batches()


Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A range of rows in a file that a worker wrote, or of columns in memory."""

    address: str
    start: int
    rows: int
    in_memory: Mapping[str, Numbers] | None = field(default=None, repr=False, compare=False)


def write_stretches(
    place: TablePlace | None,
    rows: Mapping[str, Numbers],
    groups: Numbers,
    *,
    storage_options: dict[str, str] | None = None,
) -> dict[int, list[Stretch]]:
    """Write columns that are sorted by ``groups``; returns the ranges of each group.

    Without a place, the columns stay in memory.
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
            in_memory = rows if place is None else None
            stretch = Stretch(address, int(start), int(rows_there), in_memory)
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
        if stretch.in_memory is not None:
            chosen = slice(stretch.start, stretch.start + stretch.rows)
            for numbers, name in zip(parts, columns, strict=True):
                numbers.append(stretch.in_memory[name][chosen])
            continue
        with lance_errors(stretch.address, "scan"):
            reader = LanceFileReader(stretch.address, storage_options, columns=list(columns))
            found = reader.read_range(stretch.start, stretch.rows).to_table()
        for numbers, name in zip(parts, columns, strict=True):
            numbers.append(found[name].combine_chunks().to_numpy(zero_copy_only=False))
    return [np.concatenate([np.zeros(0, np.int64), *numbers]) for numbers in parts]


def open_version(
    address: str, version: int, storage_options: dict[str, str] | None = None
) -> LanceDataset:
    """One version of a table, for a worker."""
    with lance_errors(address):
        return lance.dataset(address, version=version, storage_options=storage_options)


DENSE = 16
"""Scanning so many rows takes as long as fetching one row."""


def rows_by_place(
    dataset: LanceDataset, row_ids: Numbers, addresses: Numbers, columns: Sequence[str]
) -> pa.Table:
    """Committed rows in the given order: fetched by row id, or by scans if they are many.

    A scan covers the range of a fragment with wanted rows, and keeps only these in memory.
    """
    order = np.argsort(addresses, kind="stable")  # fast, as they are mostly sorted
    wanted = addresses[order]
    numbers, starts = np.unique(wanted >> 32, return_index=True)
    ends = np.append(starts[1:], len(wanted))
    scans: list[tuple[list[LanceFragment], int, int]] = []
    """Fragments to scan, each with offset and number of rows."""
    small: list[LanceFragment] = []
    for number, start, end in zip(numbers.tolist(), starts, ends, strict=True):
        fragment = _fragment(dataset, number)
        if fragment.physical_rows <= SCAN_ROWS:
            small.append(fragment)
            continue
        # Scans skip deleted rows, so the first wanted row may come earlier by their number.
        first = max(0, int(wanted[start] & _OFFSET) - fragment.num_deletions)
        scans.append(([fragment], first, int(wanted[end - 1] & _OFFSET) + 1 - first))
    if small:
        scans.append((small, 0, sum(each.physical_rows for each in small)))
    if DENSE * len(addresses) < sum(rows for _, _, rows in scans):
        with lance_errors(dataset, "take"):
            return dataset._take_rows(pa.array(row_ids.astype(np.uint64)), columns=list(columns))
    found: list[pa.RecordBatch] = []
    places: list[Numbers] = []
    for fragments, offset, limit in scans:
        with lance_errors(dataset, "scan"):
            scanner = dataset.scanner(
                columns=list(columns),
                fragments=fragments,
                offset=offset,
                limit=limit,
                batch_size=SCAN_ROWS,
                with_row_address=True,
            )
            for batch in scanner.to_batches():
                own, at = _wanted(batch, wanted)
                found.append(own.select(list(columns)))
                places.append(at)
    rows = pa.Table.from_batches(found)
    at = np.empty(len(wanted), np.int64)
    at[order[np.concatenate(places)]] = np.arange(len(wanted))
    return rows if bool((at[1:] > at[:-1]).all()) else rows.take(pa.array(at))


_OFFSET = 0xFFFFFFFF
"""The bits of an address that are the offset of a row in its fragment."""


def _wanted(batch: pa.RecordBatch, wanted: Numbers) -> tuple[pa.RecordBatch, Numbers]:
    """The rows of a scan at ``wanted`` addresses, which are sorted, and their indexes in these."""
    there = batch[ROW_ADDRESS].to_numpy().astype(np.int64)
    at = np.searchsorted(wanted, there)
    is_wanted = wanted[np.minimum(at, len(wanted) - 1)] == there
    if is_wanted.all():
        return batch, at
    return batch.filter(pa.array(is_wanted)), at[is_wanted]


def with_row_ids(fragments: Sequence[str], row_ids: Numbers) -> list[str]:
    """Written fragments with ``row_ids`` assigned to their rows, in order."""
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


OFFSET = "offset"
Deletions = Mapping[int, Sequence[Stretch]]
"""By fragment: ranges whose column `offset` has the offsets of rows to delete."""


def _fragment(dataset: LanceDataset, fragment_id: int) -> LanceFragment:
    found = dataset.get_fragment(fragment_id)
    if found is None:
        raise StorageError(
            f"{dataset.uri} has no fragment {fragment_id} any more", hint="repeat the load"
        )
    return found


def delete_written(
    dataset: LanceDataset, deletions: Deletions, storage_options: dict[str, str] | None = None
) -> tuple[list[str], list[int]]:
    """The fragments after deleting some rows, and the ids of fragments without remaining rows."""
    updated: list[str] = []
    removed: list[int] = []
    for fragment_id, stretches in sorted(deletions.items()):
        (offsets,) = read_stretches(stretches, [OFFSET], storage_options=storage_options)
        fragment = _fragment(dataset, fragment_id)
        with lance_errors(dataset):
            # The public `delete_rows` converts each number again, which takes five times as long as
            # the deletion.
            left = fragment._fragment.delete_rows(offsets.tolist())
        if left is None:
            removed.append(fragment_id)
        else:
            updated.append(json.dumps(left.metadata().to_json()))
    return updated, removed
