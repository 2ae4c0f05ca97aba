"""Reading one blob of a graph: found by type, entity and property, and read in ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from omnigraph.commit.kernel import Gates
from omnigraph.errors import InputError, NotFound
from omnigraph.graph.opened import Handle
from omnigraph.model.blobs import CHUNK_BYTES_MAX, BlobSelector, BlobStat, ByteRange, KnownBlob
from omnigraph.model.result import ReadTarget
from omnigraph.model.values import BlobUri
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.blobs import ManagedBlob, OpenBlob
from omnigraph.storage.reader import SnapshotReader
from omnigraph.syntax.suggest import did_you_mean


class Blob(KnownBlob):
    """One value of a blob property, as of one commit.

    The kind and size are known at once; bytes are read on request. Safe to share between threads.
    """

    def __init__(self, stat: BlobStat, stored: ManagedBlob | None, gates: Gates) -> None:
        super().__init__(stat)
        self._stored = stored
        self._gates = gates

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A range of the bytes, by default all from ``offset``; raises as `byte_range` does."""
        return b"".join(self.chunks(offset, length))

    def chunks(
        self, offset: int = 0, length: int | None = None, *, chunk_bytes: int = CHUNK_BYTES_MAX
    ) -> Iterator[bytes]:
        """The same bytes in pieces of at most ``chunk_bytes``, each read on demand.

        An invalid range raises at once, before the first piece. Until the last piece, cleanup in
        this process waits.
        """
        if not 1 <= chunk_bytes <= CHUNK_BYTES_MAX:
            raise InputError(f"a chunk has 1 to {CHUNK_BYTES_MAX} bytes, not {chunk_bytes}")
        return self._pieces(self.byte_range(offset, length), chunk_bytes)

    def _pieces(self, wanted: ByteRange, chunk_bytes: int) -> Iterator[bytes]:
        with self._gates.stream():
            for start in range(wanted.start, wanted.end, chunk_bytes):
                yield self._opened.read(start, min(chunk_bytes, wanted.end - start))

    @cached_property
    def _opened(self) -> OpenBlob:
        assert self._stored is not None
        return self._stored.open()


def blob(
    self: Handle,
    entity: str,
    type: str,
    id: str,
    property: str,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
) -> Blob:
    """One value of a blob property, to be read in ranges; this call reads none of the bytes.

    ``entity`` is `node` or `edge`. Raises `InputError` for an unknown type and for a property
    that is no blob, `NotFound` for an unknown entity and for one without a value.
    """
    selector = BlobSelector.of(entity, type, id, property)
    target = self._read_target("blob", branch, snapshot)
    reader, catalog = self._seen(self._opened.pinned(target))
    return _find_blob(reader, catalog, selector, target, self._kernel.gates)


def _find_blob(
    reader: SnapshotReader,
    catalog: Catalog,
    selector: BlobSelector,
    target: ReadTarget,
    gates: Gates,
) -> Blob:
    """The blob that ``selector`` names in one snapshot.

    Raises `InputError` for an unknown type or blob property, and `NotFound` for an unknown entity
    and for a null value.
    """
    _require_blob_property(catalog, selector)
    cell = reader.blob_cell(selector.table_key, selector.property_name, selector.id)
    if cell is None:
        raise NotFound(
            f"there is no {selector.entity} {selector.type_name} '{selector.id}' on {target}",
            hint="ids are case-sensitive; of a keyed node the id is its key",
            details=selector.to_dict(),
        )
    if cell.value is None:
        raise NotFound(
            f"{selector} is null on {target}",
            hint="assign a value with `base64:` data, or read an older snapshot",
            details=selector.to_dict(),
        )
    commit_id = reader.snapshot.commit_id
    if isinstance(cell.value, BlobUri):
        stat = BlobStat(selector, "external", target, commit_id, uri=cell.value.uri)
        return Blob(stat, None, gates)
    size, etag = cell.value.size, f'"{cell.value.tag}"'
    stat = BlobStat(selector, "managed", target, commit_id, size=size, etag=etag)
    return Blob(stat, cell.value, gates)


def _require_blob_property(catalog: Catalog, selector: BlobSelector) -> None:
    types: Mapping[str, NodeType | EdgeType]
    types = catalog.nodes if selector.entity == "node" else catalog.edges
    found = types.get(selector.type_name)
    if found is None:
        raise InputError(
            f"there is no {selector.entity} type '{selector.type_name}'",
            hint=_nearest(selector.type_name, types, f"{selector.entity} types"),
            details=selector.to_dict(),
        )
    name = selector.property_name
    prop = found.properties.get(name)
    if prop is not None and prop.type.is_blob:
        return
    blobs = [name for name, prop in found.properties.items() if prop.type.is_blob]
    wrong = (
        f"{found.name} has no property '{name}'"
        if prop is None
        else f"{found.name}.{name} is not a Blob but has the type {prop.type}"
    )
    raise InputError(
        wrong,
        hint=_nearest(name, blobs, f"Blob properties of {found.name}"),
        details=selector.to_dict(),
    )


def _nearest(word: str, known: Iterable[str], what: str) -> str:
    names = sorted(known)
    if not names:
        return f"there are no {what}"
    return did_you_mean(word, names) or f"the {what} are {', '.join(names)}"
