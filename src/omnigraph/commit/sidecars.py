"""The sidecars of a graph: one object for every operation on its way or interrupted."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

import orjson

from omnigraph.commit.leases import branch_scope
from omnigraph.commit.plan import (
    Authority,
    CommitPlan,
    FirstTouch,
    LeaseClaim,
    NewTable,
    PlannedTransaction,
    SchemaDelta,
    SidecarKind,
    TableEffects,
)
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import UnreadableSidecar
from omnigraph.model.receipts import CommitKind
from omnigraph.storage.layout import MAIN, RECOVERY
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity
from omnigraph.storage.publisher import Registration, TablePin

SIDECAR_VERSION = 2
VERSIONS_ONLY = 1
"""The older shape: versions instead of identities and uuids. Read and settled, never written."""


def sidecar_name(operation_id: str) -> str:
    """The object of one operation's recovery sidecar."""
    return f"{RECOVERY}/{operation_id}.json"


def encode_sidecar(plan: CommitPlan) -> bytes:
    """The content of the object that holds a sidecar."""
    lineage = plan.lineage
    return orjson.dumps(
        {
            "schema_version": SIDECAR_VERSION,
            "operation_id": plan.attempt_id,
            "writer_kind": plan.writer_kind,
            "started_at": plan.started_at,
            "actor_id": plan.actor_id,
            "branch": plan.branch,
            "ref_identity": plan.ref,
            "lease": {
                "scope": plan.lease.scope,
                "owner_id": plan.lease.owner_id,
                "epoch": plan.lease.epoch,
            },
            "authority": {
                "head_commit_id": plan.authority.head_commit_id,
                "manifest_version": plan.authority.manifest_version,
                "schema_hash": plan.authority.schema_hash,
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
            "rollback_commit_id": plan.rollback_commit_id,
            "tables": [_table_json(table) for table in plan.tables],
            **_delta_json(plan.schema),
        },
        option=orjson.OPT_INDENT_2,
    )


def _table_json(table: TableEffects) -> dict[str, Any]:
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


def read_sidecar(name: str, content: bytes) -> CommitPlan:
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
        plan = _decode(record) if version == SIDECAR_VERSION else _decode_versions(record)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableSidecar(name, f"has the wrong shape ({error!r})") from error
    if name != sidecar_name(plan.attempt_id):
        raise UnreadableSidecar(name, f"belongs to operation {plan.attempt_id}")
    return plan


def _decode(record: Mapping[str, Any]) -> CommitPlan:
    kind: SidecarKind = record["writer_kind"]
    if kind not in get_args(SidecarKind):
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
    return CommitPlan(
        attempt_id=record["operation_id"],
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


def _decode_table(record: Mapping[str, Any]) -> TableEffects:
    touch = record["first_touch"]
    return TableEffects(
        _identity(record),
        record["table_key"],
        record["location"],
        record["table_branch"],
        record["expected_version"],
        tuple(PlannedTransaction(tx["uuid"], tx["read_version"]) for tx in record["transactions"]),
        record["restore_uuid"],
        None if touch is None else FirstTouch(touch["from_branch"], touch["from_version"]),
    )


def _decode_versions(record: Mapping[str, Any]) -> CommitPlan:
    """A sidecar of the older shape. What it does not have is derived from its operation id."""
    operation_id: str = record["operation_id"]
    branch: str = record.get("branch") or MAIN
    kind: SidecarKind = record["writer_kind"]
    if kind not in get_args(SidecarKind):
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
    return CommitPlan(
        attempt_id=operation_id,
        writer_kind=kind,
        started_at=record.get("started_at", 0),
        actor_id=record.get("actor_id"),
        branch=branch,
        # Branches of that time are their own physical refs.
        ref=None if branch == MAIN else branch,
        lease=LeaseClaim(branch_scope(branch), "", 0),
        authority=Authority("", 0, ""),
        lineage=commit,
        rollback_commit_id=_sibling_ulid(operation_id),
        tables=tuple(
            TableEffects(
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


log = logging.getLogger(__name__)


class Sidecars:
    """The sidecars of one graph."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def names(self) -> list[str]:
        """The objects of all pending operations, oldest first; one list call."""
        hit(Failpoint.RECOVERY_SIDECAR_LIST)
        return sorted(name for name in self._store.list(RECOVERY) if name.endswith(".json"))

    def write(self, plan: CommitPlan) -> None:
        """Phase A: make the intent durable."""
        hit(Failpoint.RECOVERY_SIDECAR_WRITE)
        self._store.write(sidecar_name(plan.attempt_id), encode_sidecar(plan))

    def read(self, name: str) -> CommitPlan | None:
        """The sidecar behind a listed name; None if its writer has finished meanwhile."""
        hit(Failpoint.RECOVERY_POST_SIDECAR_LIST_PRE_READ)
        content = self._store.read_if_exists(name)
        return None if content is None else read_sidecar(name, content)

    def delete(self, operation_id: str) -> None:
        """Phase D: the operation is settled."""
        hit(Failpoint.RECOVERY_SIDECAR_DELETE)
        self._store.delete(sidecar_name(operation_id))

    def pending(self, names: Iterable[str] | None = None) -> Iterator[CommitPlan]:
        """Those that are there, or left of those listed; raises `UnreadableSidecar` for one."""
        for name in self.names() if names is None else names:
            plan = self.read(name)
            if plan is not None:
                yield plan

    def readable(self, *, without: str | None = None) -> Iterator[CommitPlan]:
        """Those that this product understands, but for the operation ``without``."""
        for name in self.names():
            if without is not None and name == sidecar_name(without):
                continue
            try:
                plan = self.read(name)
            except UnreadableSidecar:
                continue
            if plan is not None:
                yield plan

    def forget(self, operation_id: str) -> None:
        """Phase D of an operation that is visible: it is done whatever happens here.

        A sidecar left behind only costs the next barrier.
        """
        try:
            self.delete(operation_id)
        except Exception:
            log.warning("sidecar %s was left behind", operation_id, exc_info=True)
