"""Receipts: the return values of writers, once their work is durable and visible.

A receipt is made from the published commit, never by reading the branch again, so it stays correct
if another commit follows immediately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from omnigraph.errors import InputError
from omnigraph.model.ids import EntityKind
from omnigraph.model.json_object import HIDDEN, OPTIONAL, Json, JsonObject
from omnigraph.model.records import dataclass

LoadMode = Literal["append", "merge", "overwrite"]
AbsentMeaning = Literal["keep", "null"]
"""What a merge load does with a property that a record lacks: `keep` the stored value, or store the
default or `null`, as for a new record."""
MergeOutcome = Literal["already_up_to_date", "fast_forward", "merged"]
CommitKind = Literal[
    "genesis", "mutation", "load", "merge", "schema", "maintenance", "repair", "recovery"
]
"""The verb that made a commit; `maintenance` leaves the content unchanged."""

Withheld = Annotated[bool, Json(unless=False)]
"""Set by a server if the caller may not read the branch; otherwise left out."""


def check_load_mode(mode: str) -> None:
    """Raise `InputError` for an unknown mode."""
    if mode not in get_args(LoadMode):
        raise InputError(
            f"there is no mode '{mode}'",
            hint="append adds, merge updates what is there by key, overwrite replaces all of a "
            "type",
        )


def check_absent(absent: str, mode: str) -> None:
    """Raise `InputError` for an unknown value, or one that the mode does not allow.

    Only a merge has stored values to keep.
    """
    if absent not in get_args(AbsentMeaning):
        raise InputError(
            f"there is no meaning '{absent}' of absent properties",
            hint="keep leaves the stored values, null replaces the whole entity",
        )
    if absent != "keep" and mode != "merge":
        raise InputError(
            f"absent='{absent}' (--replace) is an option of the mode merge, not of {mode}",
            hint=f"leave it out: in a load with {mode}, what a record lacks is its default or null",
        )


@dataclass(frozen=True, slots=True)
class MergedRequest(JsonObject):
    """The change request that a commit merged."""

    id: str
    title: str
    approvers: tuple[str, ...]
    """Actors who approved the merged content."""


@dataclass(frozen=True, slots=True)
class CommitInfo(JsonObject):
    """One graph commit."""

    graph_commit_id: str
    graph_branch: str | None
    """The branch on which it was committed; null is main."""
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int
    """Microseconds since 1970."""
    kind: Annotated[CommitKind | None, OPTIONAL] = None
    """The verb that made it; None for a commit from an older server."""
    message: Annotated[str | None, OPTIONAL] = None
    """The message of its author; left out if there is none."""
    metadata: Annotated[Mapping[str, Any] | None, OPTIONAL] = field(default=None, hash=False)
    """JSON stored by the program that wrote it, such as a pipeline; left out if there is none."""
    affected_nodes: Annotated[int | None, OPTIONAL] = None
    """Nodes that it inserted, updated or deleted; None if its writer did not record it."""
    affected_edges: Annotated[int | None, OPTIONAL] = None
    change_request: Annotated[MergedRequest | None, OPTIONAL] = None
    """The change request that it merged; left out if it merged none."""


@dataclass(frozen=True, slots=True)
class MutationReceipt(JsonObject):
    """The result of a mutation; ``commit`` is null if nothing changed."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: CommitInfo | None
    withheld: Withheld = False
    """Whether counts are zero and the commit is null because the caller may not read the branch."""


