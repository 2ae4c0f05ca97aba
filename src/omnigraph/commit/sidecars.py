"""The sidecars of a graph: an object for every running or interrupted operation."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import orjson

from omnigraph.commit.plan import (
    CommitPlan,
    NewTable,
    PlannedCommit,
    SchemaDelta,
    TableEffects,
    sidecar_name,
)
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import UnreadableSidecar
from omnigraph.model.records import dataclass
from omnigraph.storage.layout import RECOVERY, REFUSED_SIDECARS
from omnigraph.storage.manifest_rows import CommitRow, TableRow, identity_columns


def encode_sidecar(plan: CommitPlan) -> bytes:
    """The content of the sidecar object of a plan."""
    from omnigraph.commit.sidecar_decoding import GROUP_VERSION, SIDECAR_VERSION

    return orjson.dumps(
        {
            "schema_version": GROUP_VERSION if plan.following else SIDECAR_VERSION,
            "operation_id": plan.attempt_id,
            "writer_kind": plan.writer_kind,
            "started_at": plan.started_at,
            "actor_id": plan.actor_id,
            "branch": plan.branch,
            "ref_identity": plan.ref,
            "lease": plan.lease,
            "authority": plan.authority,
            "lineage": _lineage_json(plan.lineage),
            "rollback_commit_id": plan.rollback_commit_id,
            "tables": [_table_json(table) for table in plan.tables],
            **_delta_json(plan.schema),
            **_following_json(plan.following),
        },
        option=orjson.OPT_INDENT_2,
    )


def _lineage_json(commit: CommitRow) -> dict[str, Any]:
    return {
        "commit_id": commit.commit_id,
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "kind": commit.kind,
        "created_at": commit.created_at,
        "schema_hash": commit.schema_hash,
        "operation_id": commit.operation_id,
        "receipt": commit.receipt,
    }


def _following_json(following: tuple[PlannedCommit, ...]) -> dict[str, Any]:
    """The member for further commits of a group; empty for other plans."""
    if not following:
        return {}
    return {
        "following": [
            {
                "operation_id": each.attempt_id,
                "actor_id": each.lineage.actor_id,
                "lineage": _lineage_json(each.lineage),
                "transactions": sorted(each.uuids),
            }
            for each in following
        ]
    }


def _table_json(table: TableEffects) -> dict[str, Any]:
    touch = table.first_touch
    return {
        **identity_columns(table.identity),
        "table_key": table.table_key,
        "location": table.location,
        "table_branch": table.ref,
        "expected_version": table.expected_version,
        "post_commit_pin": table.post_commit_pin,
        "transactions": table.transactions,
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
                **identity_columns(pin.identity),
                "version": pin.version,
                "table_branch": pin.ref,
                "row_count": pin.row_count,
            }
            for pin in delta.tombstones
        ],
        "schema_staging": delta.target_hash,
    }


def _named_table_json(table: NewTable | TableRow) -> dict[str, Any]:
    return {
        **identity_columns(table.identity),
        "table_key": table.table_key,
        "location": table.location,
    }


def sidecar_digest(content: bytes) -> str:
    """The digest of the bytes of a sidecar, which its transactions contain."""
    return hashlib.sha256(content).hexdigest()


log = logging.getLogger(__name__)

SIDECAR_BYTES_MAX = 16 << 20
"""The largest sidecar; one of a write to thousands of tables has less than a tenth."""


class Sidecars:
    """The sidecars of one graph."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def names(self) -> list[str]:
        """The objects of all pending operations, oldest first; one list call."""
        hit(Failpoint.RECOVERY_SIDECAR_LIST)
        listed = self._store.list(RECOVERY)
        return sorted(name for name in listed if name.endswith(".json") and name.isprintable())

    def write(self, plan: CommitPlan, content: bytes | None = None) -> None:
        """Phase A: write the sidecar durably.

        ``content`` is the result of `encode_sidecar`, if the caller has it.
        """
        hit(Failpoint.RECOVERY_SIDECAR_WRITE)
        content = encode_sidecar(plan) if content is None else content
        self._store.write(sidecar_name(plan.attempt_id), content)

    def read(self, name: str) -> CommitPlan | None:
        """The plan of a listed sidecar; None if it was removed meanwhile."""
        from omnigraph.commit.sidecar_decoding import read_sidecar

        hit(Failpoint.RECOVERY_POST_SIDECAR_LIST_PRE_READ)
        content = self._content(name)
        if content is None:
            return None
        return replace(read_sidecar(name, content), sidecar_digest=sidecar_digest(content))

    def _content(self, name: str) -> bytes | None:
        """The bytes of a sidecar; None if it was removed.

        The file may come from any user with write access to the root: links are not followed, and a
        file that is too large is not read to its end.
        """
        found = bytearray()
        try:
            for chunk in self._store.chunks(name):
                found += chunk
                if len(found) > SIDECAR_BYTES_MAX:
                    raise UnreadableSidecar(name, f"is larger than {SIDECAR_BYTES_MAX} bytes")
        except StorageFailure as failure:
            if failure.failure_class is FailureClass.NOT_FOUND:
                return None
            if failure.failure_class is FailureClass.CONFIGURATION and self._store.root.is_local:
                raise UnreadableSidecar(name, "is a symbolic link") from failure
            raise
        return bytes(found)

    def delete(self, operation_id: str) -> None:
        """Phase D: the operation is settled."""
        hit(Failpoint.RECOVERY_SIDECAR_DELETE)
        self._store.delete(sidecar_name(operation_id))

    def pending(self, names: Iterable[str] | None = None) -> Iterator[CommitPlan]:
        """All sidecars, or the remaining ones of ``names``; raises `UnreadableSidecar`."""
        for name in self.names() if names is None else names:
            plan = self.read(name)
            if plan is not None:
                yield plan

    def pending_on(self, branch: str, names: Iterable[str] | None = None) -> Iterator[CommitPlan]:
        """The sidecars of a branch; raises `UnreadableSidecar` for one that may belong to it."""
        for name in self.names() if names is None else names:
            try:
                plan = self.read(name)
            except UnreadableSidecar as refused:
                if refused.concerns(branch):
                    raise
                continue
            if plan is not None and plan.branch == branch:
                yield plan

    def readable(self, *, without: str | None = None) -> Iterator[CommitPlan]:
        """The readable sidecars, except that of the operation ``without``."""
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
        """Phase D of a visible operation: remove its sidecar; failures are not raised.

        A remaining sidecar only costs the next barrier time.
        """
        try:
            self.delete(operation_id)
        except Exception:
            log.warning("sidecar %s was left behind", operation_id, exc_info=True)

    def set_aside(self, refused: UnreadableSidecar) -> str:
        """Move aside a sidecar that cannot be settled; returns the object with its bytes.

        The name contains a digest of the content, so repeating it after an interruption writes the
        same object, and another sidecar with the same id gets another object.
        """
        try:
            content = self._content(refused.name)
        except UnreadableSidecar as unread:
            content = unread.problem.encode()
        if content is None:
            return refused.name
        place = _refused_name(refused.name, content)
        self._store.rename(refused.name, place)
        log.warning("%s; it was set aside as %s", refused.message, place)
        return place

    def refused_names(self) -> list[str]:
        """The objects of sidecars that were set aside; one list call."""
        return self._store.list(REFUSED_SIDECARS)

    def refused(self) -> list[RefusedSidecar]:
        """The sidecars that were set aside and not removed since."""
        found = []
        for place in self.refused_names():
            stem = place.removeprefix(f"{REFUSED_SIDECARS}/").removesuffix(".json")
            operation_id = stem.rpartition(".")[0]
            try:
                content = self._content(place)
            except UnreadableSidecar as unread:
                found.append(RefusedSidecar(place, operation_id, unread.problem))
                continue
            if content is not None:
                problem = _problem_of(operation_id, content)
                found.append(RefusedSidecar(place, operation_id, problem))
        return found


STEM_CHARACTERS_MAX = 128
"""The longest id kept in the name of a sidecar that was set aside; valid ids have 26."""


@dataclass(frozen=True, slots=True)
class RefusedSidecar:
    """A sidecar that was set aside."""

    place: str
    """The object with its bytes."""
    operation_id: str
    """The id in its name; its content is not used."""
    problem: str


def _refused_name(name: str, content: bytes) -> str:
    stem = name.removeprefix(f"{RECOVERY}/").removesuffix(".json")[:STEM_CHARACTERS_MAX]
    return f"{REFUSED_SIDECARS}/{stem}.{sidecar_digest(content)[:16]}.json"


def _problem_of(operation_id: str, content: bytes) -> str:
    """Why it was set aside, by decoding its bytes."""
    from omnigraph.commit.sidecar_decoding import read_sidecar

    try:
        read_sidecar(sidecar_name(operation_id), content)
    except UnreadableSidecar as refused:
        return refused.problem
    return "contradicts the tables or commits of the graph"
