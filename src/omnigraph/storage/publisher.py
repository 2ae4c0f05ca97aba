"""The publisher: the one compare-and-swap that makes anything visible.

Every change of the graph is one call of `publish`: it checks what the writer assumed, then writes
all rows and the branch's head row in one merge that no other publish can share. Before that commit
nothing is visible; after it everything is.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lance import LanceDataset

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import (
    ExpectedVersionMismatch,
    FencedOut,
    InternalError,
    PreconditionFailed,
    ReadSetChanged,
    RecoveryRequired,
    RowLevelCasContention,
)
from omnigraph.storage.datasets import CommitLost, CommitOutcomeUnknown, Handle, row_count
from omnigraph.storage.head_swap import stage_head_swap, swapped_head_address
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_merge import stage_merge
from omnigraph.storage.manifest_rows import (
    CommitRow,
    HeadRow,
    ManifestRow,
    TableIdentity,
    TableRow,
    TombstoneRow,
    VersionRow,
    encode_rows,
)
from omnigraph.storage.snapshot import ManifestState

PUBLISHER_RETRY_BUDGET = 5


@dataclass(frozen=True, slots=True)
class TablePin:
    """A table version to make visible."""

    identity: TableIdentity
    version: int
    ref: str | None
    row_count: int

    @classmethod
    def at(cls, identity: TableIdentity, ref: str | None, handle: Handle, version: int) -> TablePin:
        """A version that is there, with the rows it has."""
        return cls(identity, version, ref, row_count(handle, version))


@dataclass(frozen=True, slots=True)
class Registration:
    """A table to register, or to register under another alias."""

    identity: TableIdentity
    table_key: str
    location: str


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """One graph-visible change, and everything it assumes about the world."""

    commit: CommitRow
    """The fixed commit; position and manifest version are filled in when it lands."""
    epoch: int
    """The writer's lease epoch."""
    expected_head: str
    pins: tuple[TablePin, ...] = ()
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[TablePin, ...] = ()
    """Tables to drop, at the version they have."""
    expected_table_versions: Mapping[TableIdentity, int] = field(default_factory=dict)
    """Published version of each table the change rests on; 0 means unregistered."""


def publish(branch: ManifestBranch, request: PublishRequest) -> CommitRow:
    """Make a change visible, once, and return its commit row.

    Raises the typed conflict for whichever assumption no longer holds, and nothing was published;
    `RecoveryRequired` when the store cannot say whether it was.
    """
    complete_head(branch)
    for attempt in range(PUBLISHER_RETRY_BUDGET):
        # The first attempt trusts the state its writer has just checked. If that is not the newest
        # any more, the swap is lost, and the request is judged by what is there then.
        if attempt:
            branch.refresh()
        handle, state = branch.current
        landed = state.commits.get(request.commit.commit_id)
        if landed is not None:
            # An earlier attempt was not acknowledged, but is there.
            return landed
        _require(state, request)
        commit = replace(
            request.commit,
            manifest_version=state.version + 1,
            commit_seq=state.head.commit_seq + 1,
        )
        rows = _rows(state, request, commit)
        if _swap(branch, handle, state, rows, commit.commit_id):
            hit(Failpoint.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT)
            return commit
    raise RowLevelCasContention(
        f"{PUBLISHER_RETRY_BUDGET} attempts to publish on {branch.branch} lost to other writers",
        hint="try again",
    )


def complete_head(branch: ManifestBranch) -> None:
    """Give a branch its head row, as its owner, if it was created without.

    Only then do two publishes contend for one row, whatever else they write.
    """
    for _ in range(PUBLISHER_RETRY_BUDGET):
        handle, state = branch.current
        if state.has_head_row:
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
    """The writer with this epoch has not been taken over."""
    if state.head.fence_epoch > epoch:
        raise FencedOut(
            f"the lease of {state.branch} was taken over (epoch {state.head.fence_epoch}, "
            f"this writer has {epoch})",
            hint="nothing was published; repeat the write",
        )


def _require(state: ManifestState, request: PublishRequest) -> None:
    """Every assumption of the request, against the newest state."""
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
    rows: list[ManifestRow] = [
        TableRow(r.identity, r.table_key, r.location, seq) for r in request.registrations
    ]
    rows += [
        VersionRow(pin.identity, pin.version, pin.ref, pin.row_count, seq) for pin in request.pins
    ]
    rows += [TombstoneRow(pin.identity, pin.version, seq) for pin in request.tombstones]
    rows += [commit, HeadRow(state.branch, commit.commit_id, request.epoch, seq)]
    return rows


def _swap(
    branch: ManifestBranch,
    handle: LanceDataset,
    state: ManifestState,
    rows: list[ManifestRow],
    commit_id: str,
) -> bool:
    """Write the rows, the head row last, as the next manifest version; False if one was first."""
    encoded = encode_rows(rows)
    only_head = not any(isinstance(row, TableRow) and row.identity in state.tables for row in rows)
    if only_head:
        transaction = stage_head_swap(handle, branch.head_address(handle), encoded)
    else:
        # A table gets another alias: its registration is replaced as well, wherever it lies.
        transaction = stage_merge(handle, rows)
    transaction.transaction_properties = {"graph_commit": commit_id}
    try:
        landed = branch.lance.commit(handle, transaction)
    except CommitLost:
        return False
    except CommitOutcomeUnknown as unknown:
        return _settle(branch, commit_id, unknown)
    head_address = swapped_head_address(landed, encoded) if only_head else None
    branch.adopt(landed, state.with_rows(landed.version, rows), head_address)
    return True


def _settle(branch: ManifestBranch, commit_id: str, unknown: CommitOutcomeUnknown) -> bool:
    """An acknowledgement got lost: the pre-minted commit id says whether the publish landed."""
    try:
        return commit_id in branch.refresh().commits
    except Exception as unreadable:
        raise RecoveryRequired(
            commit_id,
            f"it is unknown whether commit {commit_id} was published: {unknown.message}",
            "run `omnigraph recover` once the store can be read again",
        ) from unreadable


def fence(branch: ManifestBranch, epoch: int) -> None:
    """Write a taken-over lease's epoch into the head row: its former owner cannot publish now."""
    complete_head(branch)
    for _ in range(PUBLISHER_RETRY_BUDGET):
        branch.refresh()
        handle, state = branch.current
        if state.head.fence_epoch >= epoch:
            return
        fenced = replace(state.head, fence_epoch=epoch)
        if _swap(branch, handle, state, [fenced], f"fence:{epoch}"):
            return
    raise RowLevelCasContention(
        f"{PUBLISHER_RETRY_BUDGET} attempts to fence {branch.branch} lost to other writers"
    )


def require_head(state: ManifestState, expected: str) -> None:
    """The check of a conditional write: the branch head is exactly the commit the caller saw."""
    if state.head.commit_id != expected:
        raise PreconditionFailed(expected, state.head.commit_id)
