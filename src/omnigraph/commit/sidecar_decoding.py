"""Decodes sidecars, which are untrusted input.

Every member must exist with its type, and redundant members must agree: the lease is that of the
branch, transactions follow the expected version, ids are ULIDs (Lance uses them in file names).
Unknown members are refused: another format has another `schema_version`. `recovery.trust` checks
the tables against the registry of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import orjson

from omnigraph.commit.leases import branch_scope
from omnigraph.commit.plan import (
    Authority,
    CommitPlan,
    FirstTouch,
    LeaseClaim,
    NewTable,
    PlannedCommit,
    PlannedTransaction,
    SchemaDelta,
    SidecarKind,
    TableEffects,
    sidecar_name,
)
from omnigraph.errors import InputError, UnreadableSidecar
from omnigraph.model.ids import TableKey, check_branch_name, is_ulid
from omnigraph.model.receipts import CommitKind
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity, TableRow, VersionRow

SIDECAR_VERSION = 2
GROUP_VERSION = 3
"""The format with further commits, for groups. Older releases do not act on it."""
VERSIONS_ONLY = 1
"""The older format, with versions instead of identities and uuids: read, and never written."""

INTEGER_MAX = 2**63 - 1

GROUPED: tuple[SidecarKind, ...] = ("Mutation", "Load")
"""The kinds of operations that can share a publish."""

COMMIT_KINDS: Mapping[SidecarKind, tuple[CommitKind, ...]] = {
    "Mutation": ("mutation",),
    "Load": ("load",),
    "SchemaApply": ("schema",),
    "SchemaRebase": ("schema",),
    "BranchMerge": ("merge", "mutation", "load", "maintenance", "repair", "recovery"),
    "EnsureIndices": ("maintenance",),
    "Optimize": ("maintenance",),
    "Recovery": ("recovery",),
}
"""By kind of operation: the kinds of commits it makes.

Reverts, cherry-picks and commits replayed from another graph run as merges.
"""


def read_sidecar(name: str, content: bytes) -> CommitPlan:
    """Decode a sidecar, strictly; raises `UnreadableSidecar` naming the file and the problem."""
    try:
        record = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise UnreadableSidecar(name, f"is not valid JSON ({error})") from error
    if not isinstance(record, dict):
        raise UnreadableSidecar(name, "is not a JSON object")
    version = record.get("schema_version")
    if type(version) is int and version > GROUP_VERSION:
        branch = record.get("branch")
        raise UnreadableSidecar(
            name,
            f"has schema_version {version}; this version reads up to {GROUP_VERSION}",
            is_newer=True,
            branch=branch if isinstance(branch, str) else None,
        )
    members = _Members(record, "")
    try:
        members.whole("schema_version", least=VERSIONS_ONLY)
        if version == VERSIONS_ONLY:
            plan = _decode_versions(members)
        else:
            plan = _decode(members, is_group=version == GROUP_VERSION)
        members.require(
            name == sidecar_name(plan.attempt_id), "operation_id", "is not the name of the file"
        )
    except _WrongShape as problem:
        raise UnreadableSidecar(name, f"has the wrong shape: {problem}") from None
    return plan


class _WrongShape(ValueError):
    """A member is missing, mistyped or unknown, or contradicts another one."""


class _Members:
    """The members of one JSON object; each is read once, by its type."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise _WrongShape(f"{where} is not an object")
        self._left: dict[str, Any] = dict(value)
        self._where = where

    def path(self, name: str) -> str:
        """The path of a member, for messages."""
        return f"{self._where}.{name}" if self._where else name

    def require(self, holds: bool, name: str, problem: str) -> None:
        """Refuse a member that has the right type but an invalid value."""
        if not holds:
            raise _WrongShape(f"{self.path(name)} {problem}")

    def end(self) -> None:
        """Refuse members that were not read, as they are unknown."""
        for name in self._left:
            raise _WrongShape(f"{self.path(name)} is unknown")

    def optional(self, name: str, default: Any) -> None:
        """Set the default of an optional member of the older format."""
        self._left.setdefault(name, default)

    def whole(self, name: str, *, least: int = 0) -> int:
        """An integer of at most 64 bits; not a boolean."""
        value = self._take(name)
        self.require(type(value) is int, name, "is not an integer")
        self.require(least <= value <= INTEGER_MAX, name, "is out of range")
        return int(value)

    def text(self, name: str) -> str:
        """A text that is not empty."""
        value = self._take(name)
        self.require(isinstance(value, str) and bool(value), name, "is not a text")
        return str(value)

    def text_or_none(self, name: str) -> str | None:
        """A text, or null."""
        return None if self.is_null(name) else self.text(name)

    def ulid(self, name: str) -> str:
        """An id in its canonical form."""
        value = self.text(name)
        self.require(is_ulid(value), name, "is not a ULID")
        return value

    def ulids(self, name: str) -> set[str]:
        """Distinct ids."""
        values = self._take(name)
        self.require(
            isinstance(values, list)
            and all(isinstance(each, str) and is_ulid(each) for each in values)
            and len(set(values)) == len(values),
            name,
            "is not a list of distinct ULIDs",
        )
        return set(values)

    def peek(self, name: str) -> object:
        """A member that is read later, by its type."""
        return self._left.get(name)

    def ulid_or_none(self, name: str) -> str | None:
        """An id, or null."""
        return None if self.is_null(name) else self.ulid(name)

    def table_key(self, name: str) -> str:
        """`node:Name` or `edge:Name`."""
        value = self.text(name)
        try:
            return TableKey.parse(value)
        except InputError:
            raise _WrongShape(f"{self.path(name)} is not a table key") from None

    def free_object_or_none(self, name: str) -> Mapping[str, Any] | None:
        """An object with any members, or null."""
        if self.is_null(name):
            return None
        value = self._take(name)
        self.require(isinstance(value, dict), name, "is not an object")
        return dict(value)

    def object(self, name: str) -> _Members:
        """An object."""
        return _Members(self._take(name), self.path(name))

    def object_or_none(self, name: str) -> _Members | None:
        """An object, or null."""
        return None if self.is_null(name) else self.object(name)

    def objects(self, name: str) -> list[_Members]:
        """A list of objects."""
        value = self._take(name)
        self.require(isinstance(value, list), name, "is not a list")
        return [_Members(each, f"{self.path(name)}[{at}]") for at, each in enumerate(value)]

    def _take(self, name: str) -> Any:
        self.require(name in self._left, name, "is missing")
        return self._left.pop(name)

    def is_null(self, name: str) -> bool:
        """Whether a member exists and is null; marks it as read then."""
        is_null = name in self._left and self._left[name] is None
        if is_null:
            del self._left[name]
        return is_null


