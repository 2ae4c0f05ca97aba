"""Creating, listing and deleting branches.

A branch is a row of the registry. Creating one copies no data, and its cost does not depend on the
number of types: a fork of `__manifest`, its head row, and the registry row that makes it visible.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Any

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import Lease, branch_scope
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import (
    AlreadyExists,
    Conflict,
    HistoricalVersionReclaimed,
    InputError,
    NotFound,
)
from omnigraph.model.ids import (
    MAIN_BRANCH,
    SCHEMA_APPLY_LOCK,
    check_branch_name,
    check_new_branch_name,
)
from omnigraph.model.records import dataclass
from omnigraph.storage.manifest import ManifestBranch, ManifestState
from omnigraph.storage.manifest_rows import (
    BranchOperationRow,
    BranchRow,
    BranchVerb,
    CommitRow,
    TableIdentity,
    TableRow,
    VersionRow,
)
from omnigraph.storage.publisher import fork_manifest, register_branch, unregister_branch
from omnigraph.storage.transactions import DatasetRef

log = logging.getLogger(__name__)


def list_branches(kernel: Kernel) -> list[str]:
    """The public branches, sorted, including main."""
    names = set(kernel.manifest.main.refresh().branches) - {SCHEMA_APPLY_LOCK}
    return sorted({MAIN_BRANCH, *names})


@dataclass(frozen=True, slots=True)
class BranchRequest:
    """A requested change of the registry: actor, parameters and idempotency key."""

    verb: BranchVerb
    branch: str
    actor_id: str | None
    operation_id: str | None
    receipt: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters, and contents of the receipt."""

    def earlier(self, main: ManifestBranch) -> BranchOperationRow | None:
        """The record of an earlier identical request; None if there is none, or without a key.

        Raises `Conflict` if the actor used the key for another change.
        """
        from omnigraph.commit.write_path import key_taken

        if self.operation_id is None:
            return None
        row = main.refresh().branch_operations.get((self.actor_id, self.operation_id))
        if row is None:
            return None
        if (row.verb, row.branch) != (self.verb, self.branch) or any(
            row.receipt.get(name) != value for name, value in self.receipt.items()
        ):
            what = {"create": "creating", "delete": "deleting"}[row.verb]
            raise key_taken(self.operation_id, f"{what} branch `{row.branch}`")
        return row

    def record(self, ref: str, at: int, **facts: str) -> BranchOperationRow | None:
        """The record to keep in the registry, with additional ``facts``; None without a key."""
        if self.operation_id is None:
            return None
        receipt = {**self.receipt, **facts}
        return BranchOperationRow(
            self.operation_id, self.actor_id, self.verb, self.branch, ref, at, receipt
        )


def create_branch(
    kernel: Kernel,
    name: str,
    source: str = MAIN_BRANCH,
    *,
    at: str | None = None,
    revision: str | None = None,
    actor_id: str | None = None,
    operation_id: str | None = None,
) -> str:
    """Create ``name`` at the head of ``source``; it is visible only once this returns.

    With ``at`` it starts at that commit of the source, which the caller named as ``revision``.
    Returns the commit it starts at. If the actor used ``operation_id`` in an earlier call, nothing
    is done and that call's commit is returned, even if the branch was deleted since. Raises
    `HistoricalVersionReclaimed` if cleanup removed data of the commit.
    """
    check_new_branch_name(name)
    check_branch_name(source)
    asked = BranchRequest("create", name, actor_id, operation_id, {"from": revision or source})
    if (done := asked.earlier(kernel.manifest.main)) is not None:
        return str(done.receipt["source_commit_id"])
    kernel.manifest.branch(source)  # fail for a missing source before any effect
    with own_registry(kernel, source) as lease:
        if (done := asked.earlier(kernel.manifest.main)) is not None:
            return str(done.receipt["source_commit_id"])
        if name in kernel.manifest.main.refresh().branches:
            raise AlreadyExists(
                f"branch `{name}` already exists", hint="write to it as it is, or choose a new name"
            )
        if name in kernel.manifest.main.state.tags:
            raise AlreadyExists(f"there is a tag `{name}`", hint="choose another name")
        ref = kernel.ids.physical_ref()
        origin = kernel.manifest.branch(source)
        start = None if at is None else _start(kernel, origin.refresh(), at)
        head = fork_manifest(kernel.manifest, origin, name, ref, start)
        hit(Failpoint.BRANCH_CREATE_POST_NATIVE)
        now = kernel.clock.wall_us()
        row = BranchRow(name, ref, source, head.commit_id, now, actor_id, kernel.root.uri)
        operation = asked.record(ref, now, source_commit_id=head.commit_id)
        register_branch(kernel.manifest, row, lease.epoch, operation)
        hit(Failpoint.BRANCH_CREATE_POST_REGISTER)
    return head.commit_id


