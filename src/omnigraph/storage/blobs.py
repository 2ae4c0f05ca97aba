"""Reading blob columns: sizes from their descriptors, bytes only of the values asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from lance import LanceDataset

from omnigraph.effects.io_counters import count
from omnigraph.model.arrow import BLOB_STORAGE
from omnigraph.model.values import BlobUri
from omnigraph.storage.tables import ID, rows_where_in, take

_EXTERNAL = 3
"""The descriptor kind of a value that is only a URI."""


def sizes(handle: LanceDataset, column: str, ids: pa.Array) -> pa.Array:
    """How many bytes each blob takes, in the order of ``ids``; null for a null blob."""
    described = _descriptors(handle, column, ids)
    return pa.array(
        [None if (found := described.get(id)) is None else found["size"] for id in ids.to_pylist()],
        pa.int64(),
    )


def values(handle: LanceDataset, column: str, ids: pa.Array) -> pa.Array:
    """The blobs as `BLOB_STORAGE`, in the order of ``ids``, with their bytes.

    Bytes of external values too: an upsert cannot carry a URI.
    """
    found = rows_where_in(handle, ID, ids, [ID], with_row_id=True)
    row_ids = dict(zip(found[ID].to_pylist(), found["_rowid"].to_pylist(), strict=True))
    count("lance", "read_blobs", handle.uri)
    wanted = [row_ids[id] for id in ids.to_pylist()]
    payloads = [payload for _, payload in handle.read_blobs(column, ids=wanted)]
    return pa.array(
        [None if payload is None else {"data": payload, "uri": None} for payload in payloads],
        BLOB_STORAGE,
    )


def values_at(
    handle: LanceDataset, column: str, positions: pa.Array
) -> Iterator[bytes | BlobUri | None]:
    """The blobs at some positions, one after another; an external one is its URI."""
    described = take(handle, positions, [column])[column].to_pylist()
    for position, descriptor in zip(positions.to_pylist(), described, strict=True):
        if descriptor is None:
            yield None
        elif descriptor["kind"] == _EXTERNAL:
            yield BlobUri(descriptor["blob_uri"])
        else:
            count("lance", "read_blobs", handle.uri)
            (blob,) = handle.take_blobs(column, indices=[position])
            assert blob is not None
            yield blob.readall()


def _descriptors(
    handle: LanceDataset, column: str, ids: pa.Array
) -> dict[str, dict[str, Any] | None]:
    found = rows_where_in(handle, ID, ids, [ID, column])
    return dict(zip(found[ID].to_pylist(), found[column].to_pylist(), strict=True))