def _decode(members: _Members, *, is_group: bool) -> CommitPlan:
    kind = _kind(members)
    attempt_id = members.ulid("operation_id")
    actor_id = members.text_or_none("actor_id")
    branch, ref = _branch(members), members.text_or_none("ref_identity")
    members.require((ref is None) == (branch == MAIN), "ref_identity", "does not fit the branch")
    authority = _authority(members.object("authority"))
    delta = _delta(members, kind)
    target_hash = authority.schema_hash if delta is None else delta.target_hash
    lineage = members.object("lineage")
    commit = _lineage(lineage, kind, branch if ref is not None else None, actor_id)
    lineage.require(
        commit.parent_commit_id == authority.head_commit_id,
        "parent_commit_id",
        "is not the head that the operation was prepared on",
    )
    lineage.require(
        commit.schema_hash == target_hash, "schema_hash", "is not that of the operation"
    )
    rollback_commit_id = members.ulid("rollback_commit_id")
    members.require(
        rollback_commit_id != commit.commit_id, "rollback_commit_id", "is that of the commit itself"
    )
    tables = tuple(_table(each, kind, ref) for each in members.objects("tables"))
    plan = CommitPlan(
        attempt_id=attempt_id,
        writer_kind=kind,
        started_at=members.whole("started_at"),
        actor_id=actor_id,
        branch=branch,
        ref=ref,
        lease=_lease(members.object("lease"), branch),
        authority=authority,
        lineage=commit,
        rollback_commit_id=rollback_commit_id,
        tables=tables,
        schema=delta,
        following=_following(members, commit, tables) if is_group else (),
    )
    members.require(not is_group or kind in GROUPED, "writer_kind", "never commits in a group")
    _require_distinct(members, plan)
    members.end()
    return plan


def _following(
    members: _Members, first: CommitRow, tables: tuple[TableEffects, ...]
) -> tuple[PlannedCommit, ...]:
    """The further commits of a group: each has its own transactions, and the previous as parent."""
    found: list[PlannedCommit] = []
    before, taken = first, set[str]()
    planned = {tx.uuid for table in tables for tx in table.transactions}
    for each in members.objects("following"):
        attempt_id, actor_id = each.ulid("operation_id"), each.text_or_none("actor_id")
        row = each.object("lineage")
        kind: SidecarKind = "Load" if row.peek("kind") == "load" else "Mutation"
        commit = _lineage(row, kind, first.branch, actor_id)
        each.require(
            commit.parent_commit_id == before.commit_id, "lineage", "is not on the commit before"
        )
        each.require(commit.schema_hash == first.schema_hash, "lineage", "has another schema")
        uuids = each.ulids("transactions")
        each.require(bool(uuids), "transactions", "are none")
        each.require(uuids <= planned - taken, "transactions", "are not planned, or another's")
        each.end()
        taken |= uuids
        found.append(PlannedCommit(attempt_id, commit, frozenset(uuids)))
        before = commit
    members.require(bool(found), "following", "is empty")
    members.require(taken < planned, "following", "leave the first commit without a transaction")
    _require_in_order(members, found, tables)
    return tuple(found)


