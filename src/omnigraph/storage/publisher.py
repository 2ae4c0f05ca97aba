"""Writing `__manifest`: the compare-and-swap that makes changes visible.

Every change of the graph is one call of `publish`: it checks the writer's assumptions, then writes
all rows and the branch's head row in one transaction. Before that commit nothing is visible; after
it everything is. Changes of the branch registry contend for the head row of main in the same way.

A publish adds its rows and deletes the old head row from its fragment. Of two transactions that
change the same fragment from the same version, Lance commits only the first: that is the
compare-and-swap. The address of the old head row is known, so the cost of a publish does not grow
with the history; a merge by key (`stage_merge`) reads the keys of the whole manifest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import (
    AlreadyExists,
    EffectFreeConflict,
    ExpectedVersionMismatch,
    FencedOut,
    InternalError,
    NotFound,
    OutOfSpace,
    PreconditionFailed,
    ReadSetChanged,
    RecoveryRequired,
    RowLevelCasContention,
)
from omnigraph.model.records import dataclass
from omnigraph.storage.datasets import fragment_count
from omnigraph.storage.drafts import WrittenFiles
from omnigraph.storage.failures import count_lance, lance_errors
from omnigraph.storage.fragments import FRAGMENT_SHIFT, OFFSET_MASK
from omnigraph.storage.manifest import Manifest, ManifestBranch, ManifestState
from omnigraph.storage.manifest_rows import (
    BranchOperationRow,
    BranchRow,
    CommitRow,
    HeadRow,
    ManifestRow,
    RegistryRow,
    TableIdentity,
    TableRow,
    TagRow,
    TombstoneRow,
    VersionRow,
    branch_object_id,
    encode_rows,
    operation_object_id,
    tag_object_id,
)
from omnigraph.storage.transactions import (
    CommitLost,
    CommitOutcomeUnknown,
    StagedTransaction,
    transaction_property,
)

_KEY = "object_id"


def stage_merge(
    handle: LanceDataset,
    rows: Iterable[ManifestRow],
    *,
    replacing: bool = True,
    without: Iterable[str] = (),
    after: int | None = None,
) -> Transaction:
    """Insert rows, replacing those with the same key if ``replacing``, and remove some by key.

    With ``after``, rows added after that position of the branch are removed instead, unless they
    are replaced. Reads the keys of the whole manifest, so it is for rare changes.
    """
    count_lance("stage", handle.uri)
    merge = handle.merge_insert(_KEY).when_not_matched_insert_all()
    if replacing:
        merge = merge.when_matched_update_all()
    keys = ", ".join("'" + key.replace("'", "''") + "'" for key in without)
    removed = f"{_KEY} IN ({keys})" if after is None else f"commit_seq > {after}"
    if keys or after is not None:
        merge = merge.when_not_matched_by_source_delete(removed)
    with lance_errors(handle):
        transaction, _ = merge.execute_uncommitted(encode_rows(rows))
    return transaction


PUBLISHER_RETRY_BUDGET = 5

PUBLISHED_COMMITS = "graph_commit"
"""The transaction property with the commits that a transaction of `__manifest` made visible."""


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """One change of the graph, and the state of the graph that it assumes."""

    commit: CommitRow
    """The commit; its position, and that of the other rows, is set by each attempt."""
    epoch: int
    """The writer's lease epoch."""
    expected_head: str
    pins: tuple[VersionRow, ...] = ()
    registrations: tuple[TableRow, ...] = ()
    tombstones: tuple[VersionRow, ...] = ()
    """Tables to drop, at their current version."""
    following: tuple[tuple[CommitRow, tuple[VersionRow, ...]], ...] = ()
    """Further commits that become visible with it, each the child of the previous one, and their
    pins."""
    expected_table_versions: Mapping[TableIdentity, int] = field(default_factory=dict)
    """Published version of each table that the change depends on; 0 means unregistered."""


