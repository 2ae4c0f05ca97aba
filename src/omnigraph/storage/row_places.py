"""Comparing two versions of a table by position: which rows they share, and which they do not.

The rows of a fragment never change, and a branch keeps the fragments it was forked with. So two
versions that list the same data files share their rows, on any branch, except for rows that one of
them has deleted. Only unshared rows can differ: their number depends on the changes between the
versions, not on the size of the table. Rewriting fragments makes more rows unshared, never fewer.

Rows are identified by position, which is the place in the scan order of one version.
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
"""Rows of one version: id, position, and the version in which the row was last written.

That version is not older than the last change of the row, except for rows of rewritten fragments.
"""

ALWAYS = np.iinfo(np.uint64).max
"""Stands for the version a row was written in, if that was not read."""
_TAKEN_SHARE = 16
"""Up to one row in this many is fetched by itself; for more, the whole column is read."""
_BATCH_ROWS = 65_536
_READ_AHEAD_BYTES = 32 << 20
"""Read-ahead of a scan; Lance's default would be gigabytes."""


def unshared_rows(
    handle: LanceDataset, other: LanceDataset, fragment_ids: Set[int] | None = None
) -> Iterator[pa.Table]:
    """The rows of one version that another does not share, as tables of `PLACES`.

    The other may have equal rows elsewhere. With ``fragment_ids``, only rows of these fragments.
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
    """The ids of fragments with rows that another version may not share, from metadata alone.

    Each with the largest number of such rows.
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
    """The positions of the rows added since an older version, if fragments were only added.

    None if anything else changed. Reads metadata only.
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
    """A fragment of which another table takes over every row: its files are copied unchanged."""

    address: str
    """The address of its ref."""
    description: str
    """Lance's JSON form, without row ids and row versions, which its table assigned."""
    positions: Positions


WHOLE_ROWS_MIN = 8_192
"""Smaller fragments are not copied: their rows are written with others."""


def whole_fragments(
    handle: LanceDataset, positions: Positions, target: LanceDataset
) -> tuple[list[WholeFragment], Positions]:
    """The fragments all of whose rows are at ``positions``, and the other positions.

    No fragments if ``target`` has other columns or the table has blobs, which are in separate
    files. Fragments with deleted rows or on another ref are not returned either.
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
        # A commit assigns ids to fragments with the id 0.
        kept = {"id": 0, **{name: described[name] for name in ("files", "physical_rows")}}
        whole.append(WholeFragment(handle.uri, json.dumps(kept), positions[among]))
        left[among] = False
    return whole, positions[left]


def _layout(handle: LanceDataset) -> tuple[pa.Schema, list[int]]:
    """The columns of a version, and their field ids."""
    return handle.schema, list(field_ids(handle.lance_schema.fields()))


def _has_blobs(handle: LanceDataset) -> bool:
    return any(isinstance(field.type, BlobType) for field in handle.schema)


def positions_in(handle: LanceDataset, positions: Positions, other: LanceDataset) -> Positions:
    """The positions in another version of rows of one version; `NOWHERE` for unshared rows."""
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
    """The positions of the rows with some ids."""
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
    """Delete the rows at the positions ``gone`` and add ``rows`` in one transaction.

    ``written`` are fragments written to the ref before, which are added too. The caller makes sure
    that the remaining rows have none of the new ids.
    """
    return stage_in_place_of(handle, rows, offsets_at(handle, gone), uuid, written)


def offsets_at(handle: LanceDataset, positions: Positions) -> dict[int, Positions]:
    """By fragment id: the offsets of the rows at some positions."""
    offsets: dict[int, Positions] = {}
    for placed, among in fragments_holding(handle, positions):
        deleted = deleted_offsets(handle, placed.state)
        offsets[placed.state.fragment_id] = offsets_of(positions[among] - placed.start, deleted)
    return offsets


def _taken(handle: LanceDataset, positions: Positions) -> Iterator[pa.Table]:
    """Some rows, fetched one by one from any fragments."""
    for first in range(0, len(positions), _BATCH_ROWS):
        part = positions[first : first + _BATCH_ROWS]
        yield _table(take(handle, pa.array(part), [ID])[ID], part)


def _chosen(handle: LanceDataset, placed: PlacedFragment, within: Positions) -> Iterator[pa.Table]:
    """Many rows of a fragment, by their places among its remaining rows, in order."""
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
