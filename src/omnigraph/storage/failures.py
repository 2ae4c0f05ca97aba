"""Translates errors of Lance and Arrow to our error types; builds on `effects.failures`, which
translates those of the OS and of stores.

Every call into Lance is made inside ``with lance_errors(handle, verb):``, which counts it. It
raises a `DamagedFile` that names the file, or the error for a version that cleanup removed, a full
disk or a failure of the store, or else a `StorageError`; never an exception of a library.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow as pa
from lance import LanceDataset

from omnigraph.effects.failures import (
    FULL,
    NO_MORE_FILES,
    FailureClass,
    StorageFailure,
    StoreFull,
    StoreReply,
    from_os_error,
    from_store_error,
    hint_for,
)
from omnigraph.effects.requests import IoEvent, current_meter
from omnigraph.errors import HistoricalVersionReclaimed, OmnigraphError, StorageError

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_SOURCE_PLACE = re.compile(r",? ?\S+\.rs:\d+:\d+.*")
_CUT_BLOB = re.compile(r"blob range .* exceeds blob object size \d+|has size \d+, expected \d+")
"""Lance's message for a blob file with a wrong length after a write."""
_TRANSPORT = re.compile(r"HTTP error|timed out|error sending request|connection", re.IGNORECASE)
LIBRARY_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)
"""The exceptions of Lance and Arrow, for callers that tell a lost commit from other failures. All
other callers use `lance_errors`, which also handles panics."""
_REMOVAL_LOOKS = 10
_REMOVAL_PAUSE_S = 0.05
"""The pause between checks: cleanup removes the files of a version before the version itself."""


def count_lance(verb: str, target: str) -> None:
    """Count one Lance call in the running measurement, if there is one."""
    meter = current_meter.get()
    if meter is not None:
        meter.add(IoEvent("lance", verb, target), 1, round_trips=1)


class lance_errors:  # noqa: N801 - a statement, like `suppress`
    """Translate errors of a block that calls Lance, naming a dataset or an address.

    With ``verb``, the call is counted as well.
    """

    __slots__ = ("_where",)

    def __init__(self, where: LanceDataset | str, verb: str | None = None) -> None:
        self._where = where
        if verb is not None:
            count_lance(verb, where if isinstance(where, str) else where.uri)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and is_of_a_library(error):
            raise lance_failure(self._where, error) from error


def is_of_a_library(error: BaseException) -> bool:
    """Whether an error is one of Lance, Arrow or the OS, and not one of ours.

    A panic of Lance does not derive from `Exception`, and its class cannot be imported.
    """
    if isinstance(error, OmnigraphError):
        return False
    return isinstance(error, LIBRARY_ERRORS) or type(error).__name__ == "PanicException"


def lance_failure(where: LanceDataset | str, error: BaseException) -> OmnigraphError:
    """Our error for a failure of Lance.

    Given the open dataset instead of its address, it also finds a damaged file, and a version that
    was removed during the read.
    """
    address = where if isinstance(where, str) else where.uri
    known = store_failure(address, error)
    if known is not None:
        return known
    if not isinstance(where, str):
        if is_missing(error) and _was_removed(where):
            return reclaimed(address, where.version)
        from omnigraph.storage.damage import damage_behind  # it looks for files of versions, too

        damaged = damage_behind(where, str(error)) if _is_local(address) else None
        if damaged is not None:
            return damaged
    if (cut := _CUT_BLOB.search(str(error))) is not None and _is_local(address):
        # No file of the version is damaged, so the truncated file was being written.
        return StoreFull(
            FailureClass.PERMANENT,
            "write to",
            address,
            f"a file of blobs was cut: {cut[0]}",
            hint=hint_for(errno.ENOSPC),
        )
    return StorageError(f"{address} could not be used: {sentence_of(error)}", hint=hint_of(error))


def store_failure(address: str, error: BaseException) -> StorageFailure | None:
    """The failure of the disk or store that caused an error; None for other causes."""
    number = _os_error(error)
    if number is not None and number in FULL + NO_MORE_FILES:
        verb = "write to" if number in FULL else "use"
        return from_os_error(OSError(number, os.strerror(number)), verb, address)
    if _is_local(address) or not isinstance(error, Exception):
        return None
    if StoreReply.of(error).status or _TRANSPORT.search(str(error)):
        failure = from_store_error(error, "use", address)
        return None if failure.failure_class == "NotFound" else failure
    return None


def reclaimed(address: str, version: int) -> HistoricalVersionReclaimed:
    """The error for a version that cleanup removed."""
    return HistoricalVersionReclaimed(
        f"version {version} of {address} no longer exists",
        hint="it was removed by cleanup; read a newer commit",
        details={"file": str(version_file(address, version))},
    )


def _was_removed(handle: LanceDataset) -> bool:
    """Whether the version of a handle was removed while newer ones exist.

    Checks several times, since a running cleanup may be about to remove it.
    """
    for look in range(_REMOVAL_LOOKS):
        if look:
            time.sleep(_REMOVAL_PAUSE_S)
        try:
            newest = handle.latest_version
            if newest <= handle.version:
                return False  # cleanup keeps the newest version
            if not _is_listed(handle):
                return True
        except BaseException as error:
            if not is_of_a_library(error):
                raise
            return False
    return False


def _is_listed(handle: LanceDataset) -> bool:
    if _is_local(handle.uri):
        return version_file(handle.uri, handle.version).exists()
    found: list[Any] = handle.versions()
    return any(each["version"] == handle.version for each in found)


def _is_local(address: str) -> bool:
    return "://" not in address


def is_missing(error: BaseException) -> bool:
    """Whether an error means that a file or dataset was not found."""
    text = str(error).lower()
    # ENOTDIR: the path leads through a file, so nothing exists there.
    return "not found" in text or "does not exist" in text or f"(os error {errno.ENOTDIR})" in text


def _os_error(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    number = _OS_ERROR.search(str(error))
    return int(number[1]) if number is not None else None


def hint_of(error: BaseException) -> str | None:
    """The hint for an OS error that Lance passes on as text; None for other errors."""
    number = _os_error(error)
    return hint_for(number) if number is not None else None


def sentence_of(error: BaseException) -> str:
    """The useful part of a library's message: the first line, without places in its source."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return _SOURCE_PLACE.sub("", first)


_VERSION_MAX = 2**64 - 1
"""Lance names version files by the difference to this, so that the newest sorts first; older
datasets use the plain number."""


def version_file(address: str, version: int) -> Path:
    """The file of one version of a local dataset or ref."""
    folder = Path(address) / "_versions"
    older = folder / f"{version}.manifest"
    return older if older.exists() else folder / f"{_VERSION_MAX - version:020d}.manifest"


def version_named(stem: str) -> int:
    """The version of a file with this name."""
    number = int(stem)
    return _VERSION_MAX - number if number > _VERSION_MAX // 2 else number


P = ParamSpec("P")
T = TypeVar("T")


def translated(
    work: Callable[Concatenate[LanceDataset, P], T],
) -> Callable[Concatenate[LanceDataset, P], T]:
    """Give failures of Lance a type, such as a full disk or removed files."""

    @wraps(work)
    def translated(handle: LanceDataset, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with lance_errors(handle):
            return work(handle, *args, **kwargs)

    return translated
