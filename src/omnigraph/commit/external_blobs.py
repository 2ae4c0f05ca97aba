"""Blobs outside of the graph: which URIs an input may have, and whether their bytes are copied.

A write that replaces a table stores the URI, to which readers of the value are redirected. Every
other write copies the bytes, so that an entity does not depend on objects that may be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.plan import BYTES_MAX_VARIABLE, DEFAULT_LIMITS
from omnigraph.effects.failures import StorageFailure
from omnigraph.effects.objects import ExternalObjects, require_directories
from omnigraph.errors import ExternalBlobUnavailable, LimitExceeded, ValueConversionError
from omnigraph.model.arrow import BLOB_STORAGE
from omnigraph.model.external_uris import ExternalBases, ExternalPlace, without_credentials
from omnigraph.model.receipts import LoadMode
from omnigraph.model.records import dataclass


def _none_allowed(uri: str) -> bool:
    return False


def _no_reader(uri: str) -> bytes:
    raise ExternalBlobUnavailable(uri, "this load has no access to external objects")


@dataclass(frozen=True, slots=True)
class ExternalBlobs:
    """The policy for blob values that are URIs: by default none is allowed."""

    allow: Callable[[str], bool] = _none_allowed
    """Whether a URI is below an allowed base."""
    read: Callable[[str], bytes] = _no_reader
    """Reads the bytes of an allowed URI, to copy them."""
    bytes_max: int = DEFAULT_LIMITS.bytes_max
    """The most bytes to copy for one column at once."""
    hint: str = (
        "give the bytes as base64: data, or allow the folder that has the object with"
        " `--external-blobs` (external_blobs=…)"
    )
    """The hint for a URI that is not allowed."""

    @classmethod
    def below(
        cls, bases: Iterable[str], bytes_max: int = DEFAULT_LIMITS.bytes_max
    ) -> ExternalBlobs:
        """A policy that allows the objects below some bases, `s3://bucket/folder` or `file://…`.

        Raises `InputError` for a base that is unsafe, overlaps with another, or is no directory.
        """
        allowed = ExternalBases.of(bases)
        require_directories(allowed)
        return cls(
            allowed.allow, partial(_fetched, allowed, ExternalObjects(), bytes_max), bytes_max
        )

    def on_spark(self, mode: LoadMode) -> ExternalBlobs:
        """The policy of a load on Spark: references are kept, no bytes are copied."""
        return ExternalBlobs(self.allow) if mode == "overwrite" else NOT_ON_SPARK

    def refused(self, column: pa.StructArray) -> list[tuple[int, str]]:
        """Positions and URIs of values that are not allowed."""
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
        fetched: dict[str, bytes] = {}
        data: list[bytes | None] = []
        size = 0
        for own, uri in zip(column.field("data").to_pylist(), uris.to_pylist(), strict=True):
            if uri is None:
                data.append(own)
                continue
            if uri not in fetched:
                fetched[uri] = self.read(uri)
            data.append(fetched[uri])
            size += len(fetched[uri])
            if size > self.bytes_max:
                raise _too_much(size, self.bytes_max)
        return pa.StructArray.from_arrays(
            [pa.array(data, pa.large_binary()), pa.nulls(len(column), pa.string())],
            fields=list(BLOB_STORAGE),
            mask=column.is_null(),
        )

    def copy(self, uri: str, name: str) -> bytes:
        """The bytes of one URI, given for the property ``name``; raises an error unless allowed."""
        if not self.allow(uri):
            shown = without_credentials(uri)
            raise ValueConversionError(
                denial(uri), hint=self.hint, details={"property": name, "value": shown}
            )
        return self.read(uri)


NOT_ON_SPARK = ExternalBlobs(
    hint="give the bytes as base64: data; a load on Spark copies no objects, so for those use"
    " engine local, or overwrite to keep references"
)
"""Why a load on Spark copies no bytes: every worker would need access to the objects."""


def denial(uri: str) -> str:
    """The message for a URI that is not allowed."""
    return f"external blob URI '{without_credentials(uri)}' is not allowed"


def _fetched(bases: ExternalBases, objects: ExternalObjects, bytes_max: int, uri: str) -> bytes:
    place = ExternalPlace.parse(uri)
    base = bases.base_of(place)
    assert base is not None, "only what is allowed is read"
    try:
        return objects.read(place, base, bytes_max)
    except StorageFailure as failure:
        raise ExternalBlobUnavailable(str(place), failure.reason) from failure
    except LimitExceeded as limit:
        raise _too_much(limit.details["actual"], bytes_max) from limit


def _too_much(size: int, bytes_max: int) -> LimitExceeded:
    return LimitExceeded(
        "bytes of external blobs",
        bytes_max,
        size,
        hint=f"copy fewer at once, overwrite to keep references, or raise {BYTES_MAX_VARIABLE}",
    )
