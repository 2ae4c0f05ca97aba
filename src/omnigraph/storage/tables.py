"""Staging changes of one table, and reading rows of a pinned one.

Staging writes data files and returns a Lance transaction; nothing is visible, not even to Lance,
before `datasets.commit_strict`. A blob may be a reference to an external object: which ones may
be written is decided before rows come here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.model.arrow import BLOB_STORAGE, ID
from omnigraph.model.governor import current
from omnigraph.model.types import ROW_ADDRESS
from omnigraph.storage.failures import count_lance, lance_errors
from omnigraph.storage.fragments import FRAGMENT_SHIFT, OFFSET_MASK, Positions, take_rows
from omnigraph.storage.written import replacing_rows, written_fragments

P = ParamSpec("P")
T = TypeVar("T")

LOOKUP_VALUES_MAX = 2_000
"""Longer lists are answered by scanning the column: a filter of that size costs more to plan."""


def _translated(
    work: Callable[Concatenate[LanceDataset, P], T],
) -> Callable[Concatenate[LanceDataset, P], T]:
    """Give failures of Lance a type, such as a full disk or removed files."""

    @wraps(work)
    def translated(handle: LanceDataset, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with lance_errors(handle):
            return work(handle, *args, **kwargs)

    return translated


INDEXED_BYTES_MAX = 64 << 20
"""Rows up to which an upsert may look for their ids in an index. Lance then joins whole rows in a
pool of 300 MB, and fails if they do not fit. For so many of them a scan of all ids is faster."""


@_translated
def stage_append(handle: LanceDataset, rows: pa.Table, uuid: str) -> Transaction:
    """Insert rows whose ids are known to be new."""
    count_lance("stage", handle.uri)
    return appended(handle, rows, uuid)


def appended(handle: LanceDataset, rows: pa.Table, uuid: str) -> Transaction:
    """The same; uncounted, for a copy of a version on this machine."""
    transaction = write_fragments(
        rows, handle, return_transaction=True, allow_external_blob_outside_bases=True
    )
    return replace(transaction, uuid=uuid)


@_translated
def stage_upsert(handle: LanceDataset, rows: pa.Table, uuid: str) -> Transaction:
    """Insert rows or replace those with the same id; ids must be unique within ``rows``.

    Lance upserts no blobs that are references. Such rows are appended, and those they replace
    deleted in the same transaction.
    """
    if _has_references(rows):
        return stage_in_place_of(
            handle, rows, offsets_by_fragment(handle, rows[ID].combine_chunks()), uuid
        )
    count_lance("stage", handle.uri)
    transaction, _ = (
        handle.merge_insert(ID)
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .use_index(rows.nbytes <= INDEXED_BYTES_MAX)
        .execute_uncommitted(rows)
    )
    return replace(transaction, uuid=uuid)


def _has_references(rows: pa.Table) -> bool:
    columns = (
        rows[name] for name in rows.schema.names if rows.schema.field(name).type == BLOB_STORAGE
    )
    return any(pc.any(pc.is_valid(pc.struct_field(each, "uri"))).as_py() for each in columns)


def offsets_by_fragment(handle: LanceDataset, ids: pa.Array) -> dict[int, Positions]:
    """Where the rows with some ids lie, as offsets by fragment id."""
    found = rows_where_in(handle, ID, ids, [ID], with_row_address=True)
    addresses = found[ROW_ADDRESS].combine_chunks().to_numpy()
    fragments, offsets = addresses >> FRAGMENT_SHIFT, addresses & OFFSET_MASK
    return {
        int(fragment): offsets[fragments == fragment].astype(np.int64)
        for fragment in np.unique(fragments)
    }


def stage_in_place_of(
    handle: LanceDataset,
    rows: pa.Table,
    gone: Mapping[int, Positions],
    uuid: str,
    written: Sequence[str] = (),
) -> Transaction:
    """Add rows and delete others, given as offsets by fragment id, in one transaction.

    ``written`` are fragments, as JSON, that were written to the ref before.
    """
    count_lance("stage", handle.uri)
    updated, removed, added = [], [], written_fragments(handle, written)
    with lance_errors(handle):
        for fragment_id, offsets in gone.items():
            fragment = handle.get_fragment(fragment_id)
            assert fragment is not None
            left = fragment.delete_rows(offsets.tolist())
            if left is None:
                removed.append(fragment_id)
            else:
                updated.append(left)
        if rows.num_rows:
            added += write_fragments(
                rows, handle, mode="append", allow_external_blob_outside_bases=True
            )
    operation = replacing_rows(handle, removed, updated, added)
    return Transaction(handle.version, operation, uuid=uuid)


@_translated
def stage_delete(handle: LanceDataset, ids: pa.Array, uuid: str) -> Transaction:
    """Delete the rows with these ids; they must exist, since Lance would commit a no-op too."""
    count_lance("stage", handle.uri)
    keys = pa.table([ids], schema=pa.schema([handle.schema.field(ID)]))
    transaction, _ = handle.merge_insert(ID).when_matched_delete().execute_uncommitted(keys)
    return replace(transaction, uuid=uuid)


@_translated
def stage_replace(handle: LanceDataset, rows: pa.Table, uuid: str) -> Transaction:
    """Replace the whole table, with nothing if ``rows`` is empty, in one transaction."""
    count_lance("stage", handle.uri)
    fragments = []
    if rows.num_rows:
        fragments = write_fragments(
            rows, handle, mode="overwrite", allow_external_blob_outside_bases=True
        )
    operation = LanceOperation.Overwrite(handle.schema, fragments)
    return Transaction(handle.version, operation, uuid=uuid)


def stage_restore(handle: LanceDataset, version: int, uuid: str) -> Transaction:
    """Bring the content of an older version back as the next one.

    Lance never rejects a stale restore, so the caller must hold the table and check its head.
    """
    return Transaction(handle.version, LanceOperation.Restore(version), uuid=uuid)


def batches(
    handle: LanceDataset, columns: Sequence[str], rows_max: int | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a table, a bounded number at a time."""
    with lance_errors(handle, "scan"):
        yield from handle.to_batches(columns=list(columns), batch_size=rows_max)


