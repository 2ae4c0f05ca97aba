"""Merge conflicts: why source and target could not be joined, one record per entity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omnigraph.model.ids import EntityKind, TableKey


class ConflictKind(StrEnum):
    """What went wrong, spelled as on the wire."""

    DIVERGENT_INSERT = "divergent_insert"
    """One id was inserted differently on both sides."""
    DIVERGENT_UPDATE = "divergent_update"
    """One entity was updated differently on both sides."""
    DELETE_VS_UPDATE = "delete_vs_update"
    """One side deleted an entity, the other updated it."""
    ORPHAN_EDGE = "orphan_edge"
    """An edge of one side needs a node the other deleted."""
    UNIQUE_VIOLATION = "unique_violation"
    """The merged result breaks a unique group."""
    CARDINALITY_VIOLATION = "cardinality_violation"
    """The merged result breaks an edge bound."""
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"
    """The merged result breaks enum, range or check."""


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """One conflict, as `errors.MergeConflicts` carries it in its dictionary form."""

    entity_kind: EntityKind
    type_name: str
    entity_id: str | None
    kind: ConflictKind
    message: str

    @property
    def table_key(self) -> str:
        """`node:Name` or `edge:Name`."""
        return str(TableKey(self.entity_kind, self.type_name))

    @property
    def sort_key(self) -> tuple[str, str]:
        """Row conflicts are reported by type key and id."""
        return self.table_key, self.entity_id or ""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "table_key": self.table_key,
            "entity_id": self.entity_id,
            "kind": self.kind.value,
            "message": self.message,
        }
