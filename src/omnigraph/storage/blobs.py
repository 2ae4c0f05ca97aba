"""Reading blob columns: descriptors by scans, and bytes of requested values only.

A scan of a blob column returns descriptors: the length of each value, and the place of its bytes,
which is the data file itself, a separate file, or for an external value a URI. URIs are never
fetched here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.blob import BlobFile

from omnigraph.model.arrow import BLOB_STORAGE, ID
from omnigraph.model.records import dataclass
from omnigraph.model.types import ROW_ADDRESS, ROW_ID
from omnigraph.model.values import BlobUri
from omnigraph.storage.failures import count_lance, lance_errors
from omnigraph.storage.fragments import FRAGMENT_SHIFT, addresses_at, rows_where_in, take

EXTERNAL = 3
"""The descriptor kind of an external value, which is a URI."""


# --- many values ----------------------------------------------------------------------------------

DESCRIPTION = pa.struct({"kind": pa.string(), "size": pa.int64(), "uri": pa.string()})
"""The form of a blob in results, without its bytes: `managed` with its size, or `external` with
its URI."""


def described(blobs: pa.StructArray) -> pa.StructArray:
    """A scanned blob column as `DESCRIPTION`."""
    is_external = pc.equal(blobs.field("kind"), EXTERNAL)
    nothing = pa.scalar(None)
    return pa.StructArray.from_arrays(
        [
            pc.if_else(is_external, "external", "managed"),
            pc.if_else(is_external, nothing, blobs.field("size").cast(pa.int64())),
            pc.if_else(is_external, blobs.field("blob_uri"), nothing),
        ],
        fields=list(DESCRIPTION),
        mask=blobs.is_null(),
    )


def sizes(handle: LanceDataset, column: str, ids: pa.Array) -> pa.Array:
    """The managed bytes of each blob, in the order of ``ids``; null for a null blob."""
    rows = rows_where_in(handle, ID, ids, [ID, column])
    described = dict(zip(rows[ID].to_pylist(), rows[column].to_pylist(), strict=True))
    return pa.array(
        [None if (found := described.get(id)) is None else found["size"] for id in ids.to_pylist()],
        pa.int64(),
    )


def values(handle: LanceDataset, column: str, ids: pa.Array) -> pa.Array:
    """The blobs as `BLOB_STORAGE`, in the order of ``ids``; external ones as their URIs."""
    columns = [ID, column]
    found = rows_where_in(handle, ID, ids, columns, with_row_id=True).to_pylist()
    rows = {row[ID]: row for row in found}
    wanted = [rows[id] for id in ids.to_pylist()]
    kept = [row[ROW_ID] for row in wanted if _is_managed(row[column])]
    payloads = _payloads(handle, column, ids=kept)
    return pa.array([_stored(row[column], payloads) for row in wanted], BLOB_STORAGE)


def values_at(
    handle: LanceDataset, column: str, positions: pa.Array
) -> Iterator[bytes | BlobUri | None]:
    """The blobs at some positions, one after another; external ones as their URIs."""
    described = take(handle, positions, [column])[column].to_pylist()
    addresses = addresses_at(handle, positions.to_numpy())
    for address, descriptor in zip(addresses, described, strict=True):
        if descriptor is None:
            yield None
        elif descriptor["kind"] == EXTERNAL:
            yield BlobUri(descriptor["blob_uri"])
        else:
            yield _opened(handle, column, addresses=[address]).readall()


def sizes_at(handle: LanceDataset, column: str, positions: pa.Array) -> pa.Array:
    """The managed bytes of each blob at some positions; 0 for a null blob."""
    described = take(handle, positions, [column])[column].to_pylist()
    return pa.array([0 if each is None else each["size"] for each in described], pa.int64())


def stored_at(handle: LanceDataset, column: str, positions: pa.Array) -> pa.Array:
    """The blobs at some positions as `BLOB_STORAGE`, in that order; external ones as URIs."""
    described = take(handle, positions, [column])[column].to_pylist()
    places = positions.to_numpy()[[_is_managed(each) for each in described]]
    payloads = _payloads(handle, column, addresses=addresses_at(handle, places))
    return pa.array([_stored(each, payloads) for each in described], BLOB_STORAGE)


def _payloads(
    handle: LanceDataset, column: str, *, ids: Sequence[int] = (), addresses: Sequence[int] = ()
) -> Iterator[bytes | None]:
    """The bytes of the blobs of some rows, in one read; none without rows."""
    if not ids and not addresses:
        return iter(())
    count_lance("read_blobs", handle.uri)
    which: dict[str, Any] = {"ids": list(ids)} if ids else {"addresses": list(addresses)}
    with lance_errors(handle):
        found = handle.read_blobs(column, **which, preserve_order=True)
    return (payload for _, payload in found)


def _is_managed(descriptor: Mapping[str, Any] | None) -> bool:
    return descriptor is not None and descriptor["kind"] != EXTERNAL


def _stored(
    descriptor: Mapping[str, Any] | None, payloads: Iterator[bytes | None]
) -> dict[str, Any] | None:
    if descriptor is None:
        return None
    if descriptor["kind"] == EXTERNAL:
        return {"data": None, "uri": descriptor["blob_uri"]}
    return {"data": next(payloads), "uri": None}


# --- one value ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ManagedBlob:
    """One value whose bytes are stored in the table. Safe to share between threads."""

    size: int
    tag: str
    """Identifies the bytes; see `_tag`."""
    _handle: LanceDataset = field(repr=False)
    _column: str = field(repr=False)
    _address: int = field(repr=False)

    def open(self) -> OpenBlob:
        """Open the value, to read ranges of it; looks up its place in the table again."""
        opened = _opened(self._handle, self._column, addresses=[self._address])
        return OpenBlob(self._handle, opened)


@dataclass(frozen=True, slots=True)
class OpenBlob:
    """The bytes of one value."""

    _handle: LanceDataset
    _file: BlobFile

    def read(self, start: int, length: int) -> bytes:
        """A range of the bytes, which has to lie within the value; fetches only that range."""
        with lance_errors(self._handle, "read_blob_range"):
            data: bytes = self._file.read_range(start, length)
        return data


@dataclass(frozen=True, slots=True)
class BlobCell:
    """The content of one cell of a blob column."""

    value: ManagedBlob | BlobUri | None


def cell(handle: LanceDataset, column: str, id: str) -> BlobCell | None:
    """The cell of one entity, from its descriptor alone; None if there is no such entity."""
    rows = rows_where_in(handle, ID, pa.array([id]), [column], with_row_address=True)
    for row in rows.to_pylist():
        descriptor, address = row[column], row[ROW_ADDRESS]
        if descriptor is None:
            return BlobCell(None)
        if descriptor["kind"] == EXTERNAL:
            return BlobCell(BlobUri(descriptor["blob_uri"]))
        tag = _tag(handle, column, address >> FRAGMENT_SHIFT, descriptor)
        return BlobCell(ManagedBlob(descriptor["size"], tag, handle, column, address))
    return None


def _opened(handle: LanceDataset, column: str, **which: list[int]) -> BlobFile:
    with lance_errors(handle, "read_blobs"):
        # Without read-ahead: only the requested bytes are read.
        (blob,) = handle.take_blobs(column, **which, buffer_size=0)
    assert blob is not None
    return blob


def _tag(handle: LanceDataset, column: str, fragment_id: int, descriptor: Mapping[str, Any]) -> str:
    """A text that identifies the bytes: a digest of the place where they are stored.

    Data files are immutable and their names are never reused. So the name of the file and the place
    of the value identify the bytes, on every branch and at every commit that shares the file. When
    updates or compaction rewrite the row, the same bytes get another tag.
    """
    number = next(each.id() for each in handle.lance_schema.fields() if each.name() == column)
    fragment = handle.get_fragment(fragment_id)
    assert fragment is not None
    file = next(each.path for each in fragment.metadata.files if number in each.fields)
    place = (file, *(str(descriptor[part]) for part in ("kind", "blob_id", "position", "size")))
    return hashlib.sha256("\0".join(place).encode()).hexdigest()[:32]
