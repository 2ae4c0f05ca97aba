"""Where rows lie in two versions of a table, and which of them both versions share.

The rows of a fragment never change, and a branch keeps the fragments it was forked with. So two
versions that list the same data files share their rows, on any branch, except for those that one of
them has marked as deleted. What is left is all that can differ, and its size is that of the changes
between the two, not that of the table. A rewrite of fragments makes it larger, never smaller.

A row is named by its position: its place in the scan order of one version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence, Set

import numpy as np
import pyarrow as pa
from lance import LanceDataset, Transaction
from lance.blob import BlobType

from omnigraph.model.arrow import ID
from omnigraph.model.records import dataclass
from omnigraph.model.types import LAST_UPDATED_AT
from omnigraph.storage.failures import lance_errors
from omnigraph.storage.fragments import (
    PlacedFragment,
    Positions,
    deleted_offsets,
    fragments_holding,
    fragments_of,
    offsets_of,
    placed_fragments,
    places_of,
    take,
)
from omnigraph.storage.transactions import offsets_by_fragment, stage_in_place_of
from omnigraph.storage.written import field_ids

NO_POSITIONS: Positions = np.zeros(0, np.int64)
NOWHERE = -1
"""The position of a row that the other version does not share."""

POSITION, UPDATED_AT = "position", "updated_at"
PLACES = pa.schema([(ID, pa.string()), (POSITION, pa.int64()), (UPDATED_AT, pa.uint64())])
"""Some rows of one version: their ids, where they lie, and when they were last written.

That is a version no older than the last change of the row; only rewritten rows have an older one.
"""

ALWAYS = np.iinfo(np.uint64).max
"""In place of the version a row was written at, where that was not read."""
_TAKEN_SHARE = 16
"""Up to one row in this many is fetched alone; of more, the whole column is read."""
_BATCH_ROWS = 65_536
_READ_AHEAD_BYTES = 32 << 20
"""Read-ahead of a scan; Lance's default would be gigabytes."""


def unshared_rows(
    handle: LanceDataset, other: LanceDataset, fragment_ids: Set[int] | None = None
) -> Iterator[pa.Table]:
    """The rows of one version that another does not share, as `PLACES`, some at a time.

    The other may have equal ones elsewhere. With ``fragment_ids``, only those of some fragments.
    """
    theirs = {state.files: state for state in fragments_of(other)}
    whole: list[PlacedFragment] = []
    few: list[Positions] = []
    for placed in placed_fragments(handle):
        if fragment_ids is not None and placed.state.fragment_id not in fragment_ids:
            continue
        twin = theirs.get(placed.state.files)
        if twin is None:
            whole.append(placed)
        elif twin.deletions != placed.state.deletions:
            mine = deleted_offsets(handle, placed.state)
            alone = np.setdiff1d(deleted_offsets(other, twin), mine, assume_unique=True)
            within = places_of(alone, mine)
            if len(within) * _TAKEN_SHARE <= placed.remaining:
                few.append(placed.start + within)
            else:
                yield from _chosen(handle, placed, within)
    yield from _taken(handle, np.concatenate([NO_POSITIONS, *few]))
    if whole:
        yield from _all_of(handle, whole)


def unshared_fragments(handle: LanceDataset, other: LanceDataset) -> list[tuple[int, int]]:
    """The fragments of a version with rows that another may not share, by id.

    Each with the most rows that these can be; known from metadata alone.
    """
    theirs = {placed.state.files: placed for placed in placed_fragments(other)}
    found = []
    for placed in placed_fragments(handle):
        twin = theirs.get(placed.state.files)
        rows = placed.remaining
        if twin is not None:
            if twin.state.deletions == placed.state.deletions:
                continue
            rows = min(rows, twin.fragment.num_deletions)
        if rows:
            found.append((placed.state.fragment_id, rows))
    return found


def added_rows(older: LanceDataset, newer: LanceDataset) -> Positions | None:
    """The rows of a version that has all of an older one and only adds fragments.

    None if it does anything else. Known from metadata alone, without reading an id.
    """
    left = {state.files: state.deletions for state in fragments_of(older)}
    found = [NO_POSITIONS]
    for placed in placed_fragments(newer):
        files = placed.state.files
        if files not in left:
            found.append(np.arange(placed.start, placed.start + placed.remaining))
        elif left.pop(files) != placed.state.deletions:
            return None
    return None if left else np.concatenate(found)


@dataclass(frozen=True, slots=True)
class WholeFragment:
    """A fragment of which another table takes over every row: its files are copied as they are."""

    address: str
    """The ref that has it."""
    description: str
    """As JSON of Lance, without what its table has given it: ids of rows, and their versions."""
    positions: Positions


WHOLE_ROWS_MIN = 8_192
"""Smaller fragments are not copied: their rows are written together."""


