"""Checks a sidecar against the graph before recovery acts on it.

A sidecar may have been written by any user with access to the root. So recovery uses no path from
it: the location of a table is the one that `__manifest` registers for its identity, that of a new
table is derived from its identity, and the ref is that of the branch. A published commit must be
the one that the sidecar describes. `UnreadableSidecar` names the first contradiction.
"""

from __future__ import annotations

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.plan import (
    FIRST_VERSION,
    CommitPlan,
    FirstTouch,
    NewTable,
    SchemaDelta,
    TableEffects,
    sidecar_name,
)
from omnigraph.commit.schema.change import SchemaChange, identity_of
from omnigraph.errors import NotFound, UnreadableSidecar
from omnigraph.model.ids import TableKey
from omnigraph.schema.catalog import table_location
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import CommitRow, TableRow
from omnigraph.storage.transactions import DatasetRef, sidecar_digest_of


def require_matches_branch(plan: CommitPlan, state: ManifestState) -> None:
    """Check a plan against the state of its branch."""
    _PlanCheck(plan, state).run()


def refusal(plan: CommitPlan, problem: str) -> UnreadableSidecar:
    """The error for a sidecar that contradicts the graph."""
    return UnreadableSidecar(sidecar_name(plan.attempt_id), problem)


def landed_commit(plan: CommitPlan, state: ManifestState) -> CommitRow | None:
    """The published commit of the plan; None without one. Refuses that of another operation."""
    found = [_landed_row(plan, each.lineage, state) for each in plan.commits]
    if None in found and any(found):
        raise refusal(plan, "names commits of which only some are published")
    return found[0]


def _landed_row(plan: CommitPlan, wanted: CommitRow, state: ManifestState) -> CommitRow | None:
    """The row of one commit of the plan, if it is published."""
    found = state.commits.get(wanted.commit_id)
    if found is None:
        return None
    is_own = found.recovery_operation_id == plan.attempt_id or (
        not plan.versions_only
        and found.recovery_operation_id is None
        and (found.parent_commit_id, found.merged_parent_commit_id, found.kind, found.actor_id)
        == (wanted.parent_commit_id, wanted.merged_parent_commit_id, wanted.kind, wanted.actor_id)
        and (found.schema_hash, found.created_at, found.operation_id, found.branch)
        == (wanted.schema_hash, wanted.created_at, wanted.operation_id, wanted.branch)
    )
    if not is_own:
        raise refusal(plan, f"names commit {found.commit_id}, which another operation made")
    return found


def rollback_commit(plan: CommitPlan, state: ManifestState) -> CommitRow | None:
    """The published commit that undid the plan; None without one. Refuses another commit."""
    found = state.commits.get(plan.rollback_commit_id)
    if found is None or found.recovery_operation_id == plan.attempt_id:
        return found
    raise refusal(plan, f"names commit {found.commit_id}, which did not undo it")


def require_same_change(plan: CommitPlan, delta: SchemaDelta, change: SchemaChange) -> None:
    """Refuse a delta that is not the difference between the old and the new schema."""
    created = {(identity_of(each), each.table_key, each.table_path) for each in change.created}
    changed = {table.entry.identity for table in change.changed}
    changing = {table.identity for table in plan.tables if not plan.is_new(table)}
    if (
        {(new.identity, new.table_key, new.location) for new in delta.registrations} != created
        or set(delta.renames) != set(change.renamed)
        or {gone.identity for gone in delta.tombstones} != {e.identity for e in change.dropped}
        or changing != changed
    ):
        raise refusal(plan, "does not have the tables of the schema that it leads to")


def require_own_bytes(plan: CommitPlan, kernel: Kernel) -> None:
    """Refuse a sidecar whose digest is not the one in its transactions.

    Only the sidecar lists the tables of a commit. So every transaction contains the digest of its
    sidecar: otherwise a sidecar with a table removed could publish a part of a commit.
    """
    for table in plan.tables if plan.sidecar_digest is not None else ():
        try:
            handle = kernel.lance.open(DatasetRef(kernel.table_uri(table.location), table.ref))
        except NotFound:
            continue  # the fork of a first touch that was never created
        for planned in table.transactions:
            found = sidecar_digest_of(handle, planned.read_version + 1, planned.uuid)
            if found not in (None, plan.sidecar_digest):
                raise refusal(plan, "was changed after its transactions were committed")


class _PlanCheck:
    def __init__(self, plan: CommitPlan, state: ManifestState) -> None:
        self._plan = plan
        self._state = state
        self._is_landed = landed_commit(plan, state) is not None

    def run(self) -> None:
        rollback_commit(self._plan, self._state)
        for at, table in enumerate(self._plan.tables):
            self._table(f"tables[{at}]", table)
        delta = self._plan.schema or SchemaDelta("")
        for at, new in enumerate(delta.registrations):
            self._new_table(f"registrations[{at}]", new)
        for at, renamed in enumerate(delta.renames):
            self._registered(f"renames[{at}]", renamed)
        for at, gone in enumerate(delta.tombstones):
            if gone.identity not in self._state.tables:
                raise self._refuse(f"tombstones[{at}]", "is no table of this graph")

    def _table(self, where: str, table: TableEffects) -> None:
        if self._plan.versions_only:
            return  # identities are looked up by location and key, when the table is examined
        if self._plan.is_new(table) and not self._is_landed:
            self._forked(where, table)
            return
        self._registered(where, table)
        if self._is_landed:
            return  # after the publish it may have been renamed, and have newer versions
        if self._state.tables[table.identity].table_key != table.table_key:
            raise self._refuse(f"{where}.table_key", f"is not {table.location}")
        pin = self._state.pins.get(table.identity)
        if pin is None or table.expected_version > pin.version:
            raise self._refuse(f"{where}.expected_version", "was never published")
        if table.first_touch is None and pin.ref != table.ref:
            raise self._refuse(f"{where}.table_branch", "is not where its rows are")

    def _forked(self, where: str, table: TableEffects) -> None:
        """Check a table that is new to the branch: forked from main's first version."""
        assert self._plan.schema is not None
        for new in self._plan.schema.registrations:
            if new.identity == table.identity and new.location != table.location:
                raise self._refuse(f"{where}.location", f"is not where {new.table_key} belongs")
        if table.first_touch != FirstTouch(None, FIRST_VERSION):
            raise self._refuse(f"{where}.first_touch", "is not the first version of main")

    def _registered(self, where: str, table: TableEffects | NewTable | TableRow) -> None:
        row = self._state.tables.get(table.identity)
        if row is None:
            raise self._refuse(f"{where}.stable_table_id", "is no table of this graph")
        if row.location != table.location:
            raise self._refuse(
                f"{where}.location", f"{table.location!r} is not where {row.table_key} lies"
            )

    def _new_table(self, where: str, new: NewTable) -> None:
        kind = TableKey(new.table_key).kind
        if new.location != table_location(kind, *new.identity):
            raise self._refuse(
                f"{where}.location", f"{new.location!r} is not where {new.table_key} belongs"
            )
        if self._is_landed:
            self._registered(where, new)
            return
        taken = {row.location for row in self._state.tables.values()}
        if new.identity in self._state.tables or new.location in taken:
            raise self._refuse(where, "is a table that the graph has already")

    def _refuse(self, where: str, problem: str) -> UnreadableSidecar:
        return refusal(self._plan, f"does not fit the graph: {where} {problem}")
