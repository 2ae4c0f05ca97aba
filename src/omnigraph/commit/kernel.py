"""The parts of one open graph that every writer needs, in one place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import field, replace
from functools import partial
from typing import Literal

from omnigraph.commit.leases import (
    GRAPH_SCOPE,
    NO_QUEUE,
    Lease,
    Leases,
    WriterQueue,
    WriteSettings,
    branch_scope,
)
from omnigraph.commit.plan import (
    Authority,
    CommitPlan,
    Intent,
    LeaseClaim,
    SchemaDelta,
    TableEffects,
)
from omnigraph.commit.schema.contract import accepted_tables, past_schema, read_contract
from omnigraph.commit.sidecars import Sidecars
from omnigraph.effects.clock import MINT, SYSTEM_CLOCK, Clock, IdMint
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.local_disk import configured_durability
from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.requests import concurrently, outcome
from omnigraph.effects.uri import Root
from omnigraph.errors import NotFound, ReadSetChanged, SchemaContractError, StorageError
from omnigraph.model.receipts import CommitKind
from omnigraph.model.records import dataclass
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.datasets import Handle, LanceStore
from omnigraph.storage.layout import LEASES, MAIN, past_schema_name
from omnigraph.storage.legacy import AcceptedTables
from omnigraph.storage.manifest import Manifest, ManifestBranch, ManifestState, Snapshot
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.transactions import DatasetRef


class SharedGate:
    """A lock with shared and exclusive holders; a waiting exclusive one keeps new sharers out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._alone = False
        self._waiting_alone = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the gate together with others."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting_alone)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    def wait_unshared(self, timeout_ms: int) -> bool:
        """Wait until the gate is not shared; False if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._sharing, timeout_ms / 1000)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the gate exclusively."""
        with self._changed:
            self._waiting_alone += 1
            self._changed.wait_for(lambda: not self._alone and not self._sharing)
            self._waiting_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


class Gates:
    """The gates of one root."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._schema = SharedGate()
        self._streams = SharedGate()
        self._branches: dict[str, threading.Lock] = {}

    def stream(self) -> AbstractContextManager[None]:
        """For a read that continues while its caller does other things, such as an export."""
        return self._streams.shared()

    def wait_for_streams(self, timeout_ms: int) -> bool:
        """Wait until no such read is under way; False if one takes longer."""
        return self._streams.wait_unshared(timeout_ms)

    @contextmanager
    def write(self, branches: Iterable[str]) -> Iterator[None]:
        """For a write to these branches: shares the schema, has the branches alone."""
        with ExitStack() as locks:
            locks.enter_context(self._schema.shared())
            for name in sorted(set(branches)):
                locks.enter_context(self._branch(name))
            yield

    def whole_graph(self) -> AbstractContextManager[None]:
        """For operations on the schema or the set of branches: no write runs beside them."""
        return self._schema.alone()

    def _branch(self, name: str) -> threading.Lock:
        with self._guard:
            return self._branches.setdefault(name, threading.Lock())


_gates_by_root: dict[str, Gates] = {}
_registry_guard = threading.Lock()


def gates_of(root_uri: str) -> Gates:
    """The gates shared by every handle of a canonical root in this process."""
    with _registry_guard:
        return _gates_by_root.setdefault(root_uri, Gates())


PAST_SCHEMAS_MAX = 32
"""Replaced schemas that are held."""

ForkState = Literal["absent", "half_made", "made"]


@dataclass(frozen=True, slots=True)
class Forks:
    """The forks of one graph's tables. Only the owner of a branch may change its forks."""

    lance: LanceStore
    store: ObjectStore

    def state(self, where: DatasetRef) -> ForkState:
        """Whether a fork exists, and how much of it."""
        is_listed = where.ref in self.lance.refs(where)
        try:
            self.lance.open(where)
        except NotFound:
            return "half_made" if is_listed or self.store.exists(self._prefix(where)) else "absent"
        return "made" if is_listed else "half_made"

    def make(self, where: DatasetRef, from_ref: str | None, version: int) -> Handle:
        """Fork a table at the pin the branch inherited, and open the fork."""
        assert where.ref is not None
        hit(Failpoint.FORK_BEFORE_CLASSIFY)
        try:
            handle = self.lance.create_ref(where.on(from_ref), where.ref, version)
        except StorageError as failure:
            handle = self._make_again(where, from_ref, version, failure)
        hit(Failpoint.FORK_POST_CREATE_PRE_OPEN)
        return handle

    def remove(self, where: DatasetRef) -> None:
        """Remove a fork in whatever state it is; an absent one is fine."""
        self.lance.delete_ref(where)
        self.store.delete_prefix(self._prefix(where))

    def reclaim(self, where: DatasetRef) -> None:
        """Remove a fork that no live branch has a claim to."""
        hit(Failpoint.CLEANUP_RECONCILE_FORK)
        self.remove(where)

    def _make_again(
        self, where: DatasetRef, from_ref: str | None, version: int, failure: StorageError
    ) -> Handle:
        """Clear the place of a new fork, unless a pending operation claims it, and fork again."""
        assert where.ref is not None
        state = self.state(where)
        if state == "absent":
            raise failure
        if state == "made":
            # Left by an owner that lost its lease before its first commit: usable.
            handle = self.lance.open(where)
            if handle.version == version:
                return handle
            raise StorageError(
                f"{where.address} is at version {handle.version}, but was never published"
            )
        self.remove(where)
        return self.lance.create_ref(where.on(from_ref), where.ref, version)

    def _prefix(self, where: DatasetRef) -> str:
        return where.address.removeprefix(f"{self.store.root.uri}/")