def whole_fragments(
    handle: LanceDataset, positions: Positions, target: LanceDataset
) -> tuple[list[WholeFragment], Positions]:
    """The fragments that lie at ``positions`` as a whole, and the positions that are left.

    None if ``target`` has other columns. A fragment that has lost rows, that lies on another ref,
    or whose table has blobs, which lie in files of their own, is left as well.
    """
    if len(positions) < WHOLE_ROWS_MIN:
        return [], positions
    if _has_blobs(handle) or _layout(handle) != _layout(target):
        return [], positions
    whole: list[WholeFragment] = []
    left = np.ones(len(positions), np.bool_)
    for placed, among in fragments_holding(handle, positions):
        described = placed.fragment.metadata.to_json()
        if (
            len(among) < max(placed.state.rows, WHOLE_ROWS_MIN)
            or described.get("overlays")
            or any(file.base_id is not None for file in placed.fragment.metadata.files)
        ):
            continue
        # A commit gives numbers to fragments that come with 0.
        kept = {"id": 0, **{name: described[name] for name in ("files", "physical_rows")}}
        whole.append(WholeFragment(handle.uri, json.dumps(kept), positions[among]))
        left[among] = False
    return whole, positions[left]


def _layout(handle: LanceDataset) -> tuple[pa.Schema, list[int]]:
    """The columns of a version, and the numbers by which its files know them."""
    return handle.schema, list(field_ids(handle.lance_schema.fields()))


def _has_blobs(handle: LanceDataset) -> bool:
    return any(isinstance(field.type, BlobType) for field in handle.schema)


def positions_in(handle: LanceDataset, positions: Positions, other: LanceDataset) -> Positions:
    """Where the rows at some positions of one version lie in another, `NOWHERE` if not shared."""
    found = np.full(len(positions), NOWHERE, np.int64)
    theirs = {placed.state.files: placed for placed in placed_fragments(other)}
    for placed, among in fragments_holding(handle, positions):
        twin = theirs.get(placed.state.files)
        if twin is None:
            continue
        mine = deleted_offsets(handle, placed.state)
        theirs_deleted = deleted_offsets(other, twin.state)
        offsets = offsets_of(positions[among] - placed.start, mine)
        now = twin.start + places_of(offsets, theirs_deleted)
        found[among] = np.where(np.isin(offsets, theirs_deleted), NOWHERE, now)
    return found


def positions_of(handle: LanceDataset, ids: pa.Array) -> Positions:
    """Where the rows with some ids lie in a version."""
    offsets = offsets_by_fragment(handle, ids)
    found = [NO_POSITIONS]
    for placed in placed_fragments(handle):
        within = offsets.get(placed.state.fragment_id)
        if within is not None:
            deleted = deleted_offsets(handle, placed.state)
            found.append(placed.start + places_of(within, deleted))
    return np.concatenate(found)


def stage_exchange(
    handle: LanceDataset, rows: pa.Table, gone: Positions, uuid: str, written: Sequence[str] = ()
) -> Transaction:
    """Put ``rows`` into a table in place of those at the positions ``gone``, in one transaction.

    So are the rows of fragments that were written to its ref. The caller knows that none of the new
    ids is left in the table then.
    """
    return stage_in_place_of(handle, rows, offsets_at(handle, gone), uuid, written)


def offsets_at(handle: LanceDataset, positions: Positions) -> dict[int, Positions]:
    """Where the rows at some positions lie, as offsets by fragment id."""
    offsets: dict[int, Positions] = {}
    for placed, among in fragments_holding(handle, positions):
        deleted = deleted_offsets(handle, placed.state)
        offsets[placed.state.fragment_id] = offsets_of(positions[among] - placed.start, deleted)
    return offsets


def _taken(handle: LanceDataset, positions: Positions) -> Iterator[pa.Table]:
    """Some rows of any fragments."""
    for first in range(0, len(positions), _BATCH_ROWS):
        part = positions[first : first + _BATCH_ROWS]
        yield _table(take(handle, pa.array(part), [ID])[ID], part)


def _chosen(handle: LanceDataset, placed: PlacedFragment, within: Positions) -> Iterator[pa.Table]:
    """Many rows of a fragment, by their places among those that remain of it, in their order."""
    first = 0
    for batch in _scanned(handle, [placed], [ID]):
        part = within[slice(*np.searchsorted(within, [first, first + batch.num_rows]))]
        yield _table(batch[ID].take(pa.array(part - first)), placed.start + part)
        first += batch.num_rows


def _all_of(handle: LanceDataset, fragments: Sequence[PlacedFragment]) -> Iterator[pa.Table]:
    starts = np.array([each.start for each in fragments])
    ends = np.cumsum([each.remaining for each in fragments])
    first = 0
    columns = [ID, LAST_UPDATED_AT] if handle.has_stable_row_ids else [ID]
    for batch in _scanned(handle, fragments, columns):
        read = np.arange(first, first + batch.num_rows)
        of = np.searchsorted(ends, read, side="right")
        positions = starts[of] + read - np.concatenate([[0], ends])[of]
        updated_at = batch[LAST_UPDATED_AT] if handle.has_stable_row_ids else None
        yield _table(batch[ID], positions, updated_at)
        first += batch.num_rows


def _scanned(
    handle: LanceDataset, fragments: Sequence[PlacedFragment], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    with lance_errors(handle, "scan"):
        yield from handle.scanner(
            columns=list(columns),
            fragments=[each.fragment for each in fragments],
            batch_size=_BATCH_ROWS,
            io_buffer_size=_READ_AHEAD_BYTES,
            scan_in_order=True,
        ).to_batches()


def _table(
    ids: pa.Array | pa.ChunkedArray, positions: Positions, updated_at: pa.Array | None = None
) -> pa.Table:
    if updated_at is None:
        updated_at = pa.array(np.full(len(positions), ALWAYS, np.uint64))
    return pa.table([ids, positions, updated_at], schema=PLACES)
