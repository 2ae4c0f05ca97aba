"""The recovery sidecar: a durable record of what a write is about to do.

It is written before the first effect and names every transaction by uuid, so that whoever finds it
later can prove what happened without guessing from version numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import orjson

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import RecoveryRequired
from omnigraph.model.receipts import CommitKind
from omnigraph.storage.layout import MAIN, RECOVERY, sidecar_name
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity
from omnigraph.storage.publisher import Registration, TablePin

SIDECAR_VERSION = 2
VERSIONS_ONLY = 1
"""The older shape: versions instead of identities and uuids. Read and settled, never written."""

WriterKind: TypeAlias = Literal[
    "Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize", "Recovery"
]


@dataclass(frozen=True, slots=True)
class FirstTouch:
    """Where a ref that the write creates is forked from."""

    from_ref: str | None
    from_version: int


@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    """One Lance transaction the write will commit."""

    uuid: str
    read_version: int


@dataclass(frozen=True, slots=True)
class SidecarTable:
    """One table of the write: where it stood, and what will be committed to it."""

    identity: TableIdentity
    table_key: str
    location: str
    ref: str | None
    expected_version: int
    transactions: tuple[PlannedTransaction, ...]
    restore_uuid: str
    first_touch: FirstTouch | None = None
    recorded_pin: int | None = None
    """The pin a sidecar without transactions names instead."""

    @property
    def post_commit_pin(self) -> int:
        """The version after every planned transaction."""
        if self.recorded_pin is not None:
            return self.recorded_pin
        return self.expected_version + len(self.transactions)


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table the operation creates."""

    identity: TableIdentity
    table_key: str
    location: str
    uuid: str
    """Of the transaction that creates it."""


