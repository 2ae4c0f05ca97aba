"""Blob values as their readers see them: address, metadata and byte ranges.

None of this is the payload. A value is described by metadata of its table: asking for its size or
its tag never reads a byte of it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from omnigraph.errors import BlobRangeError, InputError
from omnigraph.model.changes import ENTITY_KINDS
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.json_object import Json, JsonObject
from omnigraph.model.result import ReadTarget
from omnigraph.model.values import BlobUri

BlobKind = Literal["managed", "external"]
"""Whether the graph keeps the bytes, or only the URI of an object elsewhere."""

CHUNK_BYTES_MAX = 4 << 20
"""The most that is read of a blob at once when it is streamed."""

_POSITION_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BlobSelector(JsonObject):
    """The one cell that is meant: a property of an entity."""

    entity: EntityKind
    type_name: Annotated[str, Json("type")]
    id: str
    property_name: Annotated[str, Json("property")]

    @classmethod
    def of(cls, entity: str, type_name: str, id: str, property_name: str) -> BlobSelector:
        """A selector from words; raises `InputError` for an entity that is no node or edge."""
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
    """What was asked for: a branch or a snapshot."""
    resolved_snapshot: str
    """The commit it was read at."""
    size: int | None = None
    """Bytes of a managed value; the length of an external object is unknown."""
    etag: str | None = None
    """A strong entity tag in the spelling of HTTP, quotes included; only of a managed value."""
    uri: str | None = None
    """Where the object lies; only of an external value."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; what does not apply is left out."""
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
    """Refuse a range that fits no value at all, before any value is looked for."""
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
    """The bytes that a value of ``size`` has of a range; its end may lie beyond the value.

    Raises `BlobRangeError` for a range that starts behind the last byte. Only reading the whole of
    an empty value gives no bytes.
    """
    check_range(offset, length)
    is_whole = offset == 0 and length is None
    if offset >= size and not is_whole:
        end = max(offset, size) if length is None else offset + length
        raise BlobRangeError(offset, end, size)
    return ByteRange(offset, size if length is None else min(offset + length, size))


class KnownBlob:
    """A value of which nothing has been read; how that is done, subclasses know."""

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
        """How many bytes a managed value has."""
        return self.stat.size

    @property
    def etag(self) -> str | None:
        """A strong entity tag: as long as it is the same, so are the bytes."""
        return self.stat.etag

    @property
    def uri(self) -> str | None:
        """Where the object of an external value lies."""
        return self.stat.uri

    @property
    def snapshot_id(self) -> str:
        """The commit the value was found at."""
        return self.stat.resolved_snapshot

    def byte_range(self, offset: int = 0, length: int | None = None) -> ByteRange:
        """The bytes that `read` and `chunks` give for the same arguments.

        An end behind the value is brought back to it. Raises `BlobRangeError` for a range that
        starts behind it, and `InputError` for an external value.
        """
        if self.size is None:
            raise InputError(
                f"{self.stat.selector} is kept elsewhere, at {self.uri}",
                hint="fetch it from there; the graph has only its URI, which `blob stat` shows",
                details={"uri": self.uri},
            )
        return range_of(self.size, offset, length)


def blob_summary(value: bytes | BlobUri | None) -> dict[str, Any] | None:
    """A blob where people compare entities: enough to see whether and how two of them differ.

    It describes the content. A tag would not do: it changes when the row is rewritten.
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
