"""Where rows lie in two versions of a table, and which of them both versions share.

The rows of a fragment never change, and a branch keeps the fragments it was forked with. So two
versions that list the same data files share their rows, on any branch, except for those that one of
them has marked as deleted. What is left is all that can differ, and its size is that of the changes
between the two, not that of the table. A rewrite of fragments makes it larger, never smaller.

A row is named by its position: its place in the scan order of one version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.effects.io_counters import count
from omnigraph.storage.datasets import lance_failure
from omnigraph.storage.fragments import FragmentState, deleted_offsets, fragments_of
from omnigraph.storage.tables import ID, take
from omnigraph.storage.written import field_ids

Positions = npt.NDArray[np.int64]

NOWHERE = -1
"""The position of a row that the other version does not share."""

_UPDATED_AT = "_row_last_updated_at_version"
_ALWAYS = np.iinfo(np.uint64).max
_TAKEN_SHARE = 16
"""Up to one row in this many is fetched alone; of more, the whole column is read."""


@dataclass(frozen=True, slots=True, eq=False)
class RowPlaces:
    """Some rows of one version: their ids, where they lie, and when they were last written."""

    ids: pa.Array
    positions: Positions
    updated_at: npt.NDArray[np.uint64]
    """A version no older than the last change of the row; only rewritten rows have an older one."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A fragment, and the position of its first row."""

    state: FragmentState
    fragment: LanceFragment
    start: int
    remaining: int


def unshared_rows(handle: LanceDataset, other: LanceDataset) -> RowPlaces:
    """The rows of one version that another does not share; it may have equal ones elsewhere."""
    theirs = {state.files: state for state in fragments_of(other)}
    whole: list[_Placed] = []
    parts: list[RowPlaces] = []
    for placed in _placed(handle):
        twin = theirs.get(placed.state.files)
        if twin is None:
            whole.append(placed)
        elif twin.deletions != placed.state.deletions:
            mine = deleted_offsets(handle, placed.state)
            alone = np.setdiff1d(deleted_offsets(other, twin), mine, assume_unique=True)
            if len(alone):
                parts.append(_chosen(handle, placed, _places(alone, mine)))
    if whole:
        parts.append(_all_of(handle, whole))
    return _joined(parts)


def positions_in(handle: LanceDataset, positions: Positions, other: LanceDataset) -> Positions:
    """Where the rows at some positions of one version lie in another, `NOWHERE` if not shared."""
    found = np.full(len(positions), NOWHERE, np.int64)
    theirs = {placed.state.files: placed for placed in _placed(other)}
    for placed in _placed(handle):
        among = (positions >= placed.start) & (positions < placed.start + placed.remaining)
        twin = theirs.get(placed.state.files)
        if twin is None or not among.any():
            continue
        mine = deleted_offsets(handle, placed.state)
        theirs_deleted = deleted_offsets(other, twin.state)
        offsets = _offsets(positions[among] - placed.start, mine)
        now = twin.start + _places(offsets, theirs_deleted)
        found[among] = np.where(np.isin(offsets, theirs_deleted), NOWHERE, now)
    return found


def stage_exchange(handle: LanceDataset, rows: pa.Table, gone: Positions, uuid: str) -> Transaction:
    """Put ``rows`` into a table in place of those at the positions ``gone``, in one transaction.

    The caller knows that none of the new ids is left in the table then.
    """
    count("lance", "stage", handle.uri)
    updated, removed = [], []
    try:
        for placed in _placed(handle):
            among = gone[(gone >= placed.start) & (gone < placed.start + placed.remaining)]
            if not len(among):
                continue
            offsets = _offsets(among - placed.start, deleted_offsets(handle, placed.state))
            left = placed.fragment.delete_rows(offsets.tolist())
            if left is None:
                removed.append(placed.state.fragment_id)
            else:
                updated.append(left)
        written = write_fragments(rows, handle, mode="append") if rows.num_rows else []
    except (OSError, ValueError) as error:
        raise lance_failure(handle, error) from error
    operation = LanceOperation.Update(
        removed_fragment_ids=removed,
        updated_fragments=updated,
        new_fragments=list(written),
        fields_modified=[],
        # Every column may hold other values: no index covers the new rows before it is built.
        fields_for_preserving_frag_bitmap=list(field_ids(handle.lance_schema.fields())),
        update_mode="rewrite_rows",
    )
    return Transaction(handle.version, operation, uuid=uuid)


def _placed(handle: LanceDataset) -> Iterator[_Placed]:
    start = 0
    for state, fragment in zip(fragments_of(handle), handle.get_fragments(), strict=True):
        remaining = state.rows - fragment.num_deletions
        yield _Placed(state, fragment, start, remaining)
        start += remaining


def _places(offsets: Positions, deleted: Positions) -> Positions:
    """Where rows of a fragment come among those that remain of it, by their offsets in files."""
    places: Positions = offsets - np.searchsorted(deleted, offsets)
    return places


def _offsets(places: Positions, deleted: Positions) -> Positions:
    """The opposite of `_places`."""
    skipped = np.searchsorted(deleted - np.arange(len(deleted)), places, side="right")
    offsets: Positions = places + skipped
    return offsets


def _chosen(handle: LanceDataset, placed: _Placed, within: Positions) -> RowPlaces:
    """Some rows of a fragment, by their places among those that remain of it."""
    positions = placed.start + within
    if len(within) * _TAKEN_SHARE <= placed.remaining:
        ids = take(handle, pa.array(positions), [ID])[ID]
    else:
        ids = _scanned(handle, [placed], [ID])[ID].take(pa.array(within))
    return RowPlaces(_array(ids), positions, np.full(len(within), _ALWAYS, np.uint64))


def _all_of(handle: LanceDataset, fragments: Sequence[_Placed]) -> RowPlaces:
    rows = _scanned(handle, fragments, [ID, _UPDATED_AT] if handle.has_stable_row_ids else [ID])
    positions = np.concatenate(
        [np.arange(each.start, each.start + each.remaining, dtype=np.int64) for each in fragments]
    )
    if handle.has_stable_row_ids:
        updated_at = rows[_UPDATED_AT].combine_chunks().to_numpy(zero_copy_only=False)
    else:
        updated_at = np.full(rows.num_rows, _ALWAYS, np.uint64)
    return RowPlaces(_array(rows[ID]), positions, updated_at)


def _scanned(
    handle: LanceDataset, fragments: Sequence[_Placed], columns: Sequence[str]
) -> pa.Table:
    count("lance", "scan", handle.uri)
    try:
        return handle.scanner(
            columns=list(columns),
            fragments=[each.fragment for each in fragments],
            scan_in_order=True,
        ).to_table()
    except (OSError, ValueError) as error:
        raise lance_failure(handle, error) from error


def _joined(parts: Sequence[RowPlaces]) -> RowPlaces:
    if not parts:
        return RowPlaces(pa.array([], pa.string()), np.zeros(0, np.int64), np.zeros(0, np.uint64))
    return RowPlaces(
        pa.concat_arrays([part.ids for part in parts]),
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.updated_at for part in parts]),
    )


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
