"""Merge conflicts: why source and target could not be joined, one record per entity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from omnigraph.model.changes import Image
from omnigraph.model.ids import EntityKind, TableKey

ConflictPolicy: TypeAlias = Literal["fail", "source", "target"]
"""What a conflict about an entity leads to: nothing is merged, or one side wins."""

MergeGranularity: TypeAlias = Literal["entity", "property"]
"""What both sides must not have changed: one entity, or one property of it."""


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


@dataclass(frozen=True, slots=True)
class RowConflict(MergeConflict):
    """A conflict about one entity, and what each side makes of it.

    An entity that a side does not have has no image there. Of very many conflicts, only the first
    have images at all.
    """

    base: Image | None = None
    source: Image | None = None
    target: Image | None = None
    properties: tuple[str, ...] = ()
    """The properties, and the ends of an edge as `from` and `to`, that the sides disagree about."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, with the images there are."""
        images = {"base": self.base, "source": self.source, "target": self.target}
        shown = {name: image.to_dict() for name, image in images.items() if image is not None}
        out = MergeConflict.to_dict(self) | shown
        if self.properties:
            out["properties"] = list(self.properties)
        return out