@dataclass(frozen=True, slots=True)
class StagedPublish:
    """The rows of a publish in files that no version of the manifest refers to yet."""

    on: LanceDataset
    rows: list[ManifestRow]
    transaction: StagedTransaction
    files: WrittenFiles


def stage_publish(branch: ManifestBranch, request: PublishRequest) -> StagedPublish | None:
    """Stage the rows of `publish` on an object store before the tables are committed.

    The caller uploads the files, and publishes with the same request. Raises like `publish` if an
    assumption does not hold; None if the rows cannot be staged ahead.
    """
    handle, state = branch.current
    if state.branch not in state.heads or request.commit.commit_id in state.commits:
        return None
    _require(state, request)
    rows = _rows(state, request, _next_commit(state, request))
    staged = _stage_apart(branch, handle, state, rows)
    return None if staged is None else StagedPublish(handle, rows, *staged)


def _next_commit(state: ManifestState, request: PublishRequest) -> CommitRow:
    return replace(
        request.commit, manifest_version=state.version + 1, commit_seq=state.head.commit_seq + 1
    )


def publish(
    branch: ManifestBranch, request: PublishRequest, ahead: StagedPublish | None = None
) -> CommitRow:
    """Make a change visible exactly once; returns its commit row, of a group the first.

    ``ahead`` is the result of `stage_publish`; it is used only if it has exactly the rows to write.

    Raises the typed conflict for the first assumption that no longer holds: nothing was published
    then. Raises `RecoveryRequired` if the outcome is unknown.
    """
    complete_head(branch)
    for attempt in range(PUBLISHER_RETRY_BUDGET):
        # The first attempt uses the state that its writer has just checked. If that is no longer
        # the newest, the swap fails, and the next attempt checks the request against a fresh one.
        if attempt:
            branch.refresh()
        handle, state = branch.current
        landed = state.commits.get(request.commit.commit_id)
        if landed is not None:
            # A previous attempt landed although its reply was lost; the commit id is the same for
            # all attempts, so its row proves it.
            return landed
        _require(state, request)
        commit = _next_commit(state, request)
        rows = _rows(state, request, commit)
        is_staged = ahead is not None and ahead.on is handle and ahead.rows == rows
        if _swap(branch, (handle, state), rows, commit.commit_id, ahead if is_staged else None):
            hit(Failpoint.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT)
            return commit
    raise RowLevelCasContention(
        f"{PUBLISHER_RETRY_BUDGET} attempts to publish on {branch.branch} lost to other writers",
        hint="try again",
    )


def was_published(branch: ManifestBranch, version: int, commit_id: str) -> bool:
    """Whether a version of the manifest made a commit visible; one small read.

    False also if the version was removed since.
    """
    named = transaction_property(branch.handle, version, PUBLISHED_COMMITS)
    return named is not None and commit_id in named.split()


def complete_head(branch: ManifestBranch) -> None:
    """Write the head row of a branch that was created without one; the caller owns the branch.

    Two publishes contend only if both replace the head row.
    """
    for _ in range(PUBLISHER_RETRY_BUDGET):
        handle, state = branch.current
        if state.branch in state.heads:
            return
        transaction = stage_merge(handle, [state.head], replacing=False)
        with suppress(CommitLost, CommitOutcomeUnknown):
            branch.lance.commit(handle, transaction)
        branch.refresh()
    raise RowLevelCasContention(
        f"{PUBLISHER_RETRY_BUDGET} attempts to complete {branch.branch} lost to other writers",
        hint="try again",
    )


def require_unfenced(state: ManifestState, epoch: int) -> None:
    """Raise an error if another writer has taken over from the one with this epoch."""
    if state.head.fence_epoch > epoch:
        raise FencedOut(
            f"the lease of {state.branch} was taken over (epoch {state.head.fence_epoch}, "
            f"this writer has {epoch})",
            hint="nothing was published; repeat the write",
        )


