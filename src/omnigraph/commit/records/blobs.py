"""Blobs that live elsewhere: which may be named in an input, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ExternalBlobUnavailable
from omnigraph.model.arrow import BLOB_STORAGE


def _none_allowed(uri: str) -> bool:
    return False


def _no_reader(uri: str) -> bytes:
    raise ExternalBlobUnavailable(uri, "this load has no access to external objects")


@dataclass(frozen=True, slots=True)
class ExternalBlobs:
    """The policy for blob values that are URIs: by default none is allowed."""

    allow: Callable[[str], bool] = _none_allowed
    """Whether a URI lies under a base that policy permits."""
    read: Callable[[str], bytes] = _no_reader
    """The bytes behind an allowed URI; called only where they are to be copied."""

    def refused(self, column: pa.StructArray) -> list[tuple[int, str]]:
        """Positions and URIs that are not allowed."""
        uris = column.field("uri")
        if uris.null_count == len(uris):
            return []
        verdicts = {uri: self.allow(uri) for uri in pc.unique(uris.drop_null()).to_pylist()}
        return [
            (i, uri)
            for i, uri in enumerate(uris.to_pylist())
            if uri is not None and not verdicts[uri]
        ]

    def copied(self, column: pa.StructArray) -> pa.StructArray:
        """``column`` with the bytes of external objects in place of their URIs."""
        uris = column.field("uri")
        if uris.null_count == len(uris):
            return column
        data = [
            value if uri is None else self.read(uri)
            for value, uri in zip(column.field("data").to_pylist(), uris.to_pylist(), strict=True)
        ]
        return pa.StructArray.from_arrays(
            [pa.array(data, pa.large_binary()), pa.nulls(len(column), pa.string())],
            fields=list(BLOB_STORAGE),
            mask=column.is_null(),
        )
