"""The object contract: small text objects below one root, the same on every backend.

Schema contracts, recovery sidecars and leases are objects. `ObjectStore` defines the contract, and
one suite (`tests/effects/test_object_contract.py`) checks every backend.

Names are relative keys (`uri.check_key`). A name is an object or a prefix of objects, never both:
object stores would allow both, file systems do not.

`ExternalObjects` reads whole objects outside of a graph, which a write copies.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NewType, Protocol

from omnigraph.effects.failures import FailureClass, StorageFailure, from_os_error
from omnigraph.effects.local_disk import Durability, configured_durability
from omnigraph.effects.requests import count
from omnigraph.effects.uri import Root
from omnigraph.errors import InputError, LimitExceeded
from omnigraph.model.external_uris import ExternalBases, ExternalPlace

if TYPE_CHECKING:
    from omnigraph.effects.remote_objects import RemoteObjects


Token = NewType("Token", str)
"""A token for the content of an object when it was read.

Two reads with the same token returned the same bytes. An object that was changed and changed back
may have its old token again; records for which that matters have a counter, such as epoch and beat
of a lease.
"""


CHUNK_BYTES = 1 << 20
"""How many bytes of a large object are held in memory."""


class Attributes(NamedTuple):
    """The metadata of an object in a store."""

    size: int
    tag: str | None = None
    """The store's own checksum (e-tag); None on local disk."""


class ObjectStore(Protocol):
    """Text objects below one root.

    A failure raises `StorageFailure` with its class. An acknowledged write is readable in full by
    every process through every interface.
    """

    root: Root
    """The root of the objects."""

    def read(self, key: str) -> bytes:
        """The content of an object; raises a failure of class `NotFound` if it is absent."""
        data = self.read_if_exists(key)
        if data is None:
            raise missing_object("read", self.root.join(key))
        return data

    def read_if_exists(self, key: str) -> bytes | None:
        """The content of an object in one read; `None` only for a proven absence."""

    def read_each(self, keys: Sequence[str]) -> tuple[bytes | None, ...]:
        """The contents of several objects, as from `read_if_exists`, read concurrently."""

    def read_versioned(self, key: str) -> tuple[bytes, Token] | None:
        """Content and token of an object from one read; `None` only for a proven absence."""

    def write(self, key: str, data: bytes) -> None:
        """Create or replace an object atomically: a reader sees the old or the new content."""

    def write_if_absent(self, key: str, data: bytes) -> bool:
        """Create an object atomically; False if the name is taken.

        Of concurrent callers exactly one gets True, and the others change nothing.
        """

    def write_if_match(self, key: str, data: bytes, token: Token) -> Token | None:
        """Replace an object that still has the content of ``token``; returns the new token.

        `None` if it has other content or was deleted: another writer was first, and nothing was
        changed. The comparison and the replacement are one atomic step for all processes.

        If the store does not report whether the write took effect, the failure is of class
        `Unknown` or `Transient`, and the caller has to read the object to find out. A lost reply is
        never reported as a lost race.
        """

    def exists(self, key: str) -> bool:
        """Whether there is an object of this name, or at least one object below it.

        False for an empty directory. Raises a failure if it cannot be determined.
        """

    def list(self, prefix: str = "") -> list[str]:
        """Sorted names of all objects below ``prefix``, at any depth, ready for `read`.

        `a` lists `a/x` and `a/b/y`, never `a` itself or `ab/x`. The empty prefix lists the root.
        """

    def attributes(self, key: str) -> Attributes | None:
        """Size and checksum of an object, without its content; `None` for a proven absence."""

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """The objects of `list`, with their sizes in bytes."""

    def chunks(self, key: str) -> Iterator[bytes]:
        """The content of an object of any size in parts; raises a failure if it is absent."""

    def write_chunks(self, key: str, parts: Iterable[bytes]) -> None:
        """Create or replace an object of any size from parts, atomically."""

    def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below ``prefix``, and empty directories; idempotent.

        The empty prefix is refused, so that a missing argument does not delete the whole root.
        """

    def copy(self, source: str, target: str) -> None:
        """Copy an object of any size under another name, replacing the target.

        A reader of the target sees the old or the new content.
        """

    def rename(self, source: str, target: str) -> None:
        """Move an object, replacing the target and creating missing directories.

        Atomic on local disk. Remote stores copy and then delete: a crash in between leaves both,
        and repeating the rename completes it.
        """

    def probe_atomic_create(self) -> None:
        """Verify that the store implements `write_if_absent` and `write_if_match` correctly.

        Raises a failure of class `Configuration` if it does not. Removes its objects. It writes, so
        a read-only open does not call it.
        """


def missing_object(operation: str, target: str) -> StorageFailure:
    """The failure of a request for a missing object."""
    return StorageFailure(FailureClass.NOT_FOUND, operation, target, "there is no such object")


def open_store(root: Root, durability: Durability | None = None) -> ObjectStore:
    """The store at ``root``. Opening it sends no request.

    ``durability`` applies to local roots and defaults to the setting of the process. All handles of
    a `memory://` root in a process share its objects, which exist as long as a handle does.
    """
    if root.is_local:
        from omnigraph.effects.local_objects import LocalObjects

        return LocalObjects(root, durability or configured_durability())
    from omnigraph.effects.remote_objects import open_memory, open_s3

    return open_s3(root) if root.scheme == "s3" else open_memory(root)


TRANSFER_TIMEOUT = "300s"
"""Longer than for a graph's own objects, since external ones are larger."""