@dataclass(frozen=True, slots=True)
class LoadedType(JsonObject):
    """The result of a load for one type."""

    name: str
    records_read: int
    inserted: int
    updated: int
    unchanged: int
    kept: int = 0
    """Entities, updated or unchanged, that kept a stored value because their record lacks it."""
    skipped: int = 0
    """Records among ``records_read`` that were skipped because they or their nodes are invalid."""

    computed: ClassVar[Mapping[str, Json]] = {"entities_loaded": Json()}

    @property
    def entities_loaded(self) -> int:
        """Distinct entities of this type that were loaded."""
        return self.inserted + self.updated + self.unchanged

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The counts; older servers send only the number of entities."""
        loaded = document["entities_loaded"]
        counts = {"records_read": loaded, "inserted": loaded, "updated": 0, "unchanged": 0}
        return super(LoadedType, cls).from_dict({**counts, **document})  # noqa: UP008 - slots make the class anew


@dataclass(frozen=True, slots=True)
class LoadStage(JsonObject):
    """One stage of a load: the number of rows and the duration."""

    name: str
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LoadReceipt(JsonObject):
    """The result of a load, per type and in total; ``commit`` is null if nothing changed."""

    branch: str
    base_branch: str | None
    """The branch from which ``branch`` was to be created, if the caller named one."""
    branch_created: bool
    mode: LoadMode
    nodes: tuple[LoadedType, ...]
    """By name."""
    edges: tuple[LoadedType, ...]
    actor_id: str | None
    commit: CommitInfo | None
    engine: Literal["local", "spark"] = "local"
    stages: tuple[LoadStage, ...] = ()
    dry_run: Annotated[bool, Json(unless=False)] = False
    """Whether it only reports what would be written; left out if it was written."""
    withheld: Withheld = False
    """Whether counts are zero and the commit is null because the caller may not read the branch."""
    skipped: int = 0
    """Skipped records, including those of no known type."""
    problems: Annotated[tuple[Mapping[str, Any], ...], Json(unless=())] = ()
    """Why records were skipped: the first problems, in the form of the error file."""

    computed: ClassVar[Mapping[str, Json]] = {
        name: Json() for name in ("total_entities", "inserted", "updated", "unchanged", "kept")
    }

    def __post_init__(self) -> None:
        """Sort types by name."""
        for kind in ("nodes", "edges"):
            by_name = sorted(getattr(self, kind), key=lambda type: type.name)
            object.__setattr__(self, kind, tuple(by_name))

    @property
    def types(self) -> tuple[LoadedType, ...]:
        """The results for all types, nodes first."""
        return self.nodes + self.edges

    @property
    def total_entities(self) -> int:
        """Distinct entities that were loaded."""
        return sum(type.entities_loaded for type in self.types)

    @property
    def inserted(self) -> int:
        """Entities that are new."""
        return sum(type.inserted for type in self.types)

    @property
    def updated(self) -> int:
        """Entities that changed."""
        return sum(type.updated for type in self.types)

    @property
    def unchanged(self) -> int:
        """Entities that existed with the same values."""
        return sum(type.unchanged for type in self.types)

    @property
    def kept(self) -> int:
        """Entities that kept a stored value because their record lacks the property."""
        return sum(type.kept for type in self.types)


@dataclass(frozen=True, slots=True)
class MergeReceipt(JsonObject):
    """The result of a merge, and of the deletion of its source branch if that was requested."""

    source: str
    target: str
    outcome: MergeOutcome
    actor_id: str | None
    commit: CommitInfo | None = None
    """The merge commit; null if the target was up to date."""
    branch_deleted: Annotated[bool | None, OPTIONAL] = None
    """Left out if deletion was not requested."""
    branch_delete_error: Annotated[str | None, OPTIONAL] = None
    """Why the source was not deleted."""
    source_commit_id: Annotated[str | None, HIDDEN] = None
    """The head of the source that was merged."""
    withheld: Withheld = False
    """Whether counts are zero and the commit is null because the caller may not read the branch."""


@dataclass(frozen=True, slots=True)
class ReplayReceipt(JsonObject):
    """The result of reverting a commit or applying it to another branch."""

    verb: Literal["revert", "cherry-pick"]
    of_commit_id: str
    branch: str
    """The branch on which it was done."""
    inserted: int
    updated: int
    deleted: int
    actor_id: str | None
    commit: CommitInfo | None
    """Null if there was nothing to do."""
    withheld: Withheld = False
    """Whether counts are zero and the commit is null because the caller may not read the branch."""


class SchemaSteps(JsonObject):
    """The steps of a schema change."""

    __slots__ = ()

    steps: tuple[Mapping[str, Any], ...]

    computed: ClassVar[Mapping[str, Json]] = {"step_count": Json()}

    @property
    def step_count(self) -> int:
        """How many steps there are."""
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class SchemaPlan(SchemaSteps):
    """The steps from the accepted schema of a graph to another, including unsupported ones."""

    uri: str
    supported: bool
    steps: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SchemaApplyReceipt(SchemaSteps):
    """The result of a schema apply; without steps nothing was applied or published."""

    uri: str
    supported: bool
    applied: bool
    graph_manifest_version: int
    steps: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SchemaRebaseReceipt(SchemaSteps):
    """The result of a schema rebase; without steps nothing was published."""

    uri: str
    branch: str
    applied: bool
    dry_run: bool
    graph_manifest_version: int
    steps: tuple[Mapping[str, Any], ...]
    """The schema changes of main since the branch's schema."""
    dropped: tuple[str, ...]
    """Types and properties that are dropped although the branch has written to them."""
    commit: Annotated[CommitInfo | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class BranchCreated(JsonObject):
    """The result of creating a branch."""

    uri: str
    source: Annotated[str, Json("from")]
    """The branch from which it starts."""
    name: str
    actor_id: str | None


@dataclass(frozen=True, slots=True)
class BranchDeleted(JsonObject):
    """The result of deleting a branch."""

    uri: str
    name: str
    actor_id: str | None


@dataclass(frozen=True, slots=True)
class TagInfo(JsonObject):
    """A name for one commit; cleanup keeps tagged commits readable."""

    name: str
    graph_commit_id: str
    graph_branch: str
    """The branch that the commit was written on."""
    created_at: int
    """Microseconds since 1970."""
    actor_id: str | None
    """The actor who made the tag."""


# --- exports --------------------------------------------------------------------------------------

ExportFormat = Literal["parquet", "csv", "arrow", "jsonl"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
EXPORT_VERSION = 1


@dataclass(frozen=True, slots=True)
class ExportedType(JsonObject):
    """The files of one type."""

    entity_kind: EntityKind
    type_name: str
    rows: int
    bytes: int
    files: tuple[str, ...]
    """Relative to the directory."""


@dataclass(frozen=True, slots=True)
class ExportReceipt(JsonObject):
    """What an export wrote, and from which commit; `_export.json` has the same content."""

    omnigraph_export: int
    """The format version of this description."""
    format: ExportFormat
    is_complete: Annotated[bool, Json("complete")]
    types: tuple[ExportedType, ...] = ()
    branch: Annotated[str | None, OPTIONAL] = None
    graph_commit_id: Annotated[str | None, OPTIONAL] = None

    @property
    def entities(self) -> int:
        """How many nodes and edges there are."""
        return sum(each.rows for each in self.types)

    @property
    def bytes(self) -> int:
        """The size of the files."""
        return sum(each.bytes for each in self.types)

    def __str__(self) -> str:
        return f"{self.entities} entities of {len(self.types)} types as {self.format}"


def checked_export_format(given: str) -> ExportFormat:
    """An export format; raises `InputError` for an unknown one."""
    for known in EXPORT_FORMATS:
        if given == known:
            return known
    raise InputError(
        f"there is no export format '{given}'", hint=f"it is one of {', '.join(EXPORT_FORMATS)}"
    )


# --- embedding ------------------------------------------------------------------------------------

EMBEDS = "embeds"
"""The key of a commit's metadata that lists properties, such as `Doc.meaning`, whose vectors were
computed from their texts as of this commit."""


@dataclass(frozen=True, slots=True)
class EmbedResult(JsonObject):
    """The result of embedding one property."""

    type: str
    property: str
    texts: int
    """Texts whose vectors were computed."""
    characters: int
    stale: int = 0
    """Vectors that were set to null and computed again, because their text had changed."""
    resumed: int = 0
    """Vectors that an interrupted run had computed and stored."""
    left: int = 0
    """Nodes whose text or vector was changed concurrently; the next run processes them."""
    requests: int = 0
    """Requests to the provider, repeated ones included."""
    retries: int = 0
    tokens: int | None = None
    """As counted by the provider; null if it does not report them."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EmbedReceipt(JsonObject):
    """The result of `Graph.embed`."""

    branch: str
    engine: str
    """Where requests were sent from: `local` for this process, or `spark`."""
    provider: str
    model: str
    properties: tuple[EmbedResult, ...]
    commit: Annotated[CommitInfo | None, OPTIONAL] = None
    """The last commit; None if nothing changed."""

    computed: ClassVar[Mapping[str, Json]] = {
        name: Json() for name in ("texts", "tokens", "requests", "retries", "seconds")
    }

    @property
    def texts(self) -> int:
        """Texts whose vectors were computed."""
        return sum(each.texts for each in self.properties)

    @property
    def tokens(self) -> int | None:
        """As counted by the provider; None if it does not report them."""
        known = [each.tokens for each in self.properties if each.tokens is not None]
        return sum(known) if known else None

    @property
    def requests(self) -> int:
        """Requests to the provider, repeated ones included."""
        return sum(each.requests for each in self.properties)

    @property
    def retries(self) -> int:
        """Requests that were repeated."""
        return sum(each.retries for each in self.properties)

    @property
    def seconds(self) -> float:
        """How long it took."""
        return round(sum(each.seconds for each in self.properties), 3)