@_translated
def take(handle: LanceDataset, positions: pa.Array, columns: Sequence[str]) -> pa.Table:
    """The rows at some positions of the scan order, in the order asked for."""
    count_lance("take", handle.uri)
    return take_rows(handle, positions.to_numpy(), columns)


def _is_one_of(column: str, values: pa.Array) -> pc.Expression | str:
    """A filter for Lance: an expression, so that no value is ever read as syntax.

    Lance cannot translate unsigned numbers in expressions, but reads them in text.
    """
    if pa.types.is_unsigned_integer(values.type):
        numbers = ", ".join(str(value) for value in values.to_pylist() if value is not None)
        return f"`{column}` IN ({numbers})" if numbers else "false"
    return pc.field(column).isin(values)


@_translated
def rows_where_in(
    handle: LanceDataset,
    column: str,
    values: pa.Array,
    columns: Sequence[str],
    *,
    narrowed_by: Mapping[str, pa.Array] | None = None,
    with_row_id: bool = False,
    with_row_address: bool = False,
) -> pa.Table:
    """Rows whose ``column`` holds one of ``values``; right with or without an index.

    Rows that hold none of the texts of ``narrowed_by`` in one of its columns may be left out.
    """
    count_lance("lookup", handle.uri)
    if len(values) <= LOOKUP_VALUES_MAX:
        wanted = _is_one_of(column, values)
        for name, texts in (narrowed_by or {}).items():
            if not isinstance(wanted, str) and len(texts) <= LOOKUP_VALUES_MAX:
                wanted &= pc.field(name).isin(texts)
        return handle.to_table(
            columns=list(columns),
            filter=wanted,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
        )
    scanned = handle.to_table(
        columns=list(dict.fromkeys([*columns, column])),
        with_row_id=with_row_id,
        with_row_address=with_row_address,
    )
    found = scanned.filter(pc.is_in(scanned[column], value_set=values))
    # The searched column is kept only if it was requested.
    return found if column in columns else found.drop_columns([column])


