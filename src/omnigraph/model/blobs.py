"""Blob values without their content: address, metadata and byte ranges.

A value is described by metadata in its table: its size and its etag are known without reading it.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from omnigraph.errors import BlobRangeError, InputError
from omnigraph.model.changes import ENTITY_KINDS
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.json_object import Json, JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.result import ReadTarget
from omnigraph.model.values import BlobUri

BlobKind = Literal["managed", "external"]
"""Whether the graph stores the bytes, or only the URI of an object elsewhere."""

CHUNK_BYTES_MAX = 4 << 20
"""The most bytes read at once when a blob is streamed."""

_POSITION_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BlobSelector(JsonObject):
    """The address of one blob: a property of an entity."""

    entity: EntityKind
    type_name: Annotated[str, Json("type")]
    id: str
    property_name: Annotated[str, Json("property")]

    @classmethod
    def of(cls, entity: str, type_name: str, id: str, property_name: str) -> BlobSelector:
        """A selector from texts; raises `InputError` if ``entity`` is neither `node` nor `edge`."""
        for kind in ENTITY_KINDS:
            if entity == kind:
                return cls(kind, type_name, id, property_name)
        raise InputError(
            f"'{entity}' is not a kind of entity",
            hint="say `node` or `edge`, then the type, the id and the property",
            details={"entity": entity},
        )

    @property
    def table_key(self) -> str:
        """`node:Name` or `edge:Name`."""
        return TableKey.of(self.entity, self.type_name)

    def __str__(self) -> str:
        return f"{self.property_name} of {self.entity} {self.type_name} '{self.id}'"


@dataclass(frozen=True, slots=True)
class BlobStat:
    """All that is known of a value without reading it."""

    selector: BlobSelector
    kind: BlobKind
    target: ReadTarget
    """The branch or snapshot that was requested."""
    resolved_snapshot: str
    """The commit it was read at."""
    size: int | None = None
    """Bytes of a managed value; the size of an external object is unknown."""
    etag: str | None = None
    """A strong entity tag in the syntax of HTTP, quotes included; only for a managed value."""
    uri: str | None = None
    """The URI of the object; only for an external value."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; members that do not apply are left out."""
        target = self.target.to_dict() | {"resolved_snapshot": self.resolved_snapshot}
        known = {"size": self.size, "etag": self.etag, "uri": self.uri}
        return {
            "selector": self.selector.to_dict(),
            "kind": self.kind,
            **_present(known),
            "target": _present(target),
        }


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes of a value, from ``start`` up to but not including ``end``."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def check_range(offset: int, length: int | None) -> None:
    """Refuse a range that is invalid for a value of any size, before the value is looked up."""
    if offset < 0 or (length is not None and length < 1):
        raise InputError(
            f"{_asked(offset, length)} is not a range",
            hint="a range starts at 0 or later and has at least one byte",
        )
    if offset + (length or 0) > _POSITION_MAX:
        raise InputError(
            f"{_asked(offset, length)} is more than any value can have",
            hint="leave the length out to read to the end",
        )


def range_of(size: int, offset: int = 0, length: int | None = None) -> ByteRange:
    """The bytes of a range that exist in a value of ``size``; the range may end beyond the value.

    Raises `BlobRangeError` for a range that starts after the last byte. Only reading the whole of
    an empty value gives no bytes.
    """
    check_range(offset, length)
    is_whole = offset == 0 and length is None
    if offset >= size and not is_whole:
        end = max(offset, size) if length is None else offset + length
        raise BlobRangeError(offset, end, size)
    return ByteRange(offset, size if length is None else min(offset + length, size))


class KnownBlob:
    """A value whose content has not been read; subclasses implement the reading."""

    def __init__(self, stat: BlobStat) -> None:
        self.stat = stat

    def __repr__(self) -> str:
        known = self.uri if self.size is None else f"{self.size} bytes"
        return f"{type(self).__name__}({self.stat.selector}: {known})"

    @property
    def kind(self) -> BlobKind:
        """`managed` for bytes of the graph, `external` for an object elsewhere."""
        return self.stat.kind

    @property
    def size(self) -> int | None:
        """The size of a managed value in bytes."""
        return self.stat.size

    @property
    def etag(self) -> str | None:
        """A strong entity tag: it changes whenever the bytes change."""
        return self.stat.etag

    @property
    def uri(self) -> str | None:
        """The URI of an external value."""
        return self.stat.uri

    @property
    def snapshot_id(self) -> str:
        """The commit the value was read at."""
        return self.stat.resolved_snapshot

    def byte_range(self, offset: int = 0, length: int | None = None) -> ByteRange:
        """The bytes that `read` and `chunks` return for the same arguments.

        An end beyond the value is clamped. Raises `BlobRangeError` for a range that starts beyond
        it, and `InputError` for an external value.
        """
        if self.size is None:
            raise InputError(
                f"{self.stat.selector} is kept elsewhere, at {self.uri}",
                hint="fetch it from there; the graph has only its URI, which `blob stat` shows",
                details={"uri": self.uri},
            )
        return range_of(self.size, offset, length)


def blob_summary(value: bytes | BlobUri | None) -> dict[str, Any] | None:
    """The summary of a blob where entities are compared: enough to tell whether and how two differ.

    It describes the content. An etag would not do: it changes when the row is rewritten.
    """
    if value is None:
        return None
    if isinstance(value, BlobUri):
        return {"uri": value.uri}
    return {"size": len(value), "sha256": hashlib.sha256(value).hexdigest()}


def _asked(offset: int, length: int | None) -> str:
    start = f"a range from byte {offset}"
    return start if length is None else f"{start} with {length} bytes"


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
