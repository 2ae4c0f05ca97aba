"""Somebody else was first: nothing landed, and the same request may still make sense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from omnigraph.errors.base import OmnigraphError


class Conflict(OmnigraphError):
    """Nothing landed because the graph moved; read again and retry."""

    code = "conflict"
    wire_code: ClassVar[str | None] = "conflict"


class AlreadyExists(Conflict):
    """The name or the root is already taken."""

    code = "already_exists"


class AlreadyInitialized(AlreadyExists):
    """The root already holds a graph, or schema objects without one."""

    code = "already_initialized"


class ExpectedVersionMismatch(Conflict):
    """A table this write depends on was changed by another commit."""

    code = "expected_version_mismatch"

    def __init__(self, table_key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"{table_key} is at version {actual}, but this write was prepared on {expected}",
            hint="read the branch again and repeat the write",
            details={"table_key": table_key, "expected": expected, "actual": actual},
        )

    def wire_detail(self) -> dict[str, Any]:
        """The current detail member and the one older clients read."""
        kind, _, name = str(self.details["table_key"]).partition(":")
        return {
            "published_dataset_version_conflict": {
                "entity_kind": kind,
                "type_name": name,
                "expected_published_dataset_version": self.details["expected"],
                "actual_published_dataset_version": self.details["actual"],
            },
            "manifest_conflict": self.details,
        }


class ReadSetChanged(Conflict):
    """The branch head, its ref or the schema moved while the write was prepared."""

    code = "read_set_changed"
    detail_key = "read_set_conflict"

    def __init__(self, member: str, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"{member} moved from {expected} to {actual} while the write was prepared",
            hint="read the branch again and repeat the write",
            details={"member": member, "expected": expected, "actual": actual},
        )


class KeyConflict(Conflict):
    """A strict insert met an id that already exists."""

    code = "key_conflict"
    detail_key = "key_conflict"

    def __init__(
        self,
        entity_kind: str,
        type_name: str,
        entity_id: str | None = None,
        *,
        place: str | None = None,
        message: str | None = None,
    ) -> None:
        details = {"entity_kind": entity_kind, "type_name": type_name}
        if entity_id is not None:
            details["entity_id"] = entity_id
        shown = f" with id '{entity_id}'" if entity_id is not None else ""
        where = f"{place}: " if place is not None else ""
        super().__init__(
            message or f"{where}{entity_kind} {type_name}{shown} already exists",
            hint="use mode merge to update existing entities",
            details=details,
        )

    def wire_detail(self) -> dict[str, Any]:
        """Which entity; what else an input has that brought it is told beside it."""
        told = ("entity_kind", "type_name", "entity_id")
        return {"key_conflict": {name: self.details[name] for name in told if name in self.details}}


class RowLevelCasContention(Conflict):
    """Other writers won every attempt to publish."""

    code = "row_level_cas_contention"


class UncoveredDrift(Conflict):
    """A table's newest version is not the published one, and no pending operation explains it."""

    code = "uncovered_drift"

    def __init__(self, table_key: str, branch: str, pin: int, head: int, advice: str) -> None:
        super().__init__(
            f"{table_key} on {branch} is at version {head}, but version {pin} is published",
            hint=advice,
            details={"table_key": table_key, "branch": branch, "pin": pin, "head": head},
        )


class EffectFreeConflict(Conflict):
    """Somebody else was first, and this attempt left nothing behind: it may be prepared again."""

    code = "effect_free_conflict"


class FencedOut(Conflict):
    """Another writer took the lease over; this one must not publish any more."""

    code = "fenced_out"


class PreconditionFailed(Conflict):
    """A conditional write found another head than the caller expected."""

    code = "precondition_failed"
    wire_code = None
    detail_key = "precondition_failure"

    def __init__(self, expected: str, actual: str | None) -> None:
        details = {"expected": expected} | ({"actual": actual} if actual is not None else {})
        super().__init__(
            f"the branch head is {actual}, not {expected}; nothing was written",
            hint="read the branch again and decide whether the write still applies",
            details=details,
        )


class MergeConflicts(Conflict):
    """Source and target changed the same entities, or the merged graph breaks a constraint."""

    code = "merge_conflicts"

    def __init__(self, message: str, conflicts: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message, details={"merge_conflicts": [dict(c) for c in conflicts]})

    def wire_detail(self) -> dict[str, Any]:
        """The conflicts as a list."""
        return self.details


class ChangeDiffRefused(Conflict):
    """A commit cannot be shown as entity changes."""

    code = "change_diff_refused"
    detail_key = "change_diff_refusal"

    _HINTS: ClassVar[Mapping[str, str]] = {
        "parentless_commit": "the first commit of a graph has nothing before it",
        "schema_boundary": "the schema changed the data here; start again behind it, "
        "with `omnigraph changes baseline`",
    }

    def __init__(self, reason: str, graph_commit_id: str, type_name: str | None = None) -> None:
        details = {"reason": reason, "graph_commit_id": graph_commit_id}
        if type_name is not None:
            details["type_name"] = type_name
        super().__init__(
            f"commit {graph_commit_id} has no diff: {reason}",
            hint=self._HINTS.get(reason),
            details=details,
        )
