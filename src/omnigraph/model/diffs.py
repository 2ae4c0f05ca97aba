"""Diffs in the form that callers read, embedded or remote."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from omnigraph.model.changes import (
    MARKS,
    ChangeOp,
    Endpoints,
    EntityChange,
    Image,
    TypeCounts,
    difference,
    subject,
)
from omnigraph.model.ids import EntityKind
from omnigraph.model.json_object import OPTIONAL, Json, JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.text_table import TextTable, html_line, html_table

Comparison: TypeAlias = Literal["merge_base", "direct"]
"""The start of a diff: the merge base of the two commits, or the first commit itself."""

HEADERS = ("type", "inserted", "updated", "deleted")
CHANGES_PRINTED = 20
"""Maximum number of changes that a notebook lists."""


@dataclass(frozen=True, slots=True)
class DiffEnd(JsonObject):
    """One of the two commits that a diff compares."""

    graph_branch: str
    graph_commit_id: str
    graph_manifest_version: int


@dataclass(frozen=True, slots=True)
class DiffEntry(JsonObject):
    """One changed entity, as a diff lists it."""

    kind: EntityKind
    type_id: str
    """Opaque: kept by a rename, changed when a type is dropped and created again."""
    type_name: str
    id: str
    op: ChangeOp
    endpoints: Annotated[Endpoints | None, OPTIONAL]
    """The endpoints of the edge, the last ones if it was deleted."""
    before: Annotated[Image | None, OPTIONAL]
    after: Annotated[Image | None, OPTIONAL]

    @classmethod
    def of(cls, change: EntityChange) -> Self:
        """The entry for a change."""
        return cls(*(getattr(change, name) for name in DiffEntry.__slots__))

    @property
    def change(self) -> EntityChange:
        """The change that the entry lists."""
        return EntityChange(*(getattr(self, name) for name in DiffEntry.__slots__))


@dataclass(frozen=True, slots=True)
class DiffPage(JsonObject):
    """The differences between two commits: totals, and some of the entities."""

    before: Annotated[DiffEnd, Json("from")]
    after: Annotated[DiffEnd, Json("to")]
    changes: tuple[DiffEntry, ...]
    types: Annotated[tuple[TypeCounts, ...], Json(within="stats")]
    """The number of changed entities of each type; unchanged types are left out."""
    next_page_token: Annotated[str | None, OPTIONAL] = None
    """Continues this answer; left out of the last page."""
    compared: Comparison = "merge_base"
    """Whether `from` is the merge base, or the target itself."""

    computed: ClassVar[Mapping[str, Json]] = {
        name: Json(within="stats") for name in ("inserted", "updated", "deleted")
    }

    @property
    def inserted(self) -> int:
        """Entities that only the later commit has."""
        return sum(counts.inserted for counts in self.types)

    @property
    def updated(self) -> int:
        """Entities that both have, with different values."""
        return sum(counts.updated for counts in self.types)

    @property
    def deleted(self) -> int:
        """Entities that only the earlier commit has."""
        return sum(counts.deleted for counts in self.types)


def comparison(direct: bool) -> Comparison:
    """The comparison of a diff with or without ``direct``."""
    return "direct" if direct else "merge_base"


class DiffView(ABC):
    """The changes from one commit to another. Printing shows the number per type."""

    @property
    @abstractmethod
    def ends(self) -> tuple[DiffEnd, DiffEnd]:
        """The commit it starts from, and the one it leads to."""

    @property
    @abstractmethod
    def direct(self) -> bool:
        """Whether both ends were given by the caller; otherwise the first is a merge base."""

    @property
    @abstractmethod
    def types(self) -> Sequence[TypeCounts]:
        """The number of changed entities of each type; unchanged types are left out."""

    @abstractmethod
    def changes(self, *, images: bool = False) -> Iterator[EntityChange]:
        """Every change: nodes before edges, then by type and id; read lazily."""

    def __len__(self) -> int:
        return sum(counts.total for counts in self.types)

    def to_dict(self, *, images: bool = False) -> dict[str, Any]:
        """The JSON form, with all changes."""
        listed = tuple(map(DiffEntry.of, self.changes(images=images)))
        return DiffPage(
            *self.ends, listed, tuple(self.types), compared=comparison(self.direct)
        ).to_dict()

    @property
    def header(self) -> str:
        """The two commits that were compared, and why these."""
        before, after = self.ends
        if self.direct:
            start = f"{before.graph_branch} {before.graph_commit_id}"
            return f"{start} → {after.graph_branch} {after.graph_commit_id}, compared directly"
        end = f"{after.graph_branch} {after.graph_commit_id}"
        return f"{end} since {before.graph_commit_id}, the merge base"

    def count_lines(self) -> Iterator[str]:
        """The number of changes of each type, as a table."""
        if not self.types:
            yield "no differences"
            return
        rows = [[f"{each.kind} {each.type_name}", *map(str, each.numbers)] for each in self.types]
        yield from TextTable().lines(HEADERS, rows, (False, True, True, True))

    def __repr__(self) -> str:
        return "\n".join((self.header, *self.count_lines()))

    def _repr_html_(self) -> str:
        if not self.types:
            return html_line(self.header) + html_line("no differences")
        counts = [(f"{each.kind} {each.type_name}", *each.numbers) for each in self.types]
        shown = list(islice(self.changes(images=True), CHANGES_PRINTED))
        rows = [[MARKS[each.op][0], subject(each), difference(each)] for each in shown]
        colours = [MARKS[each.op][1] for each in shown]
        more = len(self) - len(shown)
        return (
            html_line(self.header)
            + html_table(HEADERS, counts)
            + html_table(("", "entity", "difference"), rows, colours)
            + (html_line(f"… and {more} more") if more else "")
        )