def delete_branch(
    kernel: Kernel,
    name: str,
    *,
    expected_head: str | None = None,
    request: BranchRequest | None = None,
) -> None:
    """Delete a branch; then reclaim its storage, best effort.

    With ``expected_head``, only if that is still its head, so that concurrent writes are not lost.
    If ``request`` was carried out before, nothing is done.
    """
    check_branch_name(name)
    asked = request or BranchRequest("delete", name, None, None)
    if asked.earlier(kernel.manifest.main) is not None:
        return
    if name == MAIN_BRANCH:
        raise InputError(
            "branch `main` cannot be deleted", hint="every other branch can; main always exists"
        )
    kernel.manifest.registration(name)
    with own_registry(kernel, name) as lease:
        if asked.earlier(kernel.manifest.main) is not None:
            return
        row = kernel.manifest.registration(name)
        children = sorted(
            other.name
            for other in kernel.manifest.main.state.branches.values()
            if other.source_branch == name
        )
        if children:
            raise Conflict(
                f"branch `{name}` cannot be deleted: {', '.join(children)} still depends on it",
                hint="delete the branches created from it first",
            )
        tags = _tags_only_on(kernel, name)
        if tags:
            raise Conflict(
                f"branch `{name}` cannot be deleted: no other branch has the commits of "
                f"{', '.join(f'tag `{tag}`' for tag in tags)}",
                hint="merge the branch and keep it, or delete the tags first",
            )
        if expected_head is not None:
            # The lease of the branch excludes writers until its row is removed.
            _require_head(kernel, name, expected_head)
        owned = _owned_datasets(kernel, row)
        operation = asked.record(row.ref, kernel.clock.wall_us())
        unregister_branch(kernel.manifest, row, lease.epoch, operation)
        hit(Failpoint.BRANCH_DELETE_POST_NATIVE)
    _reclaim(kernel, owned)


def _require_head(kernel: Kernel, name: str, expected: str) -> None:
    head = kernel.manifest.branch(name).refresh().head.commit_id
    if head != expected:
        raise Conflict(
            f"branch `{name}` was written to meanwhile: its head is {head}, not {expected}",
            hint="merge it once more, then delete it",
        )


@contextmanager
def own_registry(kernel: Kernel, affected: str) -> Iterator[Lease]:
    """Exclude writes to main and to the affected branch while branches or tags change.

    Yields the lease of main, which contains the registry.
    """
    from omnigraph.commit.schema.lock import require_no_schema_apply

    kernel.manifest.main.refresh()
    require_no_schema_apply(kernel, "changing branches")
    operation_id = kernel.ids.ulid()
    with kernel.own_graph(operation_id, lambda: {MAIN_BRANCH, affected}) as leases:
        kernel.manifest.main.refresh()
        require_no_schema_apply(kernel, "changing branches")
        yield leases[branch_scope(MAIN_BRANCH)]


def _start(
    kernel: Kernel, state: ManifestState, commit_id: str
) -> tuple[CommitRow, Sequence[TableRow]]:
    """The starting commit of a new branch, and its tables as registered then.

    Registrations hold current names, so renamed tables get the name that their type had in the
    commit's schema.
    """
    from omnigraph.commit.schema.change import identity_of

    commit = state.commits[commit_id]
    pins = next(state.pins_along([commit]))
    if commit_id != state.head.commit_id:
        require_tables(kernel, state, pins)
    rows = [state.tables[identity] for identity in pins]
    later = [row for row in rows if row.commit_seq > commit.commit_seq]
    if not later:
        return commit, ()
    then = kernel.schema_of(commit.schema_hash)
    if then is None:
        raise Conflict(
            f"the schema that commit {commit_id} was made with is not kept any more",
            hint="start from a newer commit",
            details={"graph_commit_id": commit_id},
        )
    names = {identity_of(type): type.table_key for type in then.catalog.types}
    return commit, [
        replace(row, table_key=names[row.identity], commit_seq=commit.commit_seq) for row in later
    ]


def require_tables(
    kernel: Kernel, state: ManifestState, pins: Mapping[TableIdentity, VersionRow]
) -> None:
    """Check in storage, bypassing caches, that these table versions exist.

    Raises `HistoricalVersionReclaimed`.
    """
    for identity, pin in pins.items():
        row = state.tables[identity]
        try:
            kernel.lance.open(DatasetRef(kernel.table_uri(row.location), pin.ref), pin.version)
        except NotFound as gone:
            raise reclaimed(row.table_key) from gone


def reclaimed(table_key: str) -> HistoricalVersionReclaimed:
    """The error for a commit whose rows cleanup has removed."""
    return HistoricalVersionReclaimed(
        f"the rows of {table_key} at this commit no longer exist",
        hint="they were removed for good; read a newer commit",
    )


def _tags_only_on(kernel: Kernel, branch: str) -> list[str]:
    """The tags on commits that only this branch has."""
    state = kernel.manifest.refreshed(branch).state
    own = {
        tag.name: tag.commit_id
        for tag in kernel.manifest.main.state.tags.values()
        if tag.commit_id in state.commits
    }
    for other in list_branches(kernel) if own else ():
        if other != branch:
            commits = kernel.manifest.refreshed(other).state.commits
            own = {name: each for name, each in own.items() if each not in commits}
    return sorted(own)


def _owned_datasets(kernel: Kernel, row: BranchRow) -> list[DatasetRef]:
    """The refs that exist only for this branch: first its forked tables, then its manifest."""
    branch = kernel.manifest.branch(row.name)
    entries = branch.refresh().head_snapshot().tables.values()
    tables = [
        DatasetRef(kernel.table_uri(entry.location), row.ref)
        for entry in entries
        if entry.ref == row.ref
    ]
    return [*tables, branch.where]


def _reclaim(kernel: Kernel, owned: list[DatasetRef]) -> None:
    """Best effort: the branch is already deleted, and `cleanup` removes leftovers."""
    for where in owned:
        try:
            hit(Failpoint.BRANCH_DELETE_BEFORE_TABLE_CLEANUP)
            kernel.lance.delete_ref(where)
        except Exception:
            log.warning("ref %s of %s was left behind", where.ref, where.uri, exc_info=True)
