"""The object contract: small text objects below one root, the same on every backend.

`ExternalObjects` at the end reads objects outside of a graph, whole, because a write copies them.

Schema contracts, recovery sidecars and leases are objects. What they may rely on is said once, in
`ObjectStore`, and one suite (`tests/effects/test_object_contract.py`) runs against every backend.

Names are relative keys (`uri.check_key`). A name is an object or a prefix of objects, never both:
object stores would allow it, file systems do not.
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
"""A token for the bytes an object held when it was read.

Two reads with one token saw the same bytes. An object that was changed and changed back may show
its old token again; a record for which that matters carries a counter, as leases carry epoch and
beat.
"""


CHUNK_BYTES = 1 << 20
"""How much of a large object is held at once."""


class Attributes(NamedTuple):
    """What a store says about an object without reading it."""

    size: int
    tag: str | None = None
    """The store's own checksum (e-tag); None on local disk."""


class ObjectStore(Protocol):
    """Text objects below one root.

    A failure raises `StorageFailure` with its class. An acknowledged write is readable in full by
    every process through every interface.
    """

    root: Root
    """Where the objects live."""

    def read(self, key: str) -> bytes:
        """The content of an object; its absence is a failure of class `NotFound`."""
        data = self.read_if_exists(key)
        if data is None:
            raise missing_object("read", self.root.join(key))
        return data

    def read_if_exists(self, key: str) -> bytes | None:
        """The content of an object in one read; `None` only for a proven absence."""

    def read_each(self, keys: Sequence[str]) -> tuple[bytes | None, ...]:
        """The contents of several objects, as `read_if_exists` has them, read concurrently."""

    def read_versioned(self, key: str) -> tuple[bytes, Token] | None:
        """Content and token of an object, taken together; `None` only for a proven absence."""

    def write(self, key: str, data: bytes) -> None:
        """Create or replace an object; a reader sees the old content or all of the new."""

    def write_if_absent(self, key: str, data: bytes) -> bool:
        """Create an object, whole at the instant its name appears; False if the name was taken.

        Of any number of claimants exactly one gets True, and the others change nothing.
        """

    def write_if_match(self, key: str, data: bytes, token: Token) -> Token | None:
        """Replace an object that still holds what ``token`` stands for, and return the new token.

        `None` when it does not, or is gone: another writer was first and nothing was changed. The
        comparison and the replacement are one step for all processes.

        When the store does not say whether the write took effect, the failure is of class `Unknown`
        or `Transient` and the caller has to read the object to find out; a lost answer is never
        reported as a lost race.
        """

    def exists(self, key: str) -> bool:
        """Whether there is an object of this name, or at least one object below it.

        An empty directory does not exist. What cannot be looked at is a failure, not False.
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
        """The content of an object, however large, in parts; its absence is a failure."""

    def write_chunks(self, key: str, parts: Iterable[bytes]) -> None:
        """Create or replace an object from parts, however large; complete when it appears."""

    def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below ``prefix`` and leave no empty directories; idempotent.

        The empty prefix is refused: a whole root is not deleted by a missing argument.
        """

    def copy(self, source: str, target: str) -> None:
        """Copy an object under another name, replacing the target, however large it is.

        A reader of the target sees the old content or all of the new.
        """

    def rename(self, source: str, target: str) -> None:
        """Move an object, replacing the target and creating what its name needs.

        One step on local disk. Remote stores copy and then delete: a crash between leaves both, and
        repeating the rename finishes it.
        """

    def probe_atomic_create(self) -> None:
        """Prove that the store keeps the promises of `write_if_absent` and `write_if_match`.

        Raises a failure of class `Configuration` if it does not, and leaves nothing behind. It
        writes, so a read-only open does not call it.
        """


def missing_object(operation: str, target: str) -> StorageFailure:
    """The failure of a request for an object that is not there."""
    return StorageFailure(FailureClass.NOT_FOUND, operation, target, "there is no such object")


def open_store(root: Root, durability: Durability | None = None) -> ObjectStore:
    """The store at ``root``. Opening asks nothing of it; the first operation does.

    ``durability`` concerns local roots and defaults to the setting of the process. All handles of
    one `memory://` root in a process see the same objects, which last as long as a handle does.
    """
    if root.is_local:
        from omnigraph.effects.local_objects import LocalObjects

        return LocalObjects(root, durability or configured_durability())
    from omnigraph.effects.remote_objects import open_memory, open_s3

    return open_s3(root) if root.scheme == "s3" else open_memory(root)


TRANSFER_TIMEOUT = "300s"
"""Payloads are larger than the objects a graph keeps for itself, and take longer."""


class ExternalObjects:
    """Reads objects outside of a graph; the connection to a bucket is made once.

    The caller has proved by its URI that an object lies below an allowed base. A symbolic link may
    lead out of the base again, so files are resolved before they are opened.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, RemoteObjects] = {}

    def read(self, place: ExternalPlace, base: ExternalPlace, bytes_max: int) -> bytes:
        """The content of an object below ``base``.

        Raises `StorageFailure` if it cannot be read, and `LimitExceeded`, before it is fetched, if
        it is longer than ``bytes_max``.
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
    """Refuse bases of files that are no directories of this machine."""
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
        # Non-blocking: a pipe without a writer would hang.
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
