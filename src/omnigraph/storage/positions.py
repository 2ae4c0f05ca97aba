"""Rows by position: their place in the scan order of one version.

A fragment numbers its rows by their offsets in its files, deleted ones included; positions count
only those that remain. Lance translates one into the other row by row, each time from the start of
the fragment, as soon as a single row of it was deleted: a hundred rows at the end of a million then
take seconds. A fragment that is asked alone does it at once, and so do we for addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset, LanceFragment
from lance.blob import BlobType

from omnigraph.storage.addresses import FRAGMENT_SHIFT
from omnigraph.storage.fragments import FragmentState, deleted_offsets, fragments_of

Positions = npt.NDArray[np.int64]

_STEPS_MAX = 50_000
"""Rows that Lance may walk through, about a millisecond's worth."""


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
    """The fragments that hold rows at some positions, and which of ``positions`` those are."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    for placed in placed_fragments(handle):
        first, last = np.searchsorted(ordered, [placed.start, placed.start + placed.remaining])
        if first < last:
            yield placed, order[first:last]


def places_of(offsets: Positions, deleted: Positions) -> Positions:
    """Where rows of a fragment come among those that remain of it, by their offsets in files."""
    places: Positions = offsets - np.searchsorted(deleted, offsets)
    return places


def offsets_of(places: Positions, deleted: Positions) -> Positions:
    """The opposite of `places_of`."""
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
    """Rows of one fragment, in ascending order and each once."""
    blobs = [name for name in names if isinstance(handle.schema.field(name).type, BlobType)]
    plain = [name for name in names if name not in blobs]
    found: dict[str, pa.ChunkedArray] = {}
    fields: dict[str, pa.Field] = {}
    tables = []
    if plain:
        tables.append(placed.fragment.take(places.tolist(), columns=plain))
    if blobs:
        # A fragment that is asked alone gives no descriptors of blobs.
        addresses = ", ".join(map(str, addresses_at(handle, placed.start + places)))
        tables.append(handle.to_table(columns=blobs, filter=f"_rowaddr in ({addresses})"))
    for table in tables:
        found |= dict(zip(table.schema.names, table.columns, strict=True))
        fields |= {field.name: field for field in table.schema}
    schema = pa.schema([fields[name] for name in names])
    return pa.table([found[name] for name in names], schema=schema)