def _require(state: ManifestState, request: PublishRequest) -> None:
    """Raise the conflict for an assumption of the request that does not hold in ``state``."""
    head = state.head
    require_unfenced(state, request.epoch)
    for identity, expected in request.expected_table_versions.items():
        pin = state.pins.get(identity)
        actual = pin.version if pin is not None else 0
        if actual != expected:
            registration = state.tables.get(identity)
            key = registration.table_key if registration is not None else str(identity)
            raise ExpectedVersionMismatch(key, expected, actual)
    if head.commit_id != request.expected_head:
        raise ReadSetChanged("graph_head", request.expected_head, head.commit_id)
    for pin_row in request.pins:
        known = state.pins.get(pin_row.identity)
        if known is not None and pin_row.version <= known.version:
            raise InternalError(
                f"version {pin_row.version} of table {pin_row.identity} is already published"
            )


def _rows(state: ManifestState, request: PublishRequest, commit: CommitRow) -> list[ManifestRow]:
    seq = commit.commit_seq
    rows: list[ManifestRow] = [replace(table, commit_seq=seq) for table in request.registrations]
    rows += [replace(pin, commit_seq=seq) for pin in request.pins]
    rows += [TombstoneRow(pin.identity, pin.version, seq) for pin in request.tombstones]
    rows.append(commit)
    for following, pins in request.following:
        seq += 1
        commit = replace(following, manifest_version=commit.manifest_version, commit_seq=seq)
        rows += [*(replace(pin, commit_seq=seq) for pin in pins), commit]
    rows.append(HeadRow(state.branch, commit.commit_id, request.epoch, seq))
    return rows


def _swap(
    branch: ManifestBranch,
    on: tuple[LanceDataset, ManifestState],
    rows: list[ManifestRow],
    commit_id: str,
    ahead: StagedPublish | None = None,
) -> bool:
    """Write the rows, the head row last, as the next manifest version; False if another won."""
    handle, state = on
    encoded = encode_rows(rows)
    only_head = _replaces_only_head(state, rows)
    if ahead is not None:
        transaction = ahead.transaction
    elif (staged := _stage_apart(branch, handle, state, rows)) is not None:
        transaction, files = staged
        files.send()
    elif only_head:
        count_lance("stage", handle.uri)
        transaction = stage_head_swap(handle, branch.head_address(handle), encoded)
    else:
        # A renamed table: its registration is replaced too, at an unknown address.
        transaction = stage_merge(handle, rows)
    commits = [row.commit_id for row in rows if isinstance(row, CommitRow)]
    transaction.transaction_properties = {PUBLISHED_COMMITS: " ".join(commits) or commit_id}
    try:
        landed = branch.lance.commit(handle, transaction)
    except CommitLost as lost:
        if isinstance(lost.__cause__, OutOfSpace):
            raise lost.__cause__ from lost
        return False
    except CommitOutcomeUnknown as unknown:
        return _has_landed(branch, commit_id, unknown)
    head_address = swapped_head_address(landed, encoded) if only_head else None
    branch.adopt(landed, state.with_rows(landed.version, rows), head_address)
    return True


def _replaces_only_head(state: ManifestState, rows: Iterable[ManifestRow]) -> bool:
    return not any(isinstance(row, TableRow) and row.identity in state.tables for row in rows)


def _stage_apart(
    branch: ManifestBranch, handle: LanceDataset, state: ManifestState, rows: list[ManifestRow]
) -> tuple[StagedTransaction, WrittenFiles] | None:
    """Stage the swap of the head row locally; None if it has to be staged in the store."""
    if branch.lance.is_local or not _replaces_only_head(state, rows):
        return None
    address = branch.head_address(handle)
    encoded = encode_rows(rows)

    def stage(draft: LanceDataset) -> Transaction | None:
        fragment = draft.get_fragment(address >> FRAGMENT_SHIFT)
        if fragment is None or fragment.metadata.deletion_file is not None:
            return None  # Lance has to read the deletion file, which the draft does not have
        return stage_head_swap(draft, address, encoded)

    return branch.lance.stage_apart(handle, stage, only_adds=False)


