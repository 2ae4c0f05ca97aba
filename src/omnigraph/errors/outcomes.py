"""An operation did not end: it has to be settled, or asked about."""

from __future__ import annotations

from typing import Any

from omnigraph.errors.base import OmnigraphError


class RecoveryRequired(OmnigraphError):
    """An unfinished operation has to be settled before this request can run."""

    code = "recovery_required"
    wire_code = None

    def __init__(self, operation_id: str | None, reason: str, advice: str) -> None:
        super().__init__(
            reason, hint=advice, details={"operation_id": operation_id, "reason": reason}
        )

    def wire_detail(self) -> dict[str, Any]:
        """Only the operation id travels; the reason is the sentence."""
        return {"recovery_required": {"operation_id": self.details["operation_id"]}}


class UnreadableSidecar(RecoveryRequired):
    """A record of an operation that this product cannot understand; it is kept, nothing guessed."""

    code = "unreadable_sidecar"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            name.rpartition("/")[2].removesuffix(".json"),
            f"recovery sidecar {name} {problem}",
            "inspect the file; if its operation is known to be settled, move it away and run "
            "`omnigraph recover`",
        )


class OutcomeUnknown(OmnigraphError):
    """The store did not say whether the operation landed; ask with its operation id."""

    code = "outcome_unknown"
    wire_code = None

    def __init__(self, operation_id: str, reason: str) -> None:
        super().__init__(
            reason,
            hint="repeat the request with the same operation id to learn its outcome",
            details={"operation_id": operation_id},
        )


class InitializationIndeterminate(OutcomeUnknown):
    """`init` was not told whether the graph was created; everything it wrote is kept."""

    code = "initialization_indeterminate"


class AnswerLost(OutcomeUnknown):
    """The connection broke after a write was sent; the server may have done it."""

    code = "answer_lost"

    def __init__(self, reason: str) -> None:
        # A write over HTTP has no name to ask with, so history has to be looked at.
        OmnigraphError.__init__(
            self,
            reason,
            hint="look at the newest commits of the branch before you repeat the write",
        )
