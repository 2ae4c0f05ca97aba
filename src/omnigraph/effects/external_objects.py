"""Objects outside of a graph, fetched whole because a write copies them.

The caller has proved by its URI that an object lies below an allowed base. On a file system that is
not the whole truth: a symbolic link may lead out of the base again, so files are looked at where
they really lie.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.effects.failures import FailureClass, StorageFailure, from_os_error
from omnigraph.effects.io_counters import count
from omnigraph.effects.uri import Root
from omnigraph.errors import InputError, LimitExceeded
from omnigraph.model.external_uris import ExternalBases, ExternalPlace

if TYPE_CHECKING:
    from omnigraph.effects.remote_objects import RemoteObjects

TRANSFER_TIMEOUT = "300s"
"""Payloads are larger than the objects a graph keeps for itself, and take longer."""


class ExternalObjects:
    """Reads external objects; the connection to a bucket is made once."""

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
        # Not waiting, should it be a pipe that nobody writes to.
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