def _has_landed(branch: ManifestBranch, commit_id: str, unknown: CommitOutcomeUnknown) -> bool:
    """Whether a commit landed whose reply was lost, by its pre-minted commit id."""
    try:
        return commit_id in branch.refresh().commits
    except Exception as unreadable:
        raise RecoveryRequired(
            commit_id,
            f"it is unknown whether commit {commit_id} was published: {unknown.message}",
            "run `omnigraph recover` once the store can be read again",
            outcome="unknown",
        ) from unreadable


def fence(branch: ManifestBranch, epoch: int) -> None:
    """Write the epoch of a taken-over lease into the head row: its previous owner is fenced."""
    complete_head(branch)
    for _ in range(PUBLISHER_RETRY_BUDGET):
        branch.refresh()
        handle, state = branch.current
        if state.head.fence_epoch >= epoch:
            return
        fenced = replace(state.head, fence_epoch=epoch)
        if _swap(branch, (handle, state), [fenced], f"fence:{epoch}"):
            return
    raise RowLevelCasContention(
        f"{PUBLISHER_RETRY_BUDGET} attempts to fence {branch.branch} lost to other writers"
    )


def require_head(state: ManifestState, expected: str) -> None:
    """Check a conditional write: the head has to be the commit that the caller expects."""
    if state.head.commit_id != expected:
        raise PreconditionFailed(expected, state.head.commit_id)


# --- the registry of branches and tags ------------------------------------------------------------
#
# Rows on main map a branch's name to its physical ref; they alone define which branches exist. The
# ref is created before its row and is unreachable without it: a crash in between leaves nothing
# visible. A change with an idempotency key is recorded by the same transaction, so the record
# exists if and only if the change is done.

OPERATIONS_KEPT_MAX = 1024
"""How many named changes are kept; every open of the graph reads them."""


def fork_manifest(
    manifest: Manifest,
    source: ManifestBranch,
    name: str,
    ref: str,
    start: tuple[CommitRow, Sequence[TableRow]] | None = None,
) -> HeadRow:
    """Create the manifest ref of a new branch at the source's head, with its own head row.

    With ``start``, the branch begins at that commit of the source instead: all later rows are
    removed from the ref, which is not visible yet. The given rows register tables whose present
    registration is newer than the commit.
    """
    state = source.refresh()
    manifest.lance.create_ref(source.where, ref, state.version)
    forked = ManifestBranch(manifest.lance, manifest.root_uri, name, ref)
    handle = forked.handle
    if start is None:
        head = HeadRow(name, state.head.commit_id, 0, state.head.commit_seq)
        transaction = stage_merge(handle, [head])
    else:
        commit, registrations = start
        head = HeadRow(name, commit.commit_id, 0, commit.commit_seq)
        transaction = stage_merge(handle, [head, *registrations], after=commit.commit_seq)
    manifest.lance.commit(handle, transaction)
    return head


def register_branch(
    manifest: Manifest, row: BranchRow, epoch: int, operation: BranchOperationRow | None = None
) -> None:
    """Publish a new branch; the caller owns main. The branch exists when this returns."""

    def change(state: ManifestState) -> bool:
        known = state.branches.get(row.name)
        if known is not None and known.ref == row.ref:
            return False
        if known is not None:
            raise AlreadyExists(f"branch `{row.name}` already exists")
        _require_free(row.name, state.tags, "tag")
        return True

    _publish_registry(manifest.main, [row], None, change, epoch, operation=operation)


def unregister_branch(
    manifest: Manifest, row: BranchRow, epoch: int, operation: BranchOperationRow | None = None
) -> None:
    """Remove a branch from the registry; the caller owns main.

    Raises `NotFound` if the name belongs to another branch now.
    """

    def change(state: ManifestState) -> bool:
        known = state.branches.get(row.name)
        if known is not None and known.ref != row.ref:
            raise NotFound(f"branch `{row.name}` was deleted and created again")
        return known is not None

    _publish_registry(manifest.main, [], row, change, epoch, operation=operation)