@dataclass(frozen=True, slots=True)
class Capture:
    """The branch, its snapshot and its schema as one attempt read them, once."""

    branch: ManifestBranch
    snapshot: Snapshot
    reader: SnapshotReader
    schema_hash: str


@dataclass(frozen=True, slots=True)
class OwnedAgain:
    """A lease that was taken again, and what was read meanwhile."""

    lease: Lease
    manifest: ManifestBranch
    pending: list[str]
    accepted: AcceptedSchema


@dataclass(frozen=True)
class Kernel:
    """Storage, ownership and identity of one graph root in this process."""

    root: Root
    store: ObjectStore
    lance: LanceStore
    manifest: Manifest
    sidecars: Sidecars
    leases: Leases
    gates: Gates
    clock: Clock
    ids: IdMint
    settings: WriteSettings
    is_remote: bool
    """Requests to the root have latency: independent ones are sent concurrently."""
    heals: bool = False
    """A write that finds its branch blocked runs a full recovery of it."""
    past_schemas: dict[str, AcceptedSchema] = field(default_factory=dict)
    """Replaced schemas that were read, by hash: they never change."""

    @classmethod
    def of(
        cls,
        root: Root,
        settings: WriteSettings | None = None,
        *,
        serve_older: bool = False,
        heals: bool = False,
    ) -> Kernel:
        """The kernel of a root; opening asks nothing of the store.

        With ``serve_older``, a graph of an older internal schema is shown as it is; writing to it
        is for a kernel without, once it has been migrated.
        """
        store = open_store(root)
        settings = settings or WriteSettings.from_environment()

        def older() -> AcceptedTables:
            return accepted_tables(read_contract(store))

        durability = configured_durability()
        lance = LanceStore(root, durability)
        locks = None if root.path is None else root.path / LEASES
        leases = Leases(store, MINT.ulid(), settings, locks)
        manifest = Manifest(lance, root.uri, older if serve_older else None, leases.last_published)
        lance.is_pinned = manifest.is_pinned
        return cls(
            root,
            store,
            lance,
            manifest,
            Sidecars(store),
            leases,
            gates_of(root.uri),
            SYSTEM_CLOCK,
            MINT,
            settings,
            not root.is_local,
            heals,
        )

    def accepted_schema(self, published: str | None = None) -> AcceptedSchema:
        """The schema contract in force, read from the store.

        ``published`` is the hash a branch's head names, for those who may meet a change of schema
        that is published and about to be completed.
        """
        return read_contract(self.store, published)

    def accepted_at(self, head: Snapshot, known: AcceptedSchema | None = None) -> AcceptedSchema:
        """The schema the head of a branch was written with: the one it may be written with now.

        Schema and branch were read one beside the other, so they may not belong together. A change
        of schema is a commit: while the head names the schema that is ``known``, none happened.
        """
        published = head.commit.schema_hash
        if known is not None and known.schema_hash == published:
            return known
        return self.required_schema(head.branch, published)

    def accepted_on(self, branch: str, known: ManifestState | None = None) -> AcceptedSchema:
        """The schema of a branch, read from the store; raises `NotFound`.

        ``known`` is its state as the caller has read it, instead of the newest.
        """
        if branch == MAIN:
            return self.accepted_schema()
        state = known or self.manifest.refreshed(branch).state
        return self.accepted_at(state.head_snapshot())

    def required_schema(self, branch: str, schema_hash: str) -> AcceptedSchema:
        """The schema with the hash that the head of a branch names.

        Raises `SchemaContractError` if it is lost; on main `ReadSetChanged`, because another one is
        accepted there by now.
        """
        found = self.schema_of(schema_hash)
        if found is not None:
            return found
        if branch == MAIN:
            raise ReadSetChanged("schema_hash", schema_hash, self.accepted_schema().schema_hash)
        raise SchemaContractError(
            f"the schema of branch {branch} is missing: {past_schema_name(schema_hash)}",
            hint="restore it from a copy of this graph; the data is still there",
        )

    def schema_of(self, schema_hash: str) -> AcceptedSchema | None:
        """The schema with a hash: the accepted one, or one that main replaced; None if unknown.

        Every schema of a branch was main's once, since only main gets new ones.
        """
        known = self.past_schemas.get(schema_hash)
        if known is not None:
            return known
        accepted = self.accepted_schema(schema_hash)
        if accepted.schema_hash == schema_hash:
            return accepted
        found = past_schema(self.store, schema_hash)
        if found is not None:
            if len(self.past_schemas) >= PAST_SCHEMAS_MAX:
                self.past_schemas.clear()
            self.past_schemas[schema_hash] = found
        return found

    def capture(
        self, branch: ManifestBranch, schema_hash: str, head: Snapshot | None = None
    ) -> Capture:
        """``head``, or the head of a branch as it was last read, and a reader of its tables."""
        snapshot = head or branch.state.head_snapshot()
        reader = SnapshotReader(self.lance, self.root.uri, snapshot)
        return Capture(branch, snapshot, reader, schema_hash)

    def plan(
        self,
        capture: Capture,
        lease: Lease,
        intent: Intent,
        tables: tuple[TableEffects, ...],
        *,
        attempt_id: str,
        schema: SchemaDelta | None = None,
    ) -> CommitPlan:
        """The commit of ``intent`` on a captured head, by the holder of a lease."""
        branch, captured_hash = capture.branch, capture.schema_hash
        target_hash = captured_hash if schema is None else schema.target_hash
        authority = Authority.of(capture.snapshot, captured_hash)
        commit_id, rollback_commit_id = self.ids.ulids(2)
        lineage = self.next_commit(
            branch,
            authority.head_commit_id,
            intent.commit_kind,
            target_hash,
            actor_id=intent.actor_id,
            commit_id=commit_id,
        )
        started_at, brought = lineage.created_at, intent.brought
        if brought is not None:
            lineage = replace(lineage, commit_id=brought.commit_id, created_at=brought.created_at)
        return CommitPlan(
            attempt_id=attempt_id,
            writer_kind=intent.writer_kind,
            started_at=started_at,
            actor_id=intent.actor_id,
            branch=branch.branch,
            ref=branch.where.ref,
            lease=LeaseClaim.of(lease),
            authority=authority,
            lineage=replace(
                lineage,
                merged_parent_commit_id=intent.merged_parent,
                operation_id=intent.operation_id,
                receipt=intent.receipt_with_message,
            ),
            rollback_commit_id=rollback_commit_id,
            tables=tables,
            schema=schema,
        )

    def commit_on(self, before: CommitRow, intent: Intent, commit_id: str) -> CommitRow:
        """The next commit of a group: that of ``intent`` on top of the one ``before``."""
        return replace(
            before,
            commit_id=commit_id,
            parent_commit_id=before.commit_id,
            actor_id=intent.actor_id,
            kind=intent.commit_kind,
            created_at=self.clock.wall_us(),
            operation_id=intent.operation_id,
            receipt=intent.receipt_with_message,
        )

    def next_commit(
        self,
        branch: ManifestBranch,
        parent: str,
        kind: CommitKind,
        schema_hash: str,
        *,
        actor_id: str | None,
        commit_id: str,
    ) -> CommitRow:
        """A commit on top of ``parent``; its position is filled in when it is published."""
        return CommitRow(
            commit_id=commit_id,
            branch=None if branch.where.ref is None else branch.branch,
            manifest_version=0,
            commit_seq=0,
            parent_commit_id=parent,
            merged_parent_commit_id=None,
            actor_id=actor_id,
            kind=kind,
            schema_hash=schema_hash,
            created_at=self.clock.wall_us(),
        )

    def table_uri(self, location: str) -> str:
        """The dataset at a location relative to the root."""
        return f"{self.root.uri}/{location}"

    def fence_if_taken_over(self, branch: ManifestBranch, lease: Lease) -> None:
        """Fence a dead owner before its tables or its sidecars are changed."""
        from omnigraph.storage.publisher import fence

        if lease.was_taken_over:
            fence(branch, lease.epoch)

    @contextmanager
    def own_branch(
        self,
        branch: ManifestBranch,
        attempt_id: str,
        beside: Callable[[], object] = lambda: None,
        queue: WriterQueue = NO_QUEUE,
        catch_up: Callable[[], object] | None = None,
    ) -> Iterator[Lease]:
        """Be the only writer of a branch, in this process and in all others.

        ``beside`` reads what the owner wants to know of the branch, while ownership is confirmed;
        ``catch_up`` what others have written to it, while they still own it. ``queue`` is the one
        that this writer has waited in.
        """
        from omnigraph.storage.publisher import fence

        with (
            self.gates.write([branch.branch]),
            self.leases.hold_branch(branch.branch, attempt_id, beside, queue, catch_up) as lease,
        ):
            self._continue_epochs(branch, lease)
            if lease.was_taken_over:
                # The former owner may have written until the fence was published: read again.
                fence(branch, lease.epoch)
                beside()
            with self._noting_published(branch, lease):
                yield lease

    @contextmanager
    def own_again(
        self, branch: str, read_schema: Callable[[], AcceptedSchema]
    ) -> Iterator[OwnedAgain | None]:
        """Be the only writer of a branch whose lease this process has given back.

        All that a write begins with is read while the lease is taken. None if another process has
        taken it since. The caller has to look whether a graph-wide operation runs.
        """
        attempt_id = self.ids.ulid()
        with self.gates.write([branch]):
            begin = partial(
                concurrently,
                partial(self.manifest.refreshed, branch),
                self.sidecars.names,
                read_schema,
                threads=True,
            )
            lease, read = concurrently(
                partial(outcome, partial(self.leases.take_again, branch, attempt_id)),
                partial(outcome, begin),
                threads=True,
            )
            if isinstance(lease, Exception):
                raise lease
            with lease or nullcontext():
                if isinstance(read, Exception):
                    raise read
                if lease is None:
                    yield None
                    return
                owned = OwnedAgain(lease, *read)
                self._continue_epochs(owned.manifest, lease)
                with self._noting_published(owned.manifest, lease):
                    yield owned

    def _continue_epochs(self, branch: ManifestBranch, lease: Lease) -> None:
        """If the record of a lease was lost, continue with an epoch above that of the head row.

        Before anything is written, also check that the manifest still has what former owners
        published.
        """
        branch.require_published(lease.published)
        if lease.is_new and lease.epoch <= branch.state.head.fence_epoch:
            lease.raise_epoch(branch.state.head.fence_epoch + 1)

    @contextmanager
    def _noting_published(self, branch: ManifestBranch, lease: Lease) -> Iterator[None]:
        """Leave the manifest version of a branch with its lease, when that is released."""
        try:
            yield
        finally:
            if branch.published is not None:
                lease.note_published(branch.published)

    @contextmanager
    def own_graph(
        self, attempt_id: str, branches: Callable[[], Iterable[str]]
    ) -> Iterator[Mapping[str, Lease]]:
        """Keep every writer out, and wait for those that are on their way to some branches.

        ``branches`` says which, asked when no new writer can come. A writer that did not end in
        time is fenced: it cannot report a success on a deleted branch. Yields the leases by their
        scopes.
        """
        from omnigraph.storage.publisher import fence

        with ExitStack() as locks:
            locks.enter_context(self.gates.whole_graph())
            whole = locks.enter_context(self.leases.hold(GRAPH_SCOPE, attempt_id))
            owned = {
                name: locks.enter_context(self.leases.hold(branch_scope(name), attempt_id))
                for name in sorted(branches())
            }
            for name, lease in owned.items():
                if name == MAIN:
                    self._continue_epochs(self.manifest.main, lease)
                    locks.enter_context(self._noting_published(self.manifest.main, lease))
                if lease.was_taken_over:
                    fence(self.manifest.branch(name), lease.epoch)
            yield {lease.scope: lease for lease in (whole, *owned.values())}

    @property
    def forks(self) -> Forks:
        """The forks of tables that branches have."""
        return Forks(self.lance, self.store)
