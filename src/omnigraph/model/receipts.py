"""Receipts: what a writer says once its work is durable and visible.

A receipt is made from the commit that was published, never by reading the branch again, so it
stays true when another commit follows at once. `to_dict` gives the JSON shape all faces share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from omnigraph.errors import InputError

LoadMode = Literal["append", "merge", "overwrite"]
MergeOutcome = Literal["already_up_to_date", "fast_forward", "merged"]
CommitKind = Literal[
    "genesis", "mutation", "load", "merge", "schema", "maintenance", "repair", "recovery"
]
"""What a commit was made by; `maintenance` promises unchanged content."""

KEY_CHARACTERS_MAX = 200
"""Of an idempotency key."""


def check_load_mode(mode: str) -> None:
    """Raise `InputError` for anything but a `LoadMode`: a misspelt one must not mean another."""
    if mode not in get_args(LoadMode):
        raise InputError(
            f"there is no mode '{mode}'",
            hint="append adds, merge updates what is there by key, overwrite replaces all of a "
            "type",
        )


def checked_key(key: object, name: str = "operation_id") -> str | None:
    """An idempotency key as commits keep it; None for none.

    Raises `InputError` calling it ``name`` if it is no text, blank or too long.
    """
    if key is None:
        return None
    if not isinstance(key, str):
        raise InputError(
            f"`{name}` is a text, not {type(key).__name__}", hint="name the write, or leave it out"
        )
    if not key.strip():
        raise InputError(
            f"`{name}` is empty",
            hint="give every write a name of its own, or leave it out; is a variable unset?",
        )
    if len(key) > KEY_CHARACTERS_MAX:
        raise InputError(
            f"`{name}` has {len(key)} characters, at most {KEY_CHARACTERS_MAX} are kept",
            hint="a name, a date or a digest will do",
        )
    return key


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One graph commit, as users see it."""

    graph_commit_id: str
    graph_branch: str | None
    """The branch it landed on; None is main."""
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    """Microseconds since 1970."""
    kind: CommitKind | None
    """Not in the JSON form, which older clients know as it is; None when a server told of it."""
    message: str | None = None
    """Why it was written, in the words of whoever did; in the JSON form only if there are any."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        form: dict[str, Any] = {
            "graph_commit_id": self.graph_commit_id,
            "graph_branch": self.graph_branch,
            "graph_manifest_version": self.graph_manifest_version,
            "parent_commit_id": self.parent_commit_id,
            "merged_parent_commit_id": self.merged_parent_commit_id,
            "actor_id": self.actor_id,
            "created_at": self.created_at,
        }
        return form if self.message is None else {**form, "message": self.message}


@dataclass(frozen=True, slots=True)
class MutationReceipt:
    """What a mutation did; ``commit`` is None when it changed nothing."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: CommitInfo | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "branch": self.branch,
            "query_name": self.query_name,
            "affected_nodes": self.affected_nodes,
            "affected_edges": self.affected_edges,
            "actor_id": self.actor_id,
            "commit": _commit_dict(self.commit),
        }


@dataclass(frozen=True, slots=True)
class LoadedType:
    """What a load did to one type."""

    name: str
    records_read: int
    inserted: int
    updated: int
    unchanged: int

    @property
    def entities_loaded(self) -> int:
        """Distinct entities of this type that the load accounts for."""
        return self.inserted + self.updated + self.unchanged

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "name": self.name,
            "entities_loaded": self.entities_loaded,
            "records_read": self.records_read,
            "inserted": self.inserted,
            "updated": self.updated,
            "unchanged": self.unchanged,
        }


@dataclass(frozen=True, slots=True)
class LoadStage:
    """One stage of a load: how many rows passed and how long it took."""

    name: str
    rows: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"name": self.name, "rows": self.rows, "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class LoadReceipt:
    """What a load did, per type and in total."""

    branch: str
    base_branch: str | None
    """The branch that ``branch`` was to be created from, if the caller named one."""
    branch_created: bool
    mode: LoadMode
    nodes: tuple[LoadedType, ...]
    edges: tuple[LoadedType, ...]
    actor_id: str | None
    commit: CommitInfo | None
    engine: Literal["local", "spark"]
    stages: tuple[LoadStage, ...] = ()
    dry_run: bool = False
    """Whether it only says what would be written."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; types are listed by name."""
        types = (*self.nodes, *self.edges)
        document: dict[str, Any] = {
            "branch": self.branch,
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "mode": self.mode,
            "nodes": _by_name(self.nodes),
            "edges": _by_name(self.edges),
            "total_entities": sum(type.entities_loaded for type in types),
            "actor_id": self.actor_id,
            "commit": _commit_dict(self.commit),
            "engine": self.engine,
            "stages": [stage.to_dict() for stage in self.stages],
            "inserted": sum(type.inserted for type in types),
            "updated": sum(type.updated for type in types),
            "unchanged": sum(type.unchanged for type in types),
        }
        if self.dry_run:
            document["dry_run"] = True
        return document


@dataclass(frozen=True, slots=True)
class MergeReceipt:
    """How a merge ended, and what became of its source branch if that was to be deleted."""

    source: str
    target: str
    outcome: MergeOutcome
    actor_id: str | None
    commit: CommitInfo | None
    """The merge commit, None when up to date; the JSON shape of a merge does not carry it."""
    branch_deleted: bool | None = None
    """None when deletion was not asked for."""
    branch_delete_error: str | None = None
    source_commit_id: str | None = None
    """The head of the source that was merged; not part of the JSON shape."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; what was not asked for is left out."""
        out: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome,
            "actor_id": self.actor_id,
        }
        if self.branch_deleted is not None:
            out["branch_deleted"] = self.branch_deleted
        if self.branch_delete_error is not None:
            out["branch_delete_error"] = self.branch_delete_error
        return out


@dataclass(frozen=True, slots=True)
class SchemaApplyReceipt:
    """How a schema apply ended; without steps nothing was applied or published."""

    uri: str
    supported: bool
    applied: bool
    graph_manifest_version: int
    steps: tuple[Mapping[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "uri": self.uri,
            "supported": self.supported,
            "applied": self.applied,
            "step_count": len(self.steps),
            "graph_manifest_version": self.graph_manifest_version,
            "steps": [dict(step) for step in self.steps],
        }


@dataclass(frozen=True, slots=True)
class BranchCreated:
    """A branch exists now."""

    uri: str
    source: str
    name: str
    actor_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "uri": self.uri,
            "from": self.source,
            "name": self.name,
            "actor_id": self.actor_id,
        }


@dataclass(frozen=True, slots=True)
class BranchDeleted:
    """A branch is gone."""

    uri: str
    name: str
    actor_id: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"uri": self.uri, "name": self.name, "actor_id": self.actor_id}


def _commit_dict(commit: CommitInfo | None) -> dict[str, Any] | None:
    return None if commit is None else commit.to_dict()


def _by_name(types: Iterable[LoadedType]) -> list[dict[str, Any]]:
    return [type.to_dict() for type in sorted(types, key=lambda type: type.name)]


@dataclass(frozen=True, slots=True)
class ReplayReceipt:
    """What the changes of one commit, done again or undone, came to on a branch."""

    verb: Literal["revert", "cherry-pick"]
    of_commit_id: str
    branch: str
    inserted: int
    updated: int
    deleted: int
    actor_id: str | None
    commit: CommitInfo | None
    """None when there was nothing to do."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "verb": self.verb,
            "of_commit_id": self.of_commit_id,
            "branch": self.branch,
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "actor_id": self.actor_id,
            "commit": None if self.commit is None else self.commit.to_dict(),
        }