def register_tag(manifest: Manifest, row: TagRow, epoch: int) -> TagRow:
    """Publish a tag; the caller owns main. Returns the resulting row.

    A tag of this name at the same commit is left unchanged, so that a client can repeat a request
    after a lost reply. Raises `AlreadyExists` if the name is taken otherwise.
    """

    def change(state: ManifestState) -> bool:
        known = state.tags.get(row.name)
        if known is not None and known.commit_id != row.commit_id:
            raise AlreadyExists(
                f"tag `{row.name}` already names commit {known.commit_id}",
                hint="choose another name, or delete the tag first",
            )
        _require_free(row.name, state.branches, "branch")
        return known is None

    _publish_registry(manifest.main, [row], None, change, epoch)
    return manifest.main.state.tags[row.name]


def unregister_tag(manifest: Manifest, row: TagRow, epoch: int) -> None:
    """Remove a tag, unless it is missing or names another commit; the caller owns main."""

    def change(state: ManifestState) -> bool:
        return state.tags.get(row.name) == row

    _publish_registry(manifest.main, [], row, change, epoch)


def place_registry(manifest: Manifest, root_uri: str, kept: Collection[str]) -> None:
    """Update the registry of a copied graph: the new root, and only the copied branches.

    Tags of commits that no copied branch has are removed. Called by the copying process before
    others open the copy; idempotent.
    """
    main = manifest.main
    main.refresh()
    handle, state = main.current
    branches = [row for row in state.branches.values() if row.name in kept]
    gone = [branch_object_id(name) for name in state.branches if name not in kept]
    commits = set(state.commits)
    for row in branches:
        commits.update(manifest.refreshed(row.name).state.commits)
    gone += [tag_object_id(tag.name) for tag in state.tags.values() if tag.commit_id not in commits]
    if not gone and all(row.root == root_uri for row in branches):
        return
    rows: list[ManifestRow] = [replace(row, root=root_uri) for row in branches]
    rows += [RegistryRow(state.registry_changes + 1), state.head]
    main.lance.commit(handle, stage_merge(handle, rows, without=gone))
    main.refresh()


def _require_free(name: str, taken: Collection[str], what: str) -> None:
    """Raise an error if a name is taken: branches and tags share one namespace."""
    if name in taken:
        raise AlreadyExists(f"there is a {what} `{name}`", hint="choose another name")


def _publish_registry(
    main: ManifestBranch,
    rows: list[ManifestRow],
    removed: BranchRow | TagRow | None,
    is_needed: Callable[[ManifestState], bool],
    epoch: int,
    *,
    operation: BranchOperationRow | None = None,
) -> None:
    for _ in range(PUBLISHER_RETRY_BUDGET):
        main.refresh()
        handle, state = main.current
        if not is_needed(state):
            return
        require_unfenced(state, epoch)
        # Rewriting the head row makes a registry change contend with publishes on main, so that
        # neither can miss the other or a takeover.
        head = replace(state.head, fence_epoch=epoch)
        changed = [*rows, RegistryRow(state.registry_changes + 1), head]
        forgotten: list[BranchOperationRow] = []
        if operation is not None:
            changed.append(operation)
            known = sorted(state.branch_operations.values(), key=lambda row: row.created_at)
            forgotten = known[: max(0, len(known) + 1 - OPERATIONS_KEPT_MAX)]
        gone = [operation_object_id(row) for row in forgotten]
        match removed:
            case BranchRow():
                gone.append(branch_object_id(removed.name))
            case TagRow():
                gone.append(tag_object_id(removed.name))
        transaction = stage_merge(handle, changed, without=gone)
        try:
            landed = main.lance.commit(handle, transaction)
        except (CommitLost, CommitOutcomeUnknown):
            # Another writer won, or this change landed: the refreshed registry shows which.
            continue
        main.adopt(landed, state.with_rows(landed.version, changed).without(removed, forgotten))
        return
    raise RowLevelCasContention(
        f"{PUBLISHER_RETRY_BUDGET} attempts to change the registry lost to other writers",
        hint="try again",
    )