@_translated
def rows_where(
    handle: LanceDataset, wanted: pc.Expression | None, columns: Sequence[str] | None
) -> pa.Table:
    """Rows that pass a filter, all of them without one; without ``columns`` with all they have.

    They may be as many as the table has, so a query that reads them is stopped between batches.
    """
    count_lance("scan" if wanted is None else "lookup", handle.uri)
    scanner = handle.scanner(columns=None if columns is None else list(columns), filter=wanted)
    governor = current()
    batches = []
    held = 0
    for batch in scanner.to_batches():
        batches.append(batch)
        held = governor.hold_instead(held, held + batch.nbytes)
    governor.release(held)
    return pa.Table.from_batches(batches, scanner.projected_schema)


def adds_only(staged: Transaction) -> bool:
    """Whether a staged transaction does nothing but add rows."""
    return _added_fragments(staged) is not None


def added_fragments(staged: Transaction) -> list[str]:
    """The fragments that a transaction adds, in the JSON form of Lance."""
    return [json.dumps(each.to_json()) for each in _added_fragments(staged) or ()]


def append_of(fragments: Sequence[str], rows: int, uuid: str) -> Transaction:
    """A transaction that adds fragments which another process has written.

    It names no version yet. Raises `ValueError` unless they are plain files of the table itself and
    have as many rows.
    """
    added = [FragmentMetadata.from_json(each) for each in fragments]
    for each in added:
        if each.deletion_file is not None or any(
            file.base_id is not None or "/" in file.path or file.path.startswith(".")
            for file in each.files
        ):
            raise ValueError("a fragment names other files than its own")
    if sum(each.physical_rows for each in added) != rows:
        raise ValueError("the fragments have other rows")
    return Transaction(0, LanceOperation.Append(added), uuid=uuid)


SCANNED_ROWS_MAX = 10_000
"""So many ids are read faster than a filter for them is planned."""


def restage_new_rows(
    staged: Transaction, on: LanceDataset, newer: LanceDataset, ids: pa.Array | None, uuid: str
) -> Transaction | None:
    """The rows that ``staged`` adds to the version ``on``, as a change of ``newer``.

    None if the transaction does more than add rows, or if ``newer`` has got one of ``ids`` since;
    None for ``ids`` means that they are known to be new. Both versions are of one ref, and have the
    same columns.
    """
    added = _added_fragments(staged)
    if added is None or (ids is not None and _holds_any(_changed(on, newer), newer, ids)):
        return None
    # Row ids are given out by the commit, and those of the older version may be taken by now.
    fragments = [replace(fragment, row_id_meta=None) for fragment in added]
    return Transaction(newer.version, LanceOperation.Append(fragments), uuid=uuid)


def holds_any(table: LanceDataset, ids: pa.Array) -> bool:
    """Whether a table has a row with one of ``ids``."""
    if table.count_rows() > SCANNED_ROWS_MAX:
        return bool(rows_where_in(table, ID, ids, [ID]).num_rows)
    return _holds_any(table.get_fragments(), table, ids)


def _added_fragments(staged: Transaction) -> list[FragmentMetadata] | None:
    """The fragments of a transaction that only adds some."""
    match staged.operation:
        case LanceOperation.Append(fragments=added):
            return list(added)
        case LanceOperation.Update(
            removed_fragment_ids=[], updated_fragments=[], new_fragments=added
        ):
            return list(added)
        case _:
            return None


def _changed(on: LanceDataset, newer: LanceDataset) -> list[LanceFragment]:
    """The fragments of ``newer`` that may hold rows which ``on`` does not have.

    The rows of a fragment never change, and its id is never used again. But a restore can bring
    deleted rows back: it shows in the deletion file, which is another one or none.
    """
    known = {(each.fragment_id, each.deletion_file()) for each in on.get_fragments()}
    return [
        each
        for each in newer.get_fragments()
        if (each.fragment_id, each.deletion_file()) not in known
    ]


def _holds_any(fragments: list[LanceFragment], table: LanceDataset, ids: pa.Array) -> bool:
    if not fragments:
        return False
    count_lance("lookup", table.uri)
    is_selective = sum(each.physical_rows for each in fragments) > SCANNED_ROWS_MAX
    wanted = pc.field(ID).isin(ids) if is_selective and len(ids) <= LOOKUP_VALUES_MAX else None
    with lance_errors(table):
        found = table.scanner(
            columns=[ID], filter=wanted, fragments=fragments, use_scalar_index=False
        ).to_table()
    return bool(pc.any(pc.is_in(found[ID], value_set=ids)).as_py())
