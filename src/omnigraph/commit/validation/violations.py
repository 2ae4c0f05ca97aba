"""What a broken constraint is reported as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from omnigraph.errors import ConstraintViolation
from omnigraph.model.arrow import SRC
from omnigraph.model.ids import EntityKind
from omnigraph.model.json_object import HIDDEN
from omnigraph.model.merging import ConflictKind, MergeConflict
from omnigraph.schema.catalog import EdgeType, NodeType


@dataclass(frozen=True, slots=True)
class MissingNode:
    """The node that an edge lacks."""

    member: str
    """`src` or `dst`."""
    type_name: str
    entity_id: str
    is_removed: bool = False
    """Whether the write takes it away from an edge that stays."""


@dataclass(frozen=True, slots=True)
class Degree:
    """The node that has too many edges of a type, or too few."""

    source: str
    too_few: bool

    @property
    def hint(self) -> str:
        """What to do about it."""
        return TOO_FEW_HINT if self.too_few else TOO_MANY_HINT


@dataclass(frozen=True, slots=True)
class Violation(MergeConflict):
    """One broken constraint: an error for a mutation or a load, a conflict for a merge."""

    missing: Annotated[MissingNode | None, HIDDEN] = None
    """Of an edge without a node."""
    degree: Annotated[Degree | None, HIDDEN] = None
    """Of a node with too many edges, or too few."""

    @property
    def hint(self) -> str | None:
        """What to do about it, where that is not plain."""
        if self.degree is not None:
            return self.degree.hint
        return STRANDED_HINT if self._is_stranded else None

    @property
    def sentence(self) -> str:
        """The message as a writer is told it; a merge tells its own in other words."""
        if not self._is_stranded:
            return self.message
        assert self.missing is not None
        return stranded(self.type_name, self.entity_id or "", self.missing)

    @property
    def _is_stranded(self) -> bool:
        return self.missing is not None and self.missing.is_removed

    def to_error(self) -> ConstraintViolation:
        """The violation as the failure of a write."""
        details = self.to_dict()
        del details["message"]
        return ConstraintViolation(self.sentence, hint=self.hint, details=details)


STRANDED_HINT = "load its edges as well, or keep the node"
TOO_MANY_HINT = "leave out edges, or allow more of them with @card in the schema"
TOO_FEW_HINT = "add edges, or allow fewer of them with @card in the schema"


def stranded(edge_type: str, edge_id: str, node: MissingNode) -> str:
    """What is said about an edge that stays while a load replaces its node."""
    verb = "starts at" if node.member == SRC else "ends at"
    return (
        f"edge {edge_type} '{edge_id}', which is kept, {verb} {node.type_name}"
        f" '{node.entity_id}', which this load removes"
    )


def violation(
    type: NodeType | EdgeType,
    entity_id: str | None,
    kind: ConflictKind,
    message: str,
    missing: MissingNode | None = None,
    *,
    degree: Degree | None = None,
) -> Violation:
    """A violation by an entity of ``type``."""
    entity_kind: EntityKind = "edge" if isinstance(type, EdgeType) else "node"
    return Violation(entity_kind, type.name, entity_id, kind, message, missing, degree)
