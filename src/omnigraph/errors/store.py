"""The storage under the graph failed, or holds something unexpected."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError


class StorageError(OmnigraphError):
    """The storage under the graph failed or holds something unexpected."""

    code = "storage_error"


class InitializationCommitted(StorageError):
    """`init` created the graph, and failed afterwards; nothing was taken back."""

    code = "initialization_committed"

    def __init__(self, graph_commit_id: str, reason: str) -> None:
        super().__init__(
            f"the graph was created, but `init` failed afterwards: {reason}",
            hint="open the graph; running `init` again is not needed",
            details={"graph_commit_id": graph_commit_id},
        )


class LeaseLost(StorageError):
    """The lease of a writer ran out or was taken over; it stops by itself."""

    code = "lease_lost"


class DamagedFile(StorageError):
    """A file under the graph is cut off; nothing is guessed about what was in it."""

    code = "damaged_file"

    def __init__(self, file: str, hint: str) -> None:
        message = f"{file} is damaged: its end is missing"
        super().__init__(message, hint=hint, details={"file": file})


class HistoricalVersionReclaimed(StorageError):
    """The version a snapshot pins was removed by cleanup."""

    code = "historical_version_reclaimed"
    wire_code = "not_found"


class ChangeFeedGap(StorageError):
    """The change feed cannot continue from the given cursor."""

    code = "change_feed_gap"
    wire_code = None
    detail_key = "change_feed_gap"

    def __init__(self, first_unreadable_commit_id: str, cursor: str | None = None) -> None:
        details = {"first_unreadable_commit_id": first_unreadable_commit_id}
        if cursor is not None:
            details["cursor"] = cursor
        super().__init__(
            f"the change feed is not readable from commit {first_unreadable_commit_id} on",
            hint="take a new baseline with `omnigraph changes baseline`",
            details=details,
        )


class RootMoved(StorageError):
    """The graph was moved or copied while branches still point at its former root."""

    code = "root_moved"


class UnsupportedStorageVersion(StorageError):
    """The graph was written in a format this product does not know."""

    code = "unsupported_storage_version"


class ExternalBlobUnavailable(StorageError):
    """The object behind an external blob URI cannot be read."""

    code = "external_blob_unavailable"
    wire_code = None
    detail_key = "external_blob_source"

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(
            f"external blob {uri} is not readable: {reason}", details={"uri": uri, "reason": reason}
        )
