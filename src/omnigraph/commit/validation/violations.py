"""What a broken constraint is reported as."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.errors import ConstraintViolation
from omnigraph.model.conflicts import ConflictKind, MergeConflict
from omnigraph.model.ids import EntityKind
from omnigraph.schema.catalog import EdgeType, NodeType


@dataclass(frozen=True, slots=True)
class Violation(MergeConflict):
    """One broken constraint: an error for a mutation or a load, a conflict for a merge."""

    def to_error(self) -> ConstraintViolation:
        """The violation as the failure of a write."""
        details = self.to_dict()
        del details["message"]
        return ConstraintViolation(self.message, details=details)


def violation(
    type: NodeType | EdgeType, entity_id: str | None, kind: ConflictKind, message: str
) -> Violation:
    """A violation by an entity of ``type``."""
    entity_kind: EntityKind = "edge" if isinstance(type, EdgeType) else "node"
    return Violation(entity_kind, type.name, entity_id, kind, message)