def _require_in_order(
    members: _Members, following: list[PlannedCommit], tables: tuple[TableEffects, ...]
) -> None:
    """Refuse a group in which a later commit has earlier versions of a table."""
    owner = {uuid: at for at, each in enumerate(following, start=1) for uuid in each.uuids}
    for table in tables:
        along = [owner.get(tx.uuid, 0) for tx in table.transactions]
        members.require(along == sorted(along), "following", "are not in the order of versions")


def _kind(members: _Members) -> SidecarKind:
    kind = members.text("writer_kind")
    for known in get_args(SidecarKind):
        if kind == known:
            found: SidecarKind = known
            return found
    raise _WrongShape(f"writer_kind {kind!r} is unknown")


def _branch(members: _Members) -> str:
    branch = members.text("branch")
    try:
        check_branch_name(branch)
    except InputError:
        raise _WrongShape("branch is not the name of a branch") from None
    return branch


def _lease(members: _Members, branch: str) -> LeaseClaim:
    scope = members.text("scope")
    members.require(scope == branch_scope(branch), "scope", "is not that of the branch")
    claim = LeaseClaim(scope, members.text("owner_id"), members.whole("epoch", least=1))
    members.end()
    return claim


def _authority(members: _Members) -> Authority:
    authority = Authority(
        members.ulid("head_commit_id"),
        members.whole("manifest_version", least=1),
        members.text("schema_hash"),
    )
    members.end()
    return authority


def _lineage(
    members: _Members, kind: SidecarKind, branch: str | None, actor_id: str | None
) -> CommitRow:
    commit_kind = members.text("kind")
    made = next((known for known in COMMIT_KINDS[kind] if known == commit_kind), None)
    if made is None:
        raise _WrongShape(f"{members.path('kind')} is none of a {kind}")
    merged_parent = members.ulid_or_none("merged_parent_commit_id")
    members.require(
        merged_parent is None or made == "merge", "merged_parent_commit_id", "belongs to a merge"
    )
    commit = CommitRow(
        commit_id=members.ulid("commit_id"),
        branch=branch,
        manifest_version=0,
        commit_seq=0,
        parent_commit_id=members.ulid("parent_commit_id"),
        merged_parent_commit_id=merged_parent,
        actor_id=actor_id,
        kind=made,
        schema_hash=members.text("schema_hash"),
        created_at=members.whole("created_at"),
        operation_id=members.text_or_none("operation_id"),
        receipt=members.free_object_or_none("receipt"),
    )
    members.end()
    return commit


def _table(members: _Members, kind: SidecarKind, ref: str | None) -> TableEffects:
    expected = members.whole("expected_version", least=1)
    transactions = []
    for at, each in enumerate(members.objects("transactions")):
        transactions.append(PlannedTransaction(each.ulid("uuid"), each.whole("read_version")))
        each.require(
            transactions[at].read_version == expected + at,
            "read_version",
            "does not follow the expected version",
        )
        each.end()
    members.require(
        not transactions or kind != "Recovery", "transactions", "is not empty in a recovery"
    )
    members.require(
        members.whole("post_commit_pin") == expected + len(transactions),
        "post_commit_pin",
        "is not the version after the transactions",
    )
    table_ref = members.text_or_none("table_branch")
    members.require(table_ref == ref, "table_branch", "is not that of the operation")
    table = TableEffects(
        _identity(members),
        members.table_key("table_key"),
        members.text("location"),
        table_ref,
        expected,
        tuple(transactions),
        members.ulid("restore_uuid"),
        _first_touch(members, ref, expected),
    )
    members.end()
    return table


def _first_touch(members: _Members, ref: str | None, expected: int) -> FirstTouch | None:
    fork = members.object_or_none("first_touch")
    if fork is None:
        return None
    members.require(ref is not None, "first_touch", "is impossible on main")
    touch = FirstTouch(fork.text_or_none("from_branch"), fork.whole("from_version"))
    fork.require(touch.from_version == expected, "from_version", "is not the expected version")
    fork.end()
    return touch


