"""The pieces a table version is made of, for caches that outlive a version.

A version is a list of fragments. The rows of a fragment never change: an append adds a fragment, a
delete or an update only marks rows of the old ones as deleted. What was read of a fragment can
therefore be kept for every later version, and for every branch, that still contains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceDataset

from omnigraph.effects.io_counters import count
from omnigraph.model.virtual_columns import ROW_ADDRESS
from omnigraph.storage.addresses import OFFSET_MASK
from omnigraph.storage.datasets import lance_failure

_BATCH_ROWS = 131_072
"""Large enough that work per batch is work per row, small enough to pass through the cache."""
_LISTS_KEPT = 256
"""Lists of deleted rows that are remembered. Lance lists them only while they are few."""
_READ_AHEAD_BYTES = 32 << 20
"""What Lance may have read before it is asked for; by default it would be gigabytes."""


@dataclass(frozen=True, slots=True)
class FragmentState:
    """One fragment of one version."""

    fragment_id: int
    files: tuple[str, ...]
    """The names of its data files: they identify its rows on any branch."""
    rows: int
    """Rows in the files, deleted ones included."""
    deletions: str | None
    """The deletion file in force; None if every row is there."""


def fragments_of(handle: LanceDataset) -> list[FragmentState]:
    """The fragments of a version, in scan order; known from its metadata."""
    return [
        FragmentState(
            fragment.fragment_id,
            tuple(file.path for file in fragment.metadata.files),
            fragment.physical_rows,
            fragment.deletion_file(),
        )
        for fragment in handle.get_fragments()
    ]


def columns_of(handle: LanceDataset) -> str:
    """The columns of a version, with the ids by which its files know them.

    As long as this is the same, a name means the same in every file.
    """
    return " ".join(f"{field.name()}={field.id()}" for field in handle.lance_schema.fields())


def stored_rows(
    handle: LanceDataset, fragments: Sequence[FragmentState], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """All rows of some fragments, deleted ones too, so that a row's place in them is fixed."""
    if not fragments:
        return  # Lance would take an empty list for all of them
    count("lance", "scan", handle.uri)
    any_deleted = any(fragment.deletions is not None for fragment in fragments)
    wanted = {fragment.fragment_id for fragment in fragments}
    chosen = [each for each in handle.get_fragments() if each.fragment_id in wanted]
    try:
        scanner = handle.scanner(
            columns=list(columns),
            fragments=chosen,
            batch_size=_BATCH_ROWS,
            io_buffer_size=_READ_AHEAD_BYTES,
            # Lance gives deleted rows only together with their row ids, which are then null.
            with_row_id=any_deleted,
            include_deleted_rows=any_deleted,
        )
        for batch in scanner.to_batches():
            yield batch.select(list(columns)) if any_deleted else batch
    except (OSError, ValueError) as error:
        raise lance_failure(handle, error) from error


def remaining_offsets(handle: LanceDataset, fragment: FragmentState) -> npt.NDArray[np.int64]:
    """The places within a fragment of the rows that were not deleted."""
    count("lance", "scan", handle.uri)
    chosen = [each for each in handle.get_fragments() if each.fragment_id == fragment.fragment_id]
    try:
        found = handle.scanner(columns=[], fragments=chosen, with_row_address=True).to_table()
    except (OSError, ValueError) as error:
        raise lance_failure(handle, error) from error
    addresses = found[ROW_ADDRESS].combine_chunks().to_numpy()
    offsets: npt.NDArray[np.int64] = (addresses & np.uint64(OFFSET_MASK)).astype(np.int64)
    return offsets


def deleted_offsets(handle: LanceDataset, fragment: FragmentState) -> npt.NDArray[np.int64]:
    """The places within a fragment of its deleted rows, in ascending order.

    Read from the deletion file if that lies at hand: of a large fragment with few deleted rows,
    that is much less than what remains.
    """
    if fragment.deletions is None:
        return np.zeros(0, np.int64)
    uri, name = str(handle.uri), fragment.deletions
    # A file that cannot be read is left to Lance, which says what is wrong with the table.
    with suppress(ValueError):
        found = _listed_deletions(uri, name) if name.endswith(".arrow") else _marked(uri, name)
        if found is not None:
            return found
    is_deleted = np.ones(fragment.rows, np.bool_)
    is_deleted[remaining_offsets(handle, fragment)] = False
    return np.flatnonzero(is_deleted)


@lru_cache(maxsize=_LISTS_KEPT)
def _listed_deletions(uri: str, name: str) -> npt.NDArray[np.int64] | None:
    """What a deletion file on local disk lists; its name is used only once, wherever it lies."""
    content = _deletion_file(uri, name)
    if content is None:
        return None
    (column,) = pa.ipc.open_file(content).read_all().columns
    found: npt.NDArray[np.int64] = np.sort(column.to_numpy().astype(np.int64))
    found.flags.writeable = False
    return found


def _marked(uri: str, name: str) -> npt.NDArray[np.int64] | None:
    """What a deletion file on local disk marks: Lance writes many deletions as a bitmap."""
    content = _deletion_file(uri, name)
    if content is None:
        return None
    from pyroaring import BitMap  # few processes ever meet a bitmap

    return np.array(BitMap.deserialize(content).to_array(), np.int64)


def _deletion_file(uri: str, name: str) -> bytes | None:
    """The content of a deletion file; None if it does not lie on local disk."""
    if "://" in uri:
        return None
    own = Path(uri)
    # A branch lists files of the one it was forked from; most lie at the root of the table.
    root = own.parent.parent if own.parent.name == "tree" else own
    for place in (own, root):
        try:
            content = (place / name).read_bytes()
        except OSError:
            continue
        count("lance", "read_deletions", uri)
        return content
    return None
