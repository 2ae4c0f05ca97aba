"""From a prepared change to a published commit: barrier, capture, prepare, attempt, retry.

The first attempt of a write is prepared and staged without owning the branch. If the branch moved
meanwhile, the second attempt prepares everything again as the owner of the branch, so it cannot
lose a second time, however many writers there are. It may reuse data files of the first attempt if
their content is still right.

Mutations of one machine queue while they prepare. Loads do not, since they may prepare for long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from omnigraph.commit.grouping import GroupCommit, Member, MemberWrite, may_join
from omnigraph.commit.handing_over import Answer, HandOver, may_be_handed_over
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import (
    MEMBERS_MAX,
    NO_QUEUE,
    Lease,
    WaitingWriter,
    WriterGroup,
    WriterQueue,
)
from omnigraph.commit.plan import ChangeSet, Intent
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.writer import WriteAttempt, require_nothing_pending
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.requests import concurrently
from omnigraph.errors import (
    Conflict,
    EffectFreeConflict,
    ExpectedVersionMismatch,
    OmnigraphError,
    ReadSetChanged,
    RecoveryRequired,
    StorageError,
    WriterBusy,
)
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.model.receipts import CommitKind
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestBranch, ManifestState
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.publisher import require_head, was_published

log = logging.getLogger(__name__)

MOVED = (ExpectedVersionMismatch, ReadSetChanged, EffectFreeConflict)
"""Another writer was first, and this attempt has left no effects."""

GOES_ON_SECONDS = 0.1
"""How long an owner goes on to commit the writes of other processes, while its caller waits."""

MET_SECONDS = 0.5
"""How long a process writes through groups after another process has answered a write of it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prepared(Generic[T]):
    """The change set of one attempt, and the content of its receipt."""

    changes: ChangeSet
    result: T
    intent: Intent
    is_additive: bool = False
    """Whether change set and result are the same on every state that contains none of its ids."""


@dataclass(frozen=True, slots=True)
class WriteOutcome(Generic[T]):
    """A finished write; ``commit`` is None when there was nothing to change."""

    result: T
    commit: CommitRow | None
    upkeep_failed: bool = False
    """Whether the upkeep that followed the commit was interrupted."""


Prepare = Callable[[Capture, Catalog], Prepared[T]]


@dataclass(frozen=True, slots=True)
class _WriteRequest:
    """The arguments of one write, the same for all of its attempts."""

    branch: str
    kind: CommitKind
    accepted: AcceptedSchema
    retries: int
    may_prepare_again: bool
    expected_head: str | None
    operation_id: str | None
    actor_id: str | None
    read_again: Callable[[], AcceptedSchema] | None = None

    def schema_now(self) -> AcceptedSchema:
        """The accepted schema; it may be newer or older than that of the branch's head."""
        return self.accepted if self.read_again is None else self.read_again()

    def with_schema(self, accepted: AcceptedSchema) -> _WriteRequest:
        """A copy with the schema that was read."""
        return replace(self, accepted=accepted, read_again=None)

    @property
    def may_share(self) -> bool:
        """Whether it may join a group, as far as that is known before it is prepared."""
        return (
            self.kind in ("mutation", "load")
            and self.may_prepare_again
            and self.expected_head is None
        )


