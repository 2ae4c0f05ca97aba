"""Something is in use: the same request may succeed later."""

from __future__ import annotations

from typing import ClassVar

from omnigraph.errors.base import OmnigraphError


class Busy(OmnigraphError):
    """The resource is in use; the same request may succeed later."""

    code = "busy"
    wire_code: ClassVar[str | None] = None


class InitializationClaimed(Busy):
    """Another `init` of the same root is running."""

    code = "initialization_claimed"


class WriterBusy(Busy):
    """A live writer kept its lease past the wait budget."""

    code = "writer_busy"
    detail_key = "writer_busy"

    def __init__(self, scope: str, owner: str, retry_after_ms: int) -> None:
        super().__init__(
            f"{scope} is being written by {owner}",
            hint=f"try again in {retry_after_ms} ms",
            details={"scope": scope, "owner": owner, "retry_after_ms": retry_after_ms},
        )


class TooManyRequests(Busy):
    """Admission control turned the request away."""

    code = "too_many_requests"
    wire_code = "too_many_requests"
