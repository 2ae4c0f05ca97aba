"""Writes the files of an image to another root, as a graph that can be opened there.

Version files of Lance branches contain the address of their dataset, which is rewritten during the
copy. The newest version of main's manifest is written last: without it there is no graph. Then one
transaction updates the root in the registry of branches.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from functools import partial

import orjson

from omnigraph.commit.kernel import Kernel
from omnigraph.copies.image import CopyImage, ImageFile, Vanished, expected, images
from omnigraph.copies.receipts import CopyReceipt
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.objects import ObjectStore
from omnigraph.effects.requests import concurrently
from omnigraph.effects.uri import Root
from omnigraph.errors import AlreadyExists, DamagedFile, InputError, StorageError
from omnigraph.storage.digests import (
    FileDigest,
    digest_chunks,
    digest_of,
    digesting,
    encode_listing,
    listing_name,
)
from omnigraph.storage.layout import MANIFEST, RESTORING, SCHEMA_OBJECTS
from omnigraph.storage.publisher import place_registry

THREADS = 4
RESTORED = "restored"
"""The listing with digests of files for which the manifest has none, or outdated ones."""

Chunks = Callable[[str], Iterator[bytes]]
"""Reads a file of an image by its name."""


def clone(
    source: Kernel, destination: str | os.PathLike[str], *, branch: str | None = None
) -> CopyReceipt:
    """Copy a graph, with all branches or main and one, to another root.

    Raises `AlreadyExists` if ``destination`` is not empty, except after an interrupted clone of the
    same graph, which is continued.
    """
    claim = {"clone_of": source.root.uri}
    for image in images(source, branch):
        try:
            return place(image, source.store.chunks, Kernel.of(Root.parse(destination)), claim)
        except Vanished:
            continue
    raise StorageError("files kept vanishing", hint="run it again when no cleanup runs")


def place(image: CopyImage, chunks: Chunks, target: Kernel, claim: dict[str, str]) -> CopyReceipt:
    """Write an image to the root of ``target``, as a graph."""
    store = target.store
    _claim(store, claim)
    work = _Placing(image, chunks, store)
    last = [name for name in image.files if name.startswith(f"{MANIFEST}/_versions/")]
    first = [partial(work.put, name) for name in image.files if name not in last]
    copied = [*concurrently(*first, threads=True, work_max=THREADS), *map(work.put, last)]
    # Not the files of the accepted schema: a schema change replaces them, and they contain
    # their hash.
    kept = {name: each for name, each in work.digests.items() if name not in SCHEMA_OBJECTS}
    store.write(listing_name(RESTORED), encode_listing(kept))
    place_registry(target.manifest, target.root.uri, image.heads)
    _require_heads(image, target)
    store.delete(RESTORING)
    return CopyReceipt(
        target.root.uri,
        dict(image.heads),
        len(image.files),
        sum(each.size for each in image.files.values()),
        sum(size > 0 for size in copied),
        sum(copied),
    )


def _claim(store: ObjectStore, claim: dict[str, str]) -> None:
    """Claim a root for a copy; it has to be empty, or hold the same interrupted copy."""
    content = orjson.dumps(claim)
    found = store.read_if_exists(RESTORING)
    if found == content:
        return
    if found is not None:
        raise AlreadyExists(
            f"another copy is being made at {store.root}",
            hint=f"repeat that one, or delete the folder: {found.decode(errors='replace')}",
        )
    if store.list():
        raise AlreadyExists(f"{store.root} is not empty", hint="choose a place that does not exist")
    store.probe_atomic_create()
    if not store.write_if_absent(RESTORING, content):
        raise AlreadyExists(f"another copy is being made at {store.root}", hint="choose another")


class _Placing:
    """Copies the files of an image to the root of a store."""

    def __init__(self, image: CopyImage, chunks: Chunks, store: ObjectStore) -> None:
        self._image = image
        self._chunks = chunks
        self._store = store
        self._there = store.sizes()
        self.digests: dict[str, FileDigest] = {}
        """The digests of the written files, by name."""

    def put(self, name: str) -> int:
        """Copy a file, unless it exists; returns the number of bytes written."""
        self.digests[name], copied = self._put(name, self._image.files[name])
        return copied

    def _put(self, name: str, file: ImageFile) -> tuple[FileDigest, int]:
        store = self._store
        if "/tree/" in name and name.endswith(".manifest"):
            content = file.content if file.content is not None else self._whole(name)
            _require(name, file, digest_of(content))
            moved = moved_version(content, self._image.source, store.root.uri)
            store.write(name, moved)
            return digest_of(moved), len(moved)
        if file.content is not None:
            store.write(name, file.content)
            return digest_of(file.content), file.size
        if self._there.get(name) == file.size:
            found = digest_chunks(store.chunks(name))
            if expected(file, found):
                return found, 0
        found = copy_file(self._chunks(name), partial(store.write_chunks, name))
        _require(name, file, found)
        return found, found.size

    def _whole(self, name: str) -> bytes:
        parts: list[bytes] = []
        copy_file(self._chunks(name), parts.extend)
        return b"".join(parts)


def copy_file(chunks: Iterator[bytes], write: Callable[[Iterator[bytes]], None]) -> FileDigest:
    """Copy a file, computing its digest; raises `Vanished` if it was removed."""
    digests: list[FileDigest] = []
    try:
        write(digesting(chunks, digests.append))
    except StorageFailure as failure:
        if failure.failure_class is FailureClass.NOT_FOUND:
            raise Vanished(failure.message) from failure
        raise
    return digests[0]


def _require(name: str, file: ImageFile, found: FileDigest) -> None:
    if not expected(file, found):
        raise DamagedFile(
            name,
            "`omnigraph scrub` or `backup verify` names everything that is damaged",
            "its content is not what was written",
        )


def _require_heads(image: CopyImage, target: Kernel) -> None:
    for name, commit_id in image.heads.items():
        head = target.manifest.refreshed(name).state.head.commit_id
        if head != commit_id:
            raise StorageError(f"branch {name} of the copy is at {head} instead of {commit_id}")


# --- version files --------------------------------------------------------------------------------
#
# A version file of Lance ends with the offset of its manifest, two version numbers and four magic
# letters. The manifest is a protobuf message after its length; the bytes before it are kept.

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_BASE_PATHS = 18
"""The protobuf field with the base paths: the datasets whose files are shared."""
_PATH = 4
"""The field of a base path with its address."""
_BYTES = 2
"""The wire type of length-delimited fields."""


def moved_version(content: bytes, source: str, target: str) -> bytes:
    """The version file with the root ``source`` replaced by ``target``.

    Raises `InputError` for a file in an unknown format.
    """
    position, major, minor, magic = _FOOTER.unpack(content[-_FOOTER.size :])
    start = position + _LENGTH.size
    (length,) = _LENGTH.unpack(content[position:start])
    if magic != b"LANC" or start + length + _FOOTER.size != len(content):
        raise InputError("a version file of Lance has an unknown form", hint="upgrade Omnigraph")
    moved = bytearray()
    for number, kind, raw, value in _fields(content[start : start + length]):
        if (number, kind) == (_BASE_PATHS, _BYTES):
            moved += _field(_BASE_PATHS, _moved_base(value, source, target))
        else:
            moved += raw
    footer = _FOOTER.pack(position, major, minor, magic)
    return content[:position] + _LENGTH.pack(len(moved)) + bytes(moved) + footer


def _moved_base(base: bytes, source: str, target: str) -> bytes:
    moved = bytearray()
    for number, kind, raw, value in _fields(base):
        path = value.decode(errors="replace") if kind == _BYTES else ""
        if number == _PATH and (path == source or path.startswith(f"{source}/")):
            moved += _field(_PATH, f"{target}{path.removeprefix(source)}".encode())
        else:
            moved += raw
    return bytes(moved)


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Number, wire type, bytes and value of each field of a message."""
    at = 0
    while at < len(message):
        begin = at
        key, at = _number(message, at)
        kind = key & 7
        value = b""
        match kind:
            case 0:
                _, at = _number(message, at)
            case 1:
                at += 8
            case 2:
                size, at = _number(message, at)
                value = message[at : at + size]
                at += size
            case 5:
                at += 4
            case _:
                raise InputError("a version file of Lance has an unknown form")
        yield key >> 3, kind, message[begin:at], value


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _field(number: int, value: bytes) -> bytes:
    return _encoded(number << 3 | _BYTES) + _encoded(len(value)) + value


def _encoded(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)
