"""Merge conflicts and merge plans in the form that callers read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from omnigraph.errors import MergeConflicts
from omnigraph.model.changes import (
    MARKS,
    ChangeOp,
    Endpoints,
    EntityChange,
    Image,
    spelled,
    subject,
)
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.json_object import OPTIONAL, Json, JsonObject
from omnigraph.model.receipts import MergeOutcome
from omnigraph.model.records import dataclass
from omnigraph.model.text_table import TextTable, html_line, html_table

ConflictPolicy: TypeAlias = Literal["fail", "source", "target"]
"""How a conflict about an entity is resolved: not at all (nothing is merged), or for one side."""

MergeGranularity: TypeAlias = Literal["entity", "property"]
"""The unit in which both sides conflict: an entity, or a property of it."""


class ConflictKind(StrEnum):
    """The kind of a conflict, with the names used in JSON."""

    DIVERGENT_INSERT = "divergent_insert"
    """One id was inserted differently on both sides."""
    DIVERGENT_UPDATE = "divergent_update"
    """One entity was updated differently on both sides."""
    DELETE_VS_UPDATE = "delete_vs_update"
    """One side deleted an entity, the other updated it."""
    ORPHAN_EDGE = "orphan_edge"
    """An edge of one side needs a node that the other deleted."""
    UNIQUE_VIOLATION = "unique_violation"
    """The merged result violates a unique constraint."""
    CARDINALITY_VIOLATION = "cardinality_violation"
    """The merged result violates the cardinality of an edge type."""
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"
    """The merged result violates an enum, range or check constraint."""


ROW_CONFLICTS = frozenset(
    {ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_VS_UPDATE}
)
"""Both sides changed one entity differently; the other kinds are about the merged graph."""


@dataclass(frozen=True, slots=True)
class MergeConflict(JsonObject):
    """One conflict: why source and target could not be merged."""

    entity_kind: EntityKind
    type_name: str
    entity_id: str | None
    kind: ConflictKind
    message: str

    computed: ClassVar[Mapping[str, Json]] = {"table_key": Json()}

    @property
    def table_key(self) -> str:
        """`node:Name` or `edge:Name`."""
        return TableKey.of(self.entity_kind, self.type_name)

    @property
    def text(self) -> str:
        """The message, preceded by the entity if the message does not name it."""
        if self.entity_id is None or f"'{self.entity_id}'" in self.message:
            return self.message
        return f"{self.type_name} '{self.entity_id}': {self.message}"

    @property
    def sort_key(self) -> tuple[str, str]:
        """Sorts row conflicts by type key and id."""
        return self.table_key, self.entity_id or ""

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> MergeConflict:
        """The conflict; one about the values of an entity is a `RowConflict`."""
        kind = RowConflict if document["kind"] in ROW_CONFLICTS else cls
        return super(MergeConflict, kind).from_dict(document)


@dataclass(frozen=True, slots=True)
class RowConflict(MergeConflict):
    """A conflict about one entity, with its image on each side.

    A side without the entity has no image. If there are very many conflicts, only the first have
    images at all.
    """

    base: Annotated[Image | None, OPTIONAL] = None
    source: Annotated[Image | None, OPTIONAL] = None
    target: Annotated[Image | None, OPTIONAL] = None
    properties: Annotated[tuple[str, ...], Json(unless=())] = ()
    """The properties, and the ends of an edge as `from` and `to`, in which the sides differ."""


HIDDEN_CONFLICT = (
    "something that you do not see prevents this merge; ask an actor who sees all of both branches"
)
"""The only message for conflicts in types, properties or rows hidden from the reader of a plan."""

CONFLICTS_PRINTED = 20
CHANGES_PRINTED = 20
HEADERS = ("type", "how", "inserted", "updated", "deleted", "conflicts", "resolved")


@dataclass(frozen=True, slots=True)
class PlannedType(JsonObject):
    """What a merge changes in one type of the target."""

    kind: EntityKind
    type_name: str
    is_adopted: Annotated[bool, Json("adopted")]
    """Whether only the source changed the type since the base."""
    inserted: int
    updated: int
    deleted: int
    conflicts: int
    resolved: int
    """Conflicts that were resolved by a rule."""

    @property
    def cells(self) -> tuple[str | int, ...]:
        """A row of a table under `HEADERS`."""
        how = "adopted" if self.is_adopted else "merged"
        numbers = (self.inserted, self.updated, self.deleted, self.conflicts, self.resolved)
        return (f"{self.kind} {self.type_name}", how, *numbers)


@dataclass(frozen=True, slots=True)
class PlannedChange(JsonObject):
    """One entity of the target that a merge would change."""

    kind: EntityKind
    type_id: str
    """Opaque: kept by a rename, changed when a type is dropped and created again."""
    type_name: str
    id: str
    op: ChangeOp
    endpoints: Annotated[Endpoints | None, OPTIONAL] = None
    """The endpoints of the edge, the last ones if it is deleted."""
    properties: Annotated[tuple[str, ...], Json(unless=())] = ()
    """For an update: the properties that change, and the ends of an edge as `from` and `to`."""

    @property
    def cells(self) -> tuple[str, str, str]:
        """A sign for the operation, the entity, and the changed properties."""
        shown = EntityChange(
            self.kind, self.type_id, self.type_name, self.id, self.op, self.endpoints
        )
        return MARKS[self.op][0], subject(shown), ", ".join(self.properties)


@dataclass(frozen=True, slots=True)
class MergePlan(JsonObject):
    """The effect of a merge: totals per type, some of the entities, and every conflict."""

    source: str
    target: str
    outcome: MergeOutcome
    base_commit_id: str
    source_commit_id: str
    target_commit_id: str
    types: tuple[PlannedType, ...]
    """The types that the merge changes or that have conflicts."""
    conflicts: Annotated[tuple[MergeConflict | RowConflict, ...], Json("merge_conflicts")]
    schema_steps: Annotated[tuple[Mapping[str, Any], ...], Json(unless=())] = ()
    """The steps from the schema of the source to that of the target; merged entities get them."""
    changes: tuple[PlannedChange, ...] = ()
    """The entities it would change, or some of them: nodes before edges, then by type and id.
    Entities in conflict are not included."""
    next_page_token: Annotated[str | None, OPTIONAL] = None
    """Continues with the rest of the changes; left out of the last page."""
    is_blocked_by_hidden: Annotated[bool, Json("blocked_by_hidden", unless=False)] = False
    """Whether a conflict about data hidden from the caller also prevents the merge."""

    @property
    def is_blocked(self) -> bool:
        """Whether there are conflicts, shown or not."""
        return bool(self.conflicts) or self.is_blocked_by_hidden

    def require_no_conflicts(self, hint: str | None = None) -> None:
        """Raise `MergeConflicts` with ``hint`` if there are any."""
        if self.is_blocked_by_hidden and not self.conflicts:
            error = MergeConflicts(
                f"{self.source} cannot be merged into {self.target}: {HIDDEN_CONFLICT}", []
            )
            error.hint = "nothing was merged; another actor can merge it by a change request"
            raise error
        if self.conflicts:
            count = len(self.conflicts)
            error = MergeConflicts(
                f"{self.source} cannot be merged into {self.target}: "
                f"{count} conflict{'' if count == 1 else 's'}, the first is: "
                f"{self.conflicts[0].text}",
                [conflict.to_dict() for conflict in self.conflicts],
            )
            error.hint = hint or _way_out(self.conflicts)
            raise error

    @property
    def affected(self) -> dict[str, int]:
        """The numbers of changed nodes and edges, as stored with commits."""
        return {
            f"affected_{kind}s": sum(
                each.inserted + each.updated + each.deleted
                for each in self.types
                if each.kind == kind
            )
            for kind in get_args(EntityKind)
        }

    @property
    def title(self) -> str:
        """The title: what is merged into what."""
        return f"{self.source} into {self.target}: {self.outcome.replace('_', ' ')}"

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    @property
    def schema_note(self) -> str | None:
        """A note if the source has an older schema, with the steps to the newer one."""
        if not self.schema_steps:
            return None
        kinds = Counter(str(step.get("kind")).replace("_", " ") for step in self.schema_steps)
        steps = ", ".join(
            kind if count == 1 else f"{count} × {kind}" for kind, count in kinds.items()
        )
        return f"{self.source} has an older schema; what is merged gets: {steps}"

    def _lines(self) -> Iterator[str]:
        yield self.title
        if self.schema_note:
            yield self.schema_note
        if self.types:
            yield ""
            cells = [list(map(str, each.cells)) for each in self.types]
            yield from TextTable().lines(HEADERS, cells, (False, False, *(True,) * 5))
        if self.changes:
            yield ""
        for change in self.changes[:CHANGES_PRINTED]:
            yield "  ".join(change.cells).rstrip()
        if more := self.more_changes(CHANGES_PRINTED):
            yield more
        if self.conflicts:
            yield ""
        for conflict in self.conflicts[:CONFLICTS_PRINTED]:
            yield f"{conflict.kind.value}: {conflict.text}"
        if more := self._more:
            yield more
        if self.is_blocked_by_hidden:
            yield HIDDEN_CONFLICT

    def _repr_html_(self) -> str:
        parts = [html_line(line) for line in (self.title, self.schema_note) if line]
        if self.types:
            colours = ["red" if each.conflicts else None for each in self.types]
            parts.append(html_table(HEADERS, [each.cells for each in self.types], colours))
        if self.changes:
            changes = self.changes[:CHANGES_PRINTED]
            colours = [MARKS[each.op][1] for each in changes]
            headers: tuple[str, ...] = ("", "entity", "changed properties")
            parts.append(html_table(headers, [each.cells for each in changes], colours))
        if more := self.more_changes(CHANGES_PRINTED):
            parts.append(html_line(more))
        if self.conflicts:
            shown = self.conflicts[:CONFLICTS_PRINTED]
            headers = ("conflict", "what happened", "base", "source", "target")
            parts.append(html_table(headers, [_conflict_cells(each) for each in shown]))
        if more := self._more:
            parts.append(html_line(more))
        if self.is_blocked_by_hidden:
            parts.append(html_line(HIDDEN_CONFLICT))
        return "".join(parts)

    def more_changes(self, shown: int) -> str | None:
        """A note if there are more changes than ``shown``, otherwise None."""
        total = sum(each.inserted + each.updated + each.deleted for each in self.types)
        listed = min(shown, len(self.changes))
        if self.next_page_token is None and listed == len(self.changes):
            return None
        return f"… {listed} of {total} changes are listed"

    @property
    def _more(self) -> str | None:
        more = len(self.conflicts) - CONFLICTS_PRINTED
        return f"… and {more} more" if more > 0 else None


def _conflict_cells(conflict: MergeConflict) -> list[str]:
    cells = [conflict.kind.value, conflict.text]
    if not isinstance(conflict, RowConflict):
        return [*cells, "", "", ""]
    sides = (conflict.base, conflict.source, conflict.target)
    return cells + [spelled(side, conflict.properties) for side in sides]


def _way_out(conflicts: Sequence[MergeConflict]) -> str:
    if isinstance(conflicts[0], RowConflict):
        return (
            "nothing was merged; change one of the branches, or let one side win with "
            "`--on-conflict source` or `--on-conflict target` (on_conflict='source'), or join "
            "edits of different properties with `--granularity property` "
            "(granularity='property')"
        )
    return "nothing was merged; the merged graph would break the schema: change one of the branches"