class WritePath:
    """Runs the writes of one graph."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._recoverer = Recoverer(kernel)
        self._groups: dict[str, WriterGroup[MemberWrite]] = {}
        self._handed: dict[str, HandOver] = {}
        """By branch, on local disk."""
        self._met: dict[str, float] = {}
        """By branch, when another process last answered a write of this one."""

    def group(self, branch: str) -> WriterGroup[MemberWrite]:
        """The writers of a branch in this process that may share a publish."""
        return self._groups.setdefault(branch, WriterGroup())

    def write(
        self,
        branch: str,
        prepare: Prepare[T],
        *,
        kind: CommitKind,
        accepted: AcceptedSchema,
        read_again: Callable[[], AcceptedSchema] | None = None,
        may_prepare_again: bool,
        expected_head: str | None = None,
        operation_id: str | None = None,
        actor_id: str | None = None,
    ) -> WriteOutcome[T]:
        """Prepare and publish; ``prepare`` is called anew for every attempt.

        ``accepted`` is the schema as the caller has just read it; it is read again only if the
        branch shows another one. If it was read before, ``read_again`` reads it.

        ``may_prepare_again`` is for writes that are as valid on a newer head: inserts, append and
        merge loads. Others get the conflict, unless there were only maintenance commits in between.
        A conditional write is never prepared again. Raises `AlreadyWritten` if the branch has a
        commit of ``operation_id`` by the same actor.
        """
        retries = 0 if expected_head is not None else self._kernel.settings.retries
        request = _WriteRequest(
            branch,
            kind,
            accepted,
            retries,
            may_prepare_again,
            expected_head,
            operation_id,
            actor_id,
            read_again,
        )
        for attempt in range(retries + 1):
            captured: list[Capture] = []
            try:
                if not attempt:
                    return self._recovered(self._first(request, prepare, captured))
                return self._recovered(self._as_owner(request, prepare, captured))
            except MOVED as moved:
                # An attempt without effects may be repeated, whatever the other writer has changed.
                effect_free = isinstance(moved, EffectFreeConflict)
                if attempt == retries or not (effect_free or self._may_repeat(request, captured)):
                    raise
            except StorageError as error:
                # The branch may have been deleted concurrently; this raises `NotFound` then.
                self._kernel.manifest.branch(branch)
                # Or it has moved, and `cleanup` has removed the version that this attempt read.
                conflict = self._moved_on(captured)
                if conflict is None:
                    raise
                if attempt == retries or not self._may_repeat(request, captured):
                    raise conflict from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _first(
        self, request: _WriteRequest, prepare: Prepare[T], captured: list[Capture]
    ) -> WriteOutcome[T]:
        """The first attempt: through a group if other writers are active on the branch."""
        if not request.may_share:
            return self._beside_others(request, prepare, captured)
        group = self.group(request.branch)
        if not group.try_lead():
            return self._with_others(group, request, prepare, captured)
        try:
            if self._is_crowded(request.branch):
                return self._after_others(group, request, prepare, captured)
            return self._beside_others(request, prepare, captured)
        finally:
            group.end_lead()

    def _is_crowded(self, branch: str) -> bool:
        """Whether another process of this machine writes to the branch, or waits to."""
        leases = self._kernel.leases
        if leases.is_crowded(branch):
            return True
        # A writer outside a group does not commit waiting writes. Writers that were answered a
        # moment ago are likely to write again.
        met = self._met.get(branch, float("-inf"))
        return time.monotonic() - met < MET_SECONDS or leases.has_handed_over(branch)

    def _machine(self, branch: str) -> HandOver | None:
        """The writes of other processes that wait for a branch, on local disk."""
        locks = self._kernel.leases.locks
        return None if locks is None else self._handed.setdefault(branch, HandOver(locks, branch))

    def _after_others(
        self,
        group: WriterGroup[MemberWrite],
        request: _WriteRequest,
        prepare: Prepare[T],
        captured: list[Capture],
    ) -> WriteOutcome[T]:
        """Hand the write over to the owner of the branch; lead a group if it becomes free."""
        leases = self._kernel.leases
        joined = self._prepared_member(request, prepare)
        if joined is None or leases.locks is None or not may_be_handed_over(joined[1].write):
            return self._beside_others(request, prepare, captured)
        prepared, member = joined
        machine = self._machine(request.branch)
        assert machine is not None
        left = machine.leave(member.write)
        turn = leases.turn(request.branch)
        try:
            is_free = partial(leases.is_free, request.branch)
            answer = left.wait(is_free, turn, leases.wait_ms)
            if answer is not None:
                self._met[request.branch] = time.monotonic()
            if answer is None:
                queue = WriterQueue(True, turn.release)
                upkeep_failed = self._lead(group, request, member, queue)
                if member.failure is not None:
                    raise member.failure
                if member.commit is not None:
                    return WriteOutcome(prepared.result, member.commit, upkeep_failed)
            else:
                commit = self._handed_over(request, member.write, answer)
                if commit is not None:
                    return WriteOutcome(prepared.result, commit)
        finally:
            turn.release()
            left.end()
        return self._as_owner(request, prepare, captured)

    def _handed_over(
        self, request: _WriteRequest, write: MemberWrite, answer: Answer
    ) -> CommitRow | None:
        """The commit of a write that another process has claimed; None if it did not land.

        The manifest is the proof. A dead owner has left a sidecar, which is recovered first;
        raises `RecoveryRequired` if that is not possible yet.
        """
        manifest = self._kernel.manifest.known(request.branch)
        told = answer.commit
        if told is not None and told.commit_id == write.commit_id:
            if was_published(manifest, told.manifest_version, write.commit_id):
                return told
            manifest.refresh()
        else:
            try:
                manifest = self._recoverer.barrier(request.branch, request.kind)
            except RecoveryRequired as unsettled:
                raise RecoveryRequired(
                    unsettled.details["operation_id"],
                    f"the owner of {request.branch} that took this write was interrupted: "
                    f"{unsettled.message}",
                    f"{unsettled.hint}",
                    outcome="unknown",
                ) from unsettled
        return manifest.state.commits.get(write.commit_id)

    def _with_others(
        self,
        group: WriterGroup[MemberWrite],
        request: _WriteRequest,
        prepare: Prepare[T],
        captured: list[Capture],
    ) -> WriteOutcome[T]:
        """Prepare on the cached state of the branch, and let the leader of a group commit it."""
        joined = self._prepared_member(request, prepare)
        if joined is not None:
            prepared, member = joined
            upkeep_failed = False
            if not group.join(member):
                try:
                    upkeep_failed = self._lead(group, request, member)
                finally:
                    group.end_lead()
            if member.failure is not None:
                raise member.failure
            if member.commit is not None:
                return WriteOutcome(prepared.result, member.commit, upkeep_failed)
        return self._as_owner(request, prepare, captured)

    def _prepared_member(
        self, request: _WriteRequest, prepare: Prepare[T]
    ) -> tuple[Prepared[T], Member] | None:
        """A staged member of a group; None if the write has to be committed by itself.

        The cached state of the branch may be outdated. So errors found here are not raised, and
        the leader checks again whatever was accepted.
        """
        kernel = self._kernel
        if kernel.manifest.known_state(request.branch) is None:
            return None
        try:
            manifest = kernel.manifest.known(request.branch)
            capture, prepared = self._prepare(manifest, request, prepare, [])
            if not prepared.is_additive or prepared.changes.is_empty:
                return None
            if not may_join(prepared.changes):
                return None
            attempt = WriteAttempt(
                kernel, capture, prepared.changes, prepared.intent, assumes_new=True
            )
            if any(table.effects.first_touch is not None for table in attempt.tables):
                return None
            attempt.stage()
        except (OmnigraphError, AlreadyWritten):
            return None
        write = MemberWrite.of(attempt, kernel.ids.ulid())
        return None if write is None else (prepared, WaitingWriter(write))

    def _lead(
        self,
        group: WriterGroup[MemberWrite],
        request: _WriteRequest,
        member: Member,
        queue: WriterQueue = NO_QUEUE,
    ) -> bool:
        """Own the branch and commit the waiting members; returns whether upkeep was interrupted.

        ``queue`` is the queue that the writer holds its place in.
        """
        kernel = self._kernel
        if kernel.leases.was_ours(request.branch):
            done = self._lead_again(group, request, member)
            if done is not None:
                return done
        manifest = kernel.manifest.known(request.branch)
        try:
            if kernel.leases.is_unowned(request.branch):
                done = self._lead_if_clear(group, request, member, manifest, queue)
                if done is not None:
                    return done
            request, manifest = self._begun(request)
            done = self._lead_if_clear(group, request, member, manifest, is_settled=True)
        except WriterBusy as busy:
            group.fail_waiting(busy)
            raise
        assert done is not None
        return done

    def _lead_if_clear(
        self,
        group: WriterGroup[MemberWrite],
        request: _WriteRequest,
        member: Member,
        manifest: ManifestBranch,
        queue: WriterQueue = NO_QUEUE,
        *,
        is_settled: bool = False,
    ) -> bool | None:
        """`_lead` after the barrier, or without it (not ``is_settled``): None if it is needed."""
        kernel = self._kernel
        pending: list[str] = []
        newest = manifest

        def look() -> None:
            nonlocal newest
            newest = kernel.manifest.refreshed(request.branch)
            pending[:] = kernel.sidecars.names()

        with kernel.own_branch(manifest, member.write.attempt_id, look, queue) as lease:
            if is_settled:
                require_nothing_pending(kernel, request.branch, pending)
            elif newest is not manifest or not self._is_clear(manifest, pending):
                return None
            request = request.with_schema(request.schema_now())
            return self._commit_group(group, request, member, lease, is_confirmed=True)

    def _lead_again(
        self, group: WriterGroup[MemberWrite], request: _WriteRequest, member: Member
    ) -> bool | None:
        """`_lead` for the process that owned the branch last; see `_as_last_owner`."""
        kernel, branch = self._kernel, request.branch
        with kernel.own_again(branch, request.schema_now) as owned:
            if owned is None or not self._is_clear(owned.manifest, owned.pending):
                return None
            request = request.with_schema(owned.accepted)
            return self._commit_group(group, request, member, owned.lease, is_confirmed=False)

    def _commit_group(
        self,
        group: WriterGroup[MemberWrite],
        request: _WriteRequest,
        member: Member,
        lease: Lease,
        *,
        is_confirmed: bool,
    ) -> bool:
        """Commit a member and the waiting ones; returns whether upkeep was interrupted.

        The owner goes on with writes that other processes hand over meanwhile: its state of the
        branch is current, while the next owner would have to read it.
        """
        machine = self._machine(request.branch)
        commit = self._group_commit(request, lease, is_confirmed=is_confirmed)
        self._run_group(commit, group, machine, [member])
        ends = time.monotonic() + GOES_ON_SECONDS
        while (
            commit.may_go_on
            and time.monotonic() < ends
            and self._kernel.leases.has_handed_over(request.branch)
        ):
            try:
                commit = self._group_commit(request, lease, is_confirmed=True)
                self._run_group(commit, group, machine)
            except Exception:
                # The write of this owner is published, and the claimed ones have their answers.
                log.warning("a group of %s was interrupted", request.branch, exc_info=True)
                return True
        return commit.upkeep_failed

    def _group_commit(
        self, request: _WriteRequest, lease: Lease, *, is_confirmed: bool
    ) -> GroupCommit:
        kernel = self._kernel
        current = kernel.manifest.known(request.branch)
        head = current.state.head_snapshot()
        accepted = kernel.accepted_at(head, request.accepted)
        capture = kernel.capture(current, accepted.schema_hash, head)
        return GroupCommit(kernel, capture, accepted.catalog, lease, is_confirmed)

    def _run_group(
        self,
        commit: GroupCommit,
        group: WriterGroup[MemberWrite],
        machine: HandOver | None,
        first: Sequence[Member] = (),
    ) -> None:
        """Commit some members together with those that wait in this and in other processes."""
        handed = [] if machine is None else machine.take(MEMBERS_MAX - len(first))
        room = MEMBERS_MAX - len(first) - len(handed)
        members = [*first, *group.take(room), *handed]

        def tell() -> None:
            group.tell()
            for each in handed:
                assert machine is not None
                machine.tell(each)

        commit.run(members, tell)

    def _begun(self, request: _WriteRequest) -> tuple[_WriteRequest, ManifestBranch]:
        """Run the barrier, and read the schema at the same time."""
        manifest, accepted = concurrently(
            partial(self._recoverer.barrier, request.branch, request.kind),
            request.schema_now,
            threads=self._kernel.is_remote,
        )
        return request.with_schema(accepted), manifest

    def _as_owner(
        self, request: _WriteRequest, prepare: Prepare[T], captured: list[Capture]
    ) -> WriteOutcome[T]:
        """Own the branch first, and then prepare."""
        request, manifest = self._begun(request)
        attempt_id = self._kernel.ids.ulid()
        with self._kernel.own_branch(manifest, attempt_id) as lease:
            return self._owned(lease, request, prepare, captured)

    def _as_last_owner(
        self, request: _WriteRequest, prepare: Prepare[T], captured: list[Capture]
    ) -> WriteOutcome[T] | None:
        """Own the branch again, on an object store, and prepare; None if it cannot be owned so.

        This process owned it last, so probably no other writes to it. One request takes the lease,
        at the same time as the reads. The state that the write assumes is read under the lease
        while the write is staged.
        """
        kernel, branch = self._kernel, request.branch
        with kernel.own_again(branch, request.schema_now) as owned:
            if owned is None or not self._is_clear(owned.manifest, owned.pending):
                return None
            request = request.with_schema(owned.accepted)
            lease = owned.lease
            capture, prepared = self._prepare(owned.manifest, request, prepare, captured)
            if prepared.changes.is_empty:
                if request.expected_head is not None:
                    require_head(capture.branch.refresh(), request.expected_head)
                return WriteOutcome(prepared.result, None)
            expects_new = request.kind == "mutation" and request.may_prepare_again
            attempt = WriteAttempt(
                kernel, capture, prepared.changes, prepared.intent, expects_new=expects_new
            )
            if not attempt.stage_as_owner():
                return None  # a graph-wide operation waits for the branch
            try:
                commit = attempt.commit(lease)
                return WriteOutcome(prepared.result, commit, attempt.upkeep_failed)
            except (ExpectedVersionMismatch, ReadSetChanged):
                if not lease.is_valid or not self._may_repeat(request, captured):
                    raise
                return self._owned(lease, request, prepare, captured, attempt)

    def _is_clear(self, manifest: ManifestBranch, pending: list[str]) -> bool:
        """Whether no operation is pending and no schema change locks the branch."""
        is_locked = SCHEMA_APPLY_LOCK in manifest.state.branches
        return not pending and not (manifest.branch == MAIN and is_locked)

    def _beside_others(
        self, request: _WriteRequest, prepare: Prepare[T], captured: list[Capture]
    ) -> WriteOutcome[T]:
        """Prepare without owning the branch, since most writes meet no other writer."""
        if self._kernel.leases.was_ours(request.branch):
            written = self._as_last_owner(request, prepare, captured)
            if written is not None:
                return written
        with ExitStack() as until_owned:
            queue = NO_QUEUE
            if request.kind == "mutation":
                queue = until_owned.enter_context(self._kernel.leases.queued(request.branch))
            request, manifest = self._begun(request)
            if queue.is_crowded and not request.may_prepare_again:
                # Another writer is about to publish, and this write could not be prepared again.
                attempt_id = self._kernel.ids.ulid()
                with self._kernel.own_branch(manifest, attempt_id, queue=queue) as lease:
                    return self._owned(lease, request, prepare, captured)
            capture, prepared = self._prepare(manifest, request, prepare, captured)
            if prepared.changes.is_empty:
                self._acknowledge_nothing(capture, request.expected_head)
                return WriteOutcome(prepared.result, None)
            attempt = WriteAttempt(
                self._kernel, capture, prepared.changes, prepared.intent, queue=queue
            )
            attempt.stage()
            with attempt.owned_branch() as lease:
                try:
                    commit = attempt.commit(lease)
                    return WriteOutcome(prepared.result, commit, attempt.upkeep_failed)
                except (ExpectedVersionMismatch, ReadSetChanged):
                    if not lease.is_valid or not self._may_repeat(request, captured):
                        raise
                    # The second attempt runs under the same lease.
                    return self._owned(lease, request, prepare, captured, attempt)

    def _owned(
        self,
        lease: Lease,
        request: _WriteRequest,
        prepare: Prepare[T],
        captured: list[Capture],
        earlier: WriteAttempt | None = None,
    ) -> WriteOutcome[T]:
        """Prepare and commit as the owner of the branch, which cannot move meanwhile."""
        manifest = self._kernel.manifest.refreshed(request.branch)
        capture, prepared = self._prepare(manifest, request, prepare, captured)
        if prepared.changes.is_empty:
            return WriteOutcome(prepared.result, None)
        attempt = WriteAttempt(
            self._kernel, capture, prepared.changes, prepared.intent, earlier=earlier
        )
        commit = attempt.run_owned(lease)
        return WriteOutcome(prepared.result, commit, attempt.upkeep_failed)

    def _recovered(self, written: WriteOutcome[T]) -> WriteOutcome[T]:
        """Recover interrupted upkeep, which would make the next write recover it first."""
        if written.upkeep_failed:
            try:
                self._recoverer.run("full")
            except Exception:
                log.warning("interrupted upkeep was not recovered", exc_info=True)
        return written

    def _prepare(
        self,
        manifest: ManifestBranch,
        request: _WriteRequest,
        prepare: Prepare[T],
        captured: list[Capture],
    ) -> tuple[Capture, Prepared[T]]:
        """Capture the head and build the change set on it."""
        state = manifest.state
        # Before ``expected_head`` is checked: a repeated conditional write has moved the head.
        refuse_repetition(state, request.operation_id, request.actor_id, request.kind)
        if request.expected_head is not None:
            require_head(state, request.expected_head)
        head = state.head_snapshot()
        accepted = self._kernel.accepted_at(head, request.accepted)
        capture = self._kernel.capture(manifest, accepted.schema_hash, head)
        captured.append(capture)
        return capture, prepare(capture, accepted.catalog)

    def _acknowledge_nothing(self, capture: Capture, expected_head: str | None) -> None:
        """Check the expected head of a write that changes nothing."""
        hit(Failpoint.MUTATION_POST_NO_EFFECT_PRE_GATE)
        if expected_head is None:
            return
        with self._kernel.gates.write([capture.branch.branch]):
            require_head(capture.branch.refresh(), expected_head)

    def _moved_on(self, captured: list[Capture]) -> ReadSetChanged | None:
        """The error if the branch has moved since this attempt captured it; None if it has not."""
        if not captured:
            return None
        before = captured[-1].snapshot.commit_id
        head = captured[-1].branch.refresh().head.commit_id
        return None if head == before else ReadSetChanged("graph_head", before, head)

    def _may_repeat(self, request: _WriteRequest, captured: list[Capture]) -> bool:
        """Whether a write whose branch moved may be prepared on the newer head.

        It may if it only inserts, or if all newer commits are maintenance, which keeps content.
        """
        if request.may_prepare_again or not request.retries or not captured:
            return request.may_prepare_again and request.retries > 0
        capture = captured[-1]
        state = capture.branch.refresh()
        since = capture.snapshot.commit.commit_seq
        newer = [row for row in state.commits.values() if row.commit_seq > since]
        return bool(newer) and all(row.kind == "maintenance" for row in newer)


class AlreadyWritten(Exception):
    """The operation with this idempotency key is already committed; the commit has its receipt."""

    def __init__(self, commit: CommitRow) -> None:
        super().__init__(commit.commit_id)
        self.commit = commit


def refuse_repetition(
    state: ManifestState, operation_id: str | None, actor_id: str | None, kind: CommitKind
) -> None:
    """Raise `AlreadyWritten` if this branch has a commit of the operation.

    Keys are separate per actor: another actor neither sees the receipt nor uses the key up.
    """
    row = earlier_commit(state, operation_id, actor_id, kind)
    if row is not None:
        raise AlreadyWritten(row)


def earlier_commit(
    state: ManifestState,
    operation_id: str | None,
    actor_id: str | None,
    kind: CommitKind,
    request: Mapping[str, Any] | None = None,
) -> CommitRow | None:
    """The commit of an actor's operation on this branch; None if there is none.

    Raises `Conflict` if the commit is of another kind, or its receipt has other values for
    ``request``.
    """
    row = None if operation_id is None else state.operations.get((actor_id, operation_id))
    if operation_id is None or row is None:
        return None
    if row.kind != kind:
        raise key_taken(operation_id, f"a {row.kind}", row)
    stored = row.receipt or {}
    if request is not None and any(stored.get(name) != value for name, value in request.items()):
        raise key_taken(operation_id, f"another {kind}", row)
    return row


def key_taken(key: str, used_for: str, row: CommitRow | None = None) -> Conflict:
    """The error for an idempotency key that names another write."""
    hint, details = "use a new key for each write", {"idempotency_key": key}
    if row is not None:
        hint += f"; this one belongs to commit {row.commit_id}"
        details["graph_commit_id"] = row.commit_id
    return Conflict(
        f"the idempotency key '{key}' was already used for {used_for}", hint=hint, details=details
    )
