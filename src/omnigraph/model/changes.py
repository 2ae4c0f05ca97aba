"""Changes of entities: what a diff, a commit and the change feed are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from omnigraph.errors import InputError
from omnigraph.model.ids import EntityKind

ChangeOp = Literal["insert", "update", "delete"]
CHANGE_OPS: tuple[ChangeOp, ...] = ("insert", "update", "delete")
ENTITY_KINDS: tuple[EntityKind, ...] = ("node", "edge")

Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The nodes an edge joins, by id."""

    source: str
    target: str

    def to_dict(self) -> dict[str, str]:
        """The JSON form."""
        return {"from": self.source, "to": self.target}


@dataclass(frozen=True, slots=True)
class Image:
    """An entity as it was at one moment: every property, and the endpoints of an edge."""

    properties: Mapping[str, Any]
    """JSON values; blobs as loads read them, or in a diff and in a conflict their summary."""
    endpoints: Endpoints | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        out: dict[str, Any] = {"properties": dict(self.properties)}
        if self.endpoints is not None:
            out["endpoints"] = self.endpoints.to_dict()
        return out


@dataclass(frozen=True, slots=True)
class EntityChange:
    """One entity that differs: an insert has an image after, a delete one before, an update both.

    Images are there only if they were asked for; the endpoints of an edge always are.
    """

    kind: EntityKind
    type_id: str
    """Opaque: kept by a rename, changed when a type is dropped and made again."""
    type_name: str
    id: str
    op: ChangeOp
    endpoints: Endpoints | None = None
    """Where the edge ends, or ended if it was deleted."""
    before: Image | None = None
    after: Image | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form in a diff."""
        out: dict[str, Any] = {
            "kind": self.kind,
            "type_name": self.type_name,
            "id": self.id,
            "op": self.op,
        }
        if self.endpoints is not None:
            out["endpoints"] = self.endpoints.to_dict()
        return out | self._images()

    def to_commit_dict(self) -> dict[str, Any]:
        """The JSON form in a block of a commit, whose images carry the endpoints."""
        type = {"id": self.type_id, "name": self.type_name}
        return {"kind": self.kind, "type": type, "id": self.id, "op": self.op} | self._images()

    def _images(self) -> dict[str, Any]:
        images = {"before": self.before, "after": self.after}
        return {name: image.to_dict() for name, image in images.items() if image is not None}


@dataclass(frozen=True, slots=True)
class TypeCounts:
    """How many entities of one type differ."""

    kind: EntityKind
    type_name: str
    inserted: int
    updated: int
    deleted: int

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Inserted, updated, deleted."""
        return self.inserted, self.updated, self.deleted

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.numbers)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "kind": self.kind,
            "type_name": self.type_name,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
        }


@dataclass(frozen=True, slots=True)
class CommitCause:
    """The commit that changes come from."""

    graph_commit_id: str
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    authored_branch: str
    actor_id: str | None
    authored_at: int
    """Microseconds since 1970."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; what a commit does not have is left out."""
        out = {
            "graph_commit_id": self.graph_commit_id,
            "parent_commit_id": self.parent_commit_id,
            "merged_parent_commit_id": self.merged_parent_commit_id,
            "authored_branch": self.authored_branch,
            "actor_id": self.actor_id,
            "authored_at": self.authored_at,
        }
        return {name: value for name, value in out.items() if value is not None}


@dataclass(frozen=True, slots=True)
class EntityVersion:
    """A commit that changed an entity, and what it did."""

    cause: CommitCause
    change: EntityChange

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"cause": self.cause.to_dict(), "change": self.change.to_commit_dict()}


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes are wanted; an empty part wants all."""

    kinds: frozenset[EntityKind] = frozenset()
    types: frozenset[str] = frozenset()
    """Type names."""
    ops: frozenset[ChangeOp] = frozenset()

    @classmethod
    def of(
        cls, kinds: Iterable[str] = (), types: Iterable[str] = (), ops: Iterable[str] = ()
    ) -> ChangeFilter:
        """A filter from words; raises `InputError` for a kind or an operation there is not."""
        return cls(
            frozenset(_known(kinds, ENTITY_KINDS)),
            frozenset(types),
            frozenset(_known(ops, CHANGE_OPS)),
        )

    def wanted_ops(self) -> Iterator[ChangeOp]:
        """The operations that are wanted."""
        return (op for op in CHANGE_OPS if not self.ops or op in self.ops)


def _known(words: Iterable[str], allowed: tuple[Word, ...]) -> list[Word]:
    found = []
    for word in words:
        if word not in allowed:
            raise InputError(f"'{word}' is not one of {', '.join(allowed)}")
        found.append(allowed[allowed.index(word)])
    return found
