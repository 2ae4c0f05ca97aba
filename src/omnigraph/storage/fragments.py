"""Fragments of a table version, and rows by address and by position.

A version is a list of fragments. The rows of a fragment never change: an append adds a fragment,
and a delete or an update marks rows of old fragments as deleted. Data read from a fragment can
therefore be cached for all versions and branches that contain it.

A row address is the fragment id in the upper 32 bits and the offset in its files in the lower. A
position is the place of a row in the scan order of one version, without deleted rows. For fragments
with a deleted row, Lance translates positions row by row from the start of the fragment, which
takes seconds for a hundred rows at the end of a million; here it is a binary search in the list of
deleted offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceFragment
from lance.blob import BlobType
from lance.fragment import FragmentMetadata

from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.model.types import ROW_ADDRESS
from omnigraph.storage.failures import count_lance, lance_errors, translated

FRAGMENT_SHIFT = 32
OFFSET_MASK = (1 << FRAGMENT_SHIFT) - 1


_BATCH_ROWS = 131_072
"""Large enough to make the cost per batch negligible, small enough for the CPU cache."""
_LISTS_KEPT = 256
"""How many lists of deleted rows are cached. Lance stores many deletions as a bitmap instead."""
_READ_AHEAD_BYTES = 32 << 20
"""Read-ahead of a scan; Lance's default would be gigabytes."""


def fragment_json(fragment: FragmentMetadata) -> dict[str, Any]:
    """The same as `FragmentMetadata.to_json`, which is slow: it deep-copies every value."""
    described: dict[str, Any] = replace(fragment, files=[]).to_json()
    for file in fragment.files:
        known = dict(vars(file))
        known["path"] = known.pop("_path")
        described["files"].append(known)
    return described


@dataclass(frozen=True, slots=True)
class FragmentState:
    """One fragment of one version."""

    fragment_id: int
    files: tuple[str, ...]
    """The names of its data files, which identify its rows on any branch."""
    rows: int
    """The number of rows in the files, deleted ones included."""
    deletions: str | None
    """The current deletion file; None if no row is deleted."""


def fragments_of(handle: LanceDataset) -> list[FragmentState]:
    """The fragments of a version, in scan order, from its metadata."""
    return [
        FragmentState(
            fragment.fragment_id,
            # Not the property `path`: its values are of a class created per call, which cached
            # values would keep alive.
            tuple(file._path for file in fragment.metadata.files),
            fragment.physical_rows,
            fragment.deletion_file(),
        )
        for fragment in handle.get_fragments()
    ]


def columns_of(handle: LanceDataset) -> str:
    """The columns of a version with their field ids.

    If this is equal for two versions, a name means the same column in the files of both.
    """
    return " ".join(f"{field.name()}={field.id()}" for field in handle.lance_schema.fields())