@dataclass(frozen=True, slots=True)
class SchemaDelta:
    """What a change of schema does to the registry of tables, and the contract it leads to."""

    target_hash: str
    registrations: tuple[NewTable, ...] = ()
    renames: tuple[Registration, ...] = ()
    """Tables that get another alias."""
    tombstones: tuple[TablePin, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """The lease under which the write runs."""

    scope: str
    owner_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Authority:
    """What the write was prepared on."""

    head_commit_id: str
    manifest_version: int
    schema_hash: str


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Everything recovery needs to finish or undo one operation."""

    operation_id: str
    writer_kind: WriterKind
    started_at: int
    actor_id: str | None
    branch: str
    ref: str | None
    lease: LeaseClaim
    authority: Authority
    lineage: CommitRow
    """The fixed commit; its position is filled in when it is published."""
    rollback_commit_id: str
    tables: tuple[SidecarTable, ...]
    schema: SchemaDelta | None = None
    """Only of a change of schema."""
    versions_only: bool = False
    """Of the older shape: judged by versions, its identities still to be found."""

    @property
    def planned_uuids(self) -> frozenset[str]:
        """The uuids of every transaction this operation may commit."""
        return frozenset(tx.uuid for table in self.tables for tx in table.transactions)

    def to_json(self) -> bytes:
        """The object's content."""
        lineage = self.lineage
        return orjson.dumps(
            {
                "schema_version": SIDECAR_VERSION,
                "operation_id": self.operation_id,
                "writer_kind": self.writer_kind,
                "started_at": self.started_at,
                "actor_id": self.actor_id,
                "branch": self.branch,
                "ref_identity": self.ref,
                "lease": {
                    "scope": self.lease.scope,
                    "owner_id": self.lease.owner_id,
                    "epoch": self.lease.epoch,
                },
                "authority": {
                    "head_commit_id": self.authority.head_commit_id,
                    "manifest_version": self.authority.manifest_version,
                    "schema_hash": self.authority.schema_hash,
                },
                "lineage": {
                    "commit_id": lineage.commit_id,
                    "parent_commit_id": lineage.parent_commit_id,
                    "merged_parent_commit_id": lineage.merged_parent_commit_id,
                    "kind": lineage.kind,
                    "created_at": lineage.created_at,
                    "schema_hash": lineage.schema_hash,
                    "operation_id": lineage.operation_id,
                    "receipt": lineage.receipt,
                },
                "rollback_commit_id": self.rollback_commit_id,
                "tables": [_table_json(table) for table in self.tables],
                **_delta_json(self.schema),
            },
            option=orjson.OPT_INDENT_2,
        )


def _table_json(table: SidecarTable) -> dict[str, Any]:
    touch = table.first_touch
    return {
        **_identity_json(table.identity),
        "table_key": table.table_key,
        "location": table.location,
        "table_branch": table.ref,
        "expected_version": table.expected_version,
        "post_commit_pin": table.post_commit_pin,
        "transactions": [
            {"uuid": tx.uuid, "read_version": tx.read_version} for tx in table.transactions
        ],
        "restore_uuid": table.restore_uuid,
        "first_touch": None
        if touch is None
        else {"from_branch": touch.from_ref, "from_version": touch.from_version},
    }


def _delta_json(delta: SchemaDelta | None) -> dict[str, Any]:
    if delta is None:
        return {"registrations": [], "renames": [], "tombstones": [], "schema_staging": None}
    return {
        "registrations": [
            {**_named_table_json(new), "transaction_uuid": new.uuid} for new in delta.registrations
        ],
        "renames": [_named_table_json(renamed) for renamed in delta.renames],
        "tombstones": [
            {
                **_identity_json(pin.identity),
                "version": pin.version,
                "table_branch": pin.ref,
                "row_count": pin.row_count,
            }
            for pin in delta.tombstones
        ],
        "schema_staging": delta.target_hash,
    }


def _identity_json(identity: TableIdentity) -> dict[str, int]:
    return {
        "stable_table_id": identity.type_id,
        "table_incarnation_id": identity.incarnation_id,
    }


def _named_table_json(table: NewTable | Registration) -> dict[str, Any]:
    return {
        **_identity_json(table.identity),
        "table_key": table.table_key,
        "location": table.location,
    }


class UnreadableSidecar(RecoveryRequired):
    """A sidecar this product cannot understand; it is kept, and nothing is guessed."""

    code = "unreadable_sidecar"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(
            name.removeprefix(f"{RECOVERY}/").removesuffix(".json"),
            f"recovery sidecar {name} {problem}",
            "inspect the file; if its operation is known to be settled, move it away and run "
            "`omnigraph recover`",
        )


def read_sidecar(name: str, content: bytes) -> Sidecar:
    """Decode a sidecar, strictly; raises `UnreadableSidecar` naming the file and the problem."""
    try:
        record = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise UnreadableSidecar(name, f"is not valid JSON ({error})") from error
    if not isinstance(record, dict):
        raise UnreadableSidecar(name, "is not a JSON object")
    version = record.get("schema_version")
    if version not in (VERSIONS_ONLY, SIDECAR_VERSION):
        raise UnreadableSidecar(
            name, f"has schema_version {version!r}; this version reads up to {SIDECAR_VERSION}"
        )
    try:
        sidecar = _decode(record) if version == SIDECAR_VERSION else _decode_versions(record)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableSidecar(name, f"has the wrong shape ({error!r})") from error
    if name != sidecar_name(sidecar.operation_id):
        raise UnreadableSidecar(name, f"belongs to operation {sidecar.operation_id}")
    return sidecar


def _decode(record: Mapping[str, Any]) -> Sidecar:
    kind: WriterKind = record["writer_kind"]
    if kind not in get_args(WriterKind):
        raise ValueError(f"unknown writer_kind {kind!r}")
    lineage, lease, authority = record["lineage"], record["lease"], record["authority"]
    commit_kind: CommitKind = lineage["kind"]
    commit = CommitRow(
        commit_id=lineage["commit_id"],
        branch=None if record["ref_identity"] is None else record["branch"],
        manifest_version=0,
        commit_seq=0,
        parent_commit_id=lineage["parent_commit_id"],
        merged_parent_commit_id=lineage["merged_parent_commit_id"],
        actor_id=record["actor_id"],
        kind=commit_kind,
        schema_hash=lineage["schema_hash"],
        created_at=lineage["created_at"],
        operation_id=lineage["operation_id"],
        receipt=lineage["receipt"],
    )
    return Sidecar(
        operation_id=record["operation_id"],
        writer_kind=kind,
        started_at=record["started_at"],
        actor_id=record["actor_id"],
        branch=record["branch"],
        ref=record["ref_identity"],
        lease=LeaseClaim(lease["scope"], lease["owner_id"], lease["epoch"]),
        authority=Authority(
            authority["head_commit_id"], authority["manifest_version"], authority["schema_hash"]
        ),
        lineage=commit,
        rollback_commit_id=record["rollback_commit_id"],
        tables=tuple(_decode_table(table) for table in record["tables"]),
        schema=_decode_delta(record),
    )


def _decode_delta(record: Mapping[str, Any]) -> SchemaDelta | None:
    target = record["schema_staging"]
    if target is None:
        return None
    return SchemaDelta(
        target,
        tuple(
            NewTable(_identity(new), new["table_key"], new["location"], new["transaction_uuid"])
            for new in record["registrations"]
        ),
        tuple(
            Registration(_identity(renamed), renamed["table_key"], renamed["location"])
            for renamed in record["renames"]
        ),
        tuple(
            TablePin(_identity(gone), gone["version"], gone["table_branch"], gone["row_count"])
            for gone in record["tombstones"]
        ),
    )


def _identity(record: Mapping[str, Any]) -> TableIdentity:
    return TableIdentity(record["stable_table_id"], record["table_incarnation_id"])


def _decode_table(record: Mapping[str, Any]) -> SidecarTable:
    touch = record["first_touch"]
    return SidecarTable(
        _identity(record),
        record["table_key"],
        record["location"],
        record["table_branch"],
        record["expected_version"],
        tuple(PlannedTransaction(tx["uuid"], tx["read_version"]) for tx in record["transactions"]),
        record["restore_uuid"],
        None if touch is None else FirstTouch(touch["from_branch"], touch["from_version"]),
    )


def _decode_versions(record: Mapping[str, Any]) -> Sidecar:
    """A sidecar of the older shape. What it does not have is derived from its operation id."""
    operation_id: str = record["operation_id"]
    branch: str = record.get("branch") or MAIN
    kind: WriterKind = record["writer_kind"]
    if kind not in get_args(WriterKind):
        raise ValueError(f"unknown writer_kind {kind!r}")
    commit = CommitRow(
        commit_id=operation_id,
        branch=None if branch == MAIN else branch,
        manifest_version=0,
        commit_seq=0,
        parent_commit_id=None,
        merged_parent_commit_id=None,
        actor_id=None,
        kind="recovery",
        schema_hash="",
        created_at=record.get("started_at", 0),
    )
    return Sidecar(
        operation_id=operation_id,
        writer_kind=kind,
        started_at=record.get("started_at", 0),
        actor_id=record.get("actor_id"),
        branch=branch,
        # Branches of that time are their own physical refs.
        ref=None if branch == MAIN else branch,
        lease=LeaseClaim(f"branch/{branch}", "", 0),
        authority=Authority("", 0, ""),
        lineage=commit,
        rollback_commit_id=_sibling_ulid(operation_id),
        tables=tuple(
            SidecarTable(
                TableIdentity(0, 0),
                table["table_key"],
                table["table_path"],
                table.get("table_branch"),
                table["expected_version"],
                (),
                f"{operation_id}-restore-{at}",
                recorded_pin=table["post_commit_pin"],
            )
            for at, table in enumerate(record["tables"])
        ),
        versions_only=True,
    )


def _sibling_ulid(ulid: str) -> str:
    """Another id that is always the same for this one."""
    return ulid[:-1] + ("1" if ulid[-1] == "0" else "0")


class Sidecars:
    """The sidecars of one graph."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def names(self) -> list[str]:
        """The objects of all pending operations, oldest first; one list call."""
        hit(Failpoint.RECOVERY_SIDECAR_LIST)
        return sorted(name for name in self._store.list(RECOVERY) if name.endswith(".json"))

    def write(self, sidecar: Sidecar) -> None:
        """Phase A: make the intent durable."""
        hit(Failpoint.RECOVERY_SIDECAR_WRITE)
        self._store.write(sidecar_name(sidecar.operation_id), sidecar.to_json())

    def read(self, name: str) -> Sidecar | None:
        """The sidecar behind a listed name; None if its writer has finished meanwhile."""
        hit(Failpoint.RECOVERY_POST_SIDECAR_LIST_PRE_READ)
        content = self._store.read_if_exists(name)
        return None if content is None else read_sidecar(name, content)

    def delete(self, operation_id: str) -> None:
        """Phase D: the operation is settled."""
        hit(Failpoint.RECOVERY_SIDECAR_DELETE)
        self._store.delete(sidecar_name(operation_id))