class ExternalObjects:
    """Reads objects outside of a graph; connects to each bucket once.

    The caller has checked by the URI that an object is below an allowed base. A symbolic link may
    lead out of the base, so files are resolved before they are opened.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, RemoteObjects] = {}

    def read(self, place: ExternalPlace, base: ExternalPlace, bytes_max: int) -> bytes:
        """The content of an object below ``base``.

        Raises `StorageFailure` if it cannot be read, and `LimitExceeded` before fetching it if it
        has more than ``bytes_max``.
        """
        if place.scheme == "file":
            return _read_file(place, base, bytes_max)
        return self._bucket(place.bucket).read_at_most(place.key, bytes_max)

    def _bucket(self, name: str) -> RemoteObjects:
        known = self._buckets.get(name)
        if known is None:
            from omnigraph.effects.remote_objects import open_s3

            root = Root.parse(f"s3://{name}")
            known = self._buckets[name] = open_s3(root, timeout=TRANSFER_TIMEOUT)
        return known


def require_directories(bases: ExternalBases) -> None:
    """Refuse file bases that are not directories of this machine."""
    for base in bases.places:
        if base.scheme == "file" and not _path(base).is_dir():
            raise InputError(
                f"the base {base} is not a directory",
                hint="name an existing directory, as file:///path/to/it",
            )


def _path(place: ExternalPlace) -> Path:
    return Path("/", place.key)


def _read_file(place: ExternalPlace, base: ExternalPlace, bytes_max: int) -> bytes:
    target = str(place)
    count("object", "read", target)
    try:
        real, allowed = _path(place).resolve(strict=True), _path(base).resolve(strict=True)
        if not real.is_relative_to(allowed):
            reason = "a symbolic link leads out of the allowed base"
            raise StorageFailure(FailureClass.CONFIGURATION, "read", target, reason)
        # Non-blocking, since opening a pipe without a writer would hang.
        handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise StorageFailure(FailureClass.PERMANENT, "read", target, "it is not a file")
            if found.st_size > bytes_max:
                raise LimitExceeded(f"bytes of {target}", bytes_max, found.st_size)
            with os.fdopen(handle, "rb", closefd=False) as file:
                return file.read(found.st_size)
        finally:
            os.close(handle)
    except RuntimeError:  # a loop of symbolic links
        reason = "its symbolic links lead in a circle"
        raise StorageFailure(FailureClass.CONFIGURATION, "read", target, reason) from None
    except OSError as error:
        raise from_os_error(error, "read", target) from error