# --- the transaction of a publish -----------------------------------------------------------------


def stage_head_swap(handle: LanceDataset, head_address: int, rows: pa.Table) -> Transaction:
    """Insert ``rows``, the new head row last, and remove the head row at ``head_address``."""
    fragment_id, offset = head_address >> FRAGMENT_SHIFT, head_address & OFFSET_MASK
    fragment = handle.get_fragment(fragment_id)
    if fragment is None:
        raise InternalError(f"{handle.uri} has no fragment {fragment_id} to hold its head row")
    with lance_errors(handle):
        left = fragment.delete_rows([offset])
        written = write_fragments(rows, handle)
    operation = LanceOperation.Update(
        removed_fragment_ids=[fragment_id] if left is None else [],
        updated_fragments=[] if left is None else [left],
        new_fragments=written,
        update_mode="rewrite_rows",
    )
    return Transaction(handle.version, operation)


def swapped_head_address(landed: LanceDataset, rows: pa.Table) -> int:
    """The address of the head row after `stage_head_swap` landed: last in the newest fragment."""
    newest: int = max(landed.fragment_ids())
    offset: int = rows.num_rows - 1
    return (newest << FRAGMENT_SHIFT) + offset


# --- upkeep: history is stored in rows, so old versions of `__manifest` can be removed ------------

log = logging.getLogger(__name__)

VERSIONS_KEPT = 32
"""Versions kept beside other writers: enough for readers that have just opened an older one."""
VERSIONS_KEPT_MIN = 4
"""Versions kept while there are no writers."""


def maintain_manifest(branch: ManifestBranch, every: int, mint: Callable[[], str]) -> None:
    """Compact and prune a manifest of at least ``every`` fragments; failures are only logged.

    Called under the branch's lease after a publish, which adds a fragment. ``mint`` returns a uuid.
    """
    from omnigraph.storage.table_upkeep import stage_compaction

    try:
        if fragment_count(branch.handle) < every:
            return
        transaction = stage_compaction(branch.handle, mint())
        if transaction is not None:
            _commit(branch, transaction)
        count_lance("cleanup", branch.where.address)
        branch.handle.cleanup_old_versions(
            retain_versions=VERSIONS_KEPT, error_if_tagged_old_versions=False
        )
    except Exception:
        log.warning("the manifest of %s was not compacted", branch.branch, exc_info=True)


def keep_manifest_versions(branch: ManifestBranch, uuid: str) -> None:
    """Remove settings that make Lance clean up old versions of a manifest with every commit.

    Raises `EffectFreeConflict` if another writer took over.
    """
    from omnigraph.storage.table_upkeep import KeepVersions, cleanup_settings

    settings = cleanup_settings(branch.handle)
    if not settings:
        return
    try:
        _commit(branch, KeepVersions(settings).stage(branch.handle, uuid))
    except CommitLost as lost:
        raise EffectFreeConflict(lost.message, hint="repeat it") from lost


def compact_manifest(branch: ManifestBranch, uuid: str) -> tuple[int, int]:
    """Compact a branch's manifest now; returns the numbers of removed and added fragments.

    Keeps rows and old versions. Called under the branch's lease: if another writer commits first,
    it has taken over, and nothing is compacted.
    """
    from omnigraph.storage.table_upkeep import stage_compaction

    before = {fragment.fragment_id for fragment in branch.handle.get_fragments()}
    compaction = stage_compaction(branch.handle, uuid)
    if compaction is None:
        return 0, 0
    try:
        _commit(branch, compaction)
    except CommitLost:
        return 0, 0
    after = {fragment.fragment_id for fragment in branch.handle.get_fragments()}
    return len(before - after), len(after - before)


def _commit(branch: ManifestBranch, transaction: StagedTransaction) -> None:
    landed = branch.lance.commit(branch.handle, transaction)
    branch.adopt(landed, branch.state.with_rows(landed.version, []))