def stored_rows(
    handle: LanceDataset, fragments: Sequence[FragmentState], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """All rows of some fragments, deleted ones included, so that row offsets are fixed."""
    if not fragments:
        return  # Lance takes an empty list for all fragments
    count_lance("scan", handle.uri)
    any_deleted = any(fragment.deletions is not None for fragment in fragments)
    wanted = {fragment.fragment_id for fragment in fragments}
    chosen = [each for each in handle.get_fragments() if each.fragment_id in wanted]
    with lance_errors(handle):
        scanner = handle.scanner(
            columns=list(columns),
            fragments=chosen,
            batch_size=_BATCH_ROWS,
            io_buffer_size=_READ_AHEAD_BYTES,
            # Lance returns deleted rows only together with row ids, which are null for them.
            with_row_id=any_deleted,
            include_deleted_rows=any_deleted,
        )
        for batch in scanner.to_batches():
            yield batch.select(list(columns)) if any_deleted else batch


def remaining_offsets(handle: LanceDataset, fragment: FragmentState) -> npt.NDArray[np.int64]:
    """The offsets of the rows of a fragment that are not deleted."""
    count_lance("scan", handle.uri)
    chosen = [each for each in handle.get_fragments() if each.fragment_id == fragment.fragment_id]
    with lance_errors(handle):
        found = handle.scanner(columns=[], fragments=chosen, with_row_address=True).to_table()
    addresses = found[ROW_ADDRESS].combine_chunks().to_numpy()
    offsets: npt.NDArray[np.int64] = (addresses & np.uint64(OFFSET_MASK)).astype(np.int64)
    return offsets


def deleted_offsets(handle: LanceDataset, fragment: FragmentState) -> npt.NDArray[np.int64]:
    """The offsets of the deleted rows of a fragment, ascending.

    Read from the deletion file if it is on local disk: for a large fragment with few deleted rows
    that is much less to read than the remaining rows.
    """
    if fragment.deletions is None:
        return np.zeros(0, np.int64)
    uri, name = str(handle.uri), fragment.deletions
    # If the file cannot be read, ask Lance, which reports the problem of the table.
    with suppress(ValueError):
        found = _listed_deletions(uri, name) if name.endswith(".arrow") else _marked(uri, name)
        if found is not None:
            return found
    is_deleted = np.ones(fragment.rows, np.bool_)
    is_deleted[remaining_offsets(handle, fragment)] = False
    return np.flatnonzero(is_deleted)


@lru_cache(maxsize=_LISTS_KEPT)
def _listed_deletions(uri: str, name: str) -> npt.NDArray[np.int64] | None:
    """The offsets in a deletion file of the Arrow kind on local disk; cached by its unique name."""
    content = _deletion_file(uri, name)
    if content is None:
        return None
    (column,) = pa.ipc.open_file(content).read_all().columns
    found: npt.NDArray[np.int64] = np.sort(column.to_numpy().astype(np.int64))
    found.flags.writeable = False
    return found


def _marked(uri: str, name: str) -> npt.NDArray[np.int64] | None:
    """The offsets in a deletion file of the bitmap kind on local disk, used for many deletions."""
    content = _deletion_file(uri, name)
    if content is None:
        return None
    from pyroaring import BitMap  # imported here, since few processes read a bitmap

    return np.array(BitMap.deserialize(content).to_array(), np.int64)


def _deletion_file(uri: str, name: str) -> bytes | None:
    """The content of a deletion file; None if it is not on local disk."""
    if "://" in uri:
        return None
    own = Path(uri)
    # A branch also lists files of the ref it was forked from, mostly at the root of the table.
    root = own.parent.parent if own.parent.name == "tree" else own
    for place in (own, root):
        try:
            content = (place / name).read_bytes()
        except OSError:
            continue
        count_lance("read_deletions", uri)
        return content
    return None


Positions = npt.NDArray[np.int64]

_STEPS_MAX = 50_000
"""Up to so many steps, Lance may translate positions itself, which takes about a millisecond."""


@dataclass(frozen=True, slots=True)
class PlacedFragment:
    """A fragment, and the position of its first row."""

    state: FragmentState
    fragment: LanceFragment
    start: int
    remaining: int


def placed_fragments(handle: LanceDataset) -> Iterator[PlacedFragment]:
    """The fragments of a version in scan order."""
    start = 0
    for state, fragment in zip(fragments_of(handle), handle.get_fragments(), strict=True):
        remaining = state.rows - fragment.num_deletions
        yield PlacedFragment(state, fragment, start, remaining)
        start += remaining


def fragments_holding(
    handle: LanceDataset, positions: Positions
) -> Iterator[tuple[PlacedFragment, npt.NDArray[np.int64]]]:
    """The fragments with rows at some positions, and the indexes of these in ``positions``."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    for placed in placed_fragments(handle):
        first, last = np.searchsorted(ordered, [placed.start, placed.start + placed.remaining])
        if first < last:
            yield placed, order[first:last]


def places_of(offsets: Positions, deleted: Positions) -> Positions:
    """Offsets of rows of a fragment as places among its remaining rows."""
    places: Positions = offsets - np.searchsorted(deleted, offsets)
    return places


def offsets_of(places: Positions, deleted: Positions) -> Positions:
    """Places among the remaining rows of a fragment as offsets: the inverse of `places_of`."""
    skipped = np.searchsorted(deleted - np.arange(len(deleted)), places, side="right")
    offsets: Positions = places + skipped
    return offsets


def addresses_at(handle: LanceDataset, positions: Positions) -> list[int]:
    """The addresses of the rows at some positions: fragment in the upper half, offset below."""
    found = np.zeros(len(positions), np.uint64)
    for placed, among in fragments_holding(handle, positions):
        deleted = deleted_offsets(handle, placed.state)
        offsets = offsets_of(positions[among] - placed.start, deleted)
        found[among] = (placed.state.fragment_id << FRAGMENT_SHIFT) + offsets.astype(np.uint64)
    addresses: list[int] = found.tolist()
    return addresses


def take_rows(handle: LanceDataset, positions: Positions, columns: Sequence[str]) -> pa.Table:
    """The rows at some positions, in the order asked for."""
    names = list(columns)
    wanted, back = np.unique(positions, return_inverse=True)
    parts: list[pa.Table] = []
    taken = 0
    for placed, among in fragments_holding(handle, wanted):
        places = wanted[among] - placed.start
        if not placed.fragment.num_deletions or int(places.sum()) <= _STEPS_MAX:
            continue
        if taken < among[0]:
            parts.append(handle.take(wanted[taken : among[0]].tolist(), columns=names))
        parts.append(_take_from(handle, placed, places, names))
        taken = int(among[-1]) + 1
    if not parts:
        return handle.take(positions.tolist(), columns=names)
    if taken < len(wanted):
        parts.append(handle.take(wanted[taken:].tolist(), columns=names))
    return pa.concat_tables(parts).take(pa.array(back))


def _take_from(
    handle: LanceDataset, placed: PlacedFragment, places: Positions, names: list[str]
) -> pa.Table:
    """Rows of one fragment, given ascending and without repetitions."""
    blobs = [name for name in names if isinstance(handle.schema.field(name).type, BlobType)]
    plain = [name for name in names if name not in blobs]
    found: dict[str, pa.ChunkedArray] = {}
    fields: dict[str, pa.Field] = {}
    tables = []
    if plain:
        tables.append(placed.fragment.take(places.tolist(), columns=plain))
    if blobs:
        # The API of a single fragment does not return blob descriptors.
        addresses = ", ".join(map(str, addresses_at(handle, placed.start + places)))
        tables.append(handle.to_table(columns=blobs, filter=f"_rowaddr in ({addresses})"))
    for table in tables:
        found |= dict(zip(table.schema.names, table.columns, strict=True))
        fields |= {field.name: field for field in table.schema}
    schema = pa.schema([fields[name] for name in names])
    return pa.table([found[name] for name in names], schema=schema)


# --- rows -----------------------------------------------------------------------------------------

LOOKUP_VALUES_MAX = 2_000
"""Longer lists are found by scanning the column: a filter of that size costs more to plan."""


def batches(
    handle: LanceDataset, columns: Sequence[str], rows_max: int | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a table in batches of bounded size."""
    with lance_errors(handle, "scan"):
        yield from handle.to_batches(columns=list(columns), batch_size=rows_max)


@translated
def take(handle: LanceDataset, positions: pa.Array, columns: Sequence[str]) -> pa.Table:
    """The rows at some positions of the scan order, in the order asked for."""
    count_lance("take", handle.uri)
    return take_rows(handle, positions.to_numpy(), columns)


def _is_one_of(column: str, values: pa.Array) -> pc.Expression | str:
    """A filter for Lance: an expression, so that values are never parsed as SQL.

    Unsigned numbers, which Lance does not support in expressions, are the exception: text.
    """
    if pa.types.is_unsigned_integer(values.type):
        numbers = ", ".join(str(value) for value in values.to_pylist() if value is not None)
        return f"`{column}` IN ({numbers})" if numbers else "false"
    return pc.field(column).isin(values)


@translated
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
    """Rows whose ``column`` holds one of ``values``; correct with and without an index.

    For each column of ``narrowed_by``, rows with none of its texts may be left out.
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
    # Drop the searched column unless it was requested.
    return found if column in columns else found.drop_columns([column])


@translated
def rows_where(
    handle: LanceDataset, wanted: pc.Expression | None, columns: Sequence[str] | None
) -> pa.Table:
    """Rows that pass a filter (None: all rows), with some columns (None: all columns).

    A query that is cancelled stops between batches, since the result may be the whole table.
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