def _delta(members: _Members, kind: SidecarKind) -> SchemaDelta | None:
    target = members.text_or_none("schema_staging")
    created, tombstones = [], []
    for new in members.objects("registrations"):
        uuid = new.ulid("transaction_uuid")
        created.append(NewTable(*_named_table(new), uuid))
    renames = [TableRow(*_named_table(renamed)) for renamed in members.objects("renames")]
    for gone in members.objects("tombstones"):
        version, ref = gone.whole("version", least=1), gone.text_or_none("table_branch")
        tombstones.append(VersionRow(_identity(gone), version, ref, gone.whole("row_count")))
        gone.end()
    has_schema = kind in ("SchemaApply", "SchemaRebase")
    members.require((target is not None) == has_schema, "schema_staging", f"does not fit a {kind}")
    if target is None:
        is_empty = not (created or renames or tombstones)
        members.require(is_empty, "registrations", f"does not fit a {kind}")
        return None
    return SchemaDelta(target, tuple(created), tuple(renames), tuple(tombstones))


def _identity(members: _Members) -> TableIdentity:
    return TableIdentity(
        members.whole("stable_table_id", least=1), members.whole("table_incarnation_id", least=1)
    )


def _named_table(members: _Members) -> tuple[TableIdentity, str, str]:
    named = (_identity(members), members.table_key("table_key"), members.text("location"))
    members.end()
    return named


def _require_distinct(members: _Members, plan: CommitPlan) -> None:
    """Refuse repeated tables and transactions: recovery could take one for the other."""
    delta = plan.schema or SchemaDelta("")
    if plan.schema is not None:
        on_main = plan.branch == MAIN
        members.require(
            on_main == plan.changes_contract, "branch", f"is not one for a {plan.writer_kind}"
        )
    identities = [
        *(table.identity for table in plan.tables),
        *(new.identity for new in delta.registrations),
        *(gone.identity for gone in delta.tombstones),
    ]
    if plan.writer_kind == "SchemaRebase":
        # A table may be both new to the branch and changed.
        identities = [new.identity for new in delta.registrations]
        identities += [t.identity for t in plan.tables if not plan.is_new(t)]
        identities += [gone.identity for gone in delta.tombstones]
        changing = [t.identity for t in plan.tables]
        members.require(len(set(changing)) == len(changing), "tables", "name a table twice")
    uuids = [
        *(tx.uuid for table in plan.tables for tx in table.transactions),
        *(table.restore_uuid for table in plan.tables),
        *(new.uuid for new in delta.registrations),
    ]
    commits = [plan.rollback_commit_id, *(each.lineage.commit_id for each in plan.commits)]
    attempts = [each.attempt_id for each in plan.commits]
    members.require(len(set(commits)) == len(commits), "following", "name a commit twice")
    members.require(len(set(attempts)) == len(attempts), "following", "name an operation twice")
    members.require(len(set(identities)) == len(identities), "tables", "name a table twice")
    members.require(len(set(uuids)) == len(uuids), "tables", "name a transaction twice")


def _decode_versions(members: _Members) -> CommitPlan:
    """Decode a sidecar of the older format. Missing ids are derived from its operation id.

    Unknown members are ignored, since other products wrote this format, too.
    """
    operation_id = members.ulid("operation_id")
    kind = _kind(members)
    for name, default in (("branch", None), ("started_at", 0), ("actor_id", None)):
        members.optional(name, default)
    branch = MAIN if members.is_null("branch") else _branch(members)
    started_at = members.whole("started_at")
    # The names of branches were their physical refs then.
    ref = None if branch == MAIN else branch
    commit = CommitRow(
        commit_id=operation_id,
        branch=ref,
        manifest_version=0,
        commit_seq=0,
        parent_commit_id=None,
        merged_parent_commit_id=None,
        actor_id=None,
        kind="recovery",
        schema_hash="",
        created_at=started_at,
    )
    return CommitPlan(
        attempt_id=operation_id,
        writer_kind=kind,
        started_at=started_at,
        actor_id=members.text_or_none("actor_id"),
        branch=branch,
        ref=ref,
        lease=LeaseClaim(branch_scope(branch), "", 0),
        authority=Authority("", 0, ""),
        lineage=commit,
        rollback_commit_id=_sibling_ulid(operation_id),
        tables=tuple(
            _table_by_versions(table, ref, f"{operation_id}-restore-{at}")
            for at, table in enumerate(members.objects("tables"))
        ),
        versions_only=True,
    )


def _table_by_versions(members: _Members, ref: str | None, restore_uuid: str) -> TableEffects:
    members.optional("table_branch", None)
    table_ref = members.text_or_none("table_branch")
    members.require(table_ref == ref, "table_branch", "is not that of the operation")
    return TableEffects(
        TableIdentity(0, 0),
        members.table_key("table_key"),
        members.text("table_path"),
        table_ref,
        members.whole("expected_version"),
        (),
        restore_uuid,
        recorded_pin=members.whole("post_commit_pin"),
    )


def _sibling_ulid(ulid: str) -> str:
    """An id derived from another, always the same."""
    return ulid[:-1] + ("1" if ulid[-1] == "0" else "0")
