"""The `Kernel`: storage, schema and ownership of one open graph, as all writers use them."""

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
    """A lock with shared and exclusive holders; a waiting exclusive one blocks new shared ones."""

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
        """Wait until the gate is not shared; False on timeout."""
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
        """Held by a long read that its caller consumes step by step, such as an export."""
        return self._streams.shared()

    def wait_for_streams(self, timeout_ms: int) -> bool:
        """Wait until no `stream` is held; False on timeout."""
        return self._streams.wait_unshared(timeout_ms)

    @contextmanager
    def write(self, branches: Iterable[str]) -> Iterator[None]:
        """Held by a write to these branches: the schema shared, the branches exclusively."""
        with ExitStack() as locks:
            locks.enter_context(self._schema.shared())
            for name in sorted(set(branches)):
                locks.enter_context(self._branch(name))
            yield

    def whole_graph(self) -> AbstractContextManager[None]:
        """Held by operations on the schema or the set of branches: excludes all writes."""
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
"""How many replaced schemas are cached."""

ForkState = Literal["absent", "half_made", "made"]


@dataclass(frozen=True, slots=True)
class Forks:
    """The forks of one graph's tables. Only the owner of a branch may change its forks."""

    lance: LanceStore
    store: ObjectStore

    def state(self, where: DatasetRef) -> ForkState:
        """Whether a fork exists, completely or in part."""
        is_listed = where.ref in self.lance.refs(where)
        try:
            self.lance.open(where)
        except NotFound:
            return "half_made" if is_listed or self.store.exists(self._prefix(where)) else "absent"
        return "made" if is_listed else "half_made"

    def make(self, where: DatasetRef, from_ref: str | None, version: int) -> Handle:
        """Fork a table at the version that the branch inherited, and open the fork."""
        assert where.ref is not None
        hit(Failpoint.FORK_BEFORE_CLASSIFY)
        try:
            handle = self.lance.create_ref(where.on(from_ref), where.ref, version)
        except StorageError as failure:
            handle = self._make_again(where, from_ref, version, failure)
        hit(Failpoint.FORK_POST_CREATE_PRE_OPEN)
        return handle

    def remove(self, where: DatasetRef) -> None:
        """Remove a fork, complete or not, if it exists."""
        self.lance.delete_ref(where)
        self.store.delete_prefix(self._prefix(where))

    def reclaim(self, where: DatasetRef) -> None:
        """Remove a fork that no live branch uses."""
        hit(Failpoint.CLEANUP_RECONCILE_FORK)
        self.remove(where)

    def _make_again(
        self, where: DatasetRef, from_ref: str | None, version: int, failure: StorageError
    ) -> Handle:
        """Remove an old fork at the place, unless a pending operation claims it, and fork again."""
        assert where.ref is not None
        state = self.state(where)
        if state == "absent":
            raise failure
        if state == "made":
            # An unused fork, by an owner that lost its lease before its first commit.
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
    """The state of a branch on which one attempt is based: manifest, snapshot and schema."""

    branch: ManifestBranch
    snapshot: Snapshot
    reader: SnapshotReader
    schema_hash: str


@dataclass(frozen=True, slots=True)
class OwnedAgain:
    """A lease that was taken again, and the state that was read at the same time."""

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
    """Whether the root is remote, so that independent requests are sent concurrently."""
    heals: bool = False
    """Whether a write that finds its branch blocked runs a full recovery of it."""
    past_schemas: dict[str, AcceptedSchema] = field(default_factory=dict)
    """Cached replaced schemas by hash; they never change."""

    @classmethod
    def of(
        cls,
        root: Root,
        settings: WriteSettings | None = None,
        *,
        serve_older: bool = False,
        heals: bool = False,
    ) -> Kernel:
        """The kernel of a root; sends no request.

        With ``serve_older``, a graph of an older internal schema can be read without migrating it.
        Writing needs a kernel without it, after the migration.
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
        """The accepted schema contract, read from the store.

        ``published`` is the schema hash of a branch's head, for callers that may run between the
        publish of a schema change and its completion.
        """
        return read_contract(self.store, published)

    def accepted_at(self, head: Snapshot, known: AcceptedSchema | None = None) -> AcceptedSchema:
        """The schema of the head of a branch, by which the branch can be written.

        A schema and a head that were read concurrently may be inconsistent: ``known`` is returned
        only if the head names its hash, else the head's schema is read.
        """
        published = head.commit.schema_hash
        if known is not None and known.schema_hash == published:
            return known
        return self.required_schema(head.branch, published)

    def accepted_on(self, branch: str, known: ManifestState | None = None) -> AcceptedSchema:
        """The schema of a branch, read from the store; raises `NotFound`.

        ``known`` is a state to use instead of the newest.
        """
        if branch == MAIN:
            return self.accepted_schema()
        state = known or self.manifest.refreshed(branch).state
        return self.accepted_at(state.head_snapshot())

    def required_schema(self, branch: str, schema_hash: str) -> AcceptedSchema:
        """The schema with the hash that the head of a branch names.

        Raises `SchemaContractError` if it is missing; on main `ReadSetChanged`, since another one
        has been accepted there.
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

        Every schema of a branch was accepted on main before.
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
        """Capture ``head``, by default the cached head of the branch, and open a reader."""
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
        """Plan the commit of ``intent`` on a captured head, under a lease."""
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
        """The commit row of ``intent`` with the parent ``before``: the next one of a group."""
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
        """A commit row with the given parent; the publish sets its position."""
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
        """Fence the previous owner of a taken-over lease, before its tables are changed."""
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
        """Own a branch exclusively, in this process and across processes.

        ``beside`` reads state of the branch concurrently with the confirmation of ownership.
        ``catch_up`` is called repeatedly while others own the branch, to read their commits.
        ``queue`` is the queue that this writer has waited in.
        """
        from omnigraph.storage.publisher import fence

        with (
            self.gates.write([branch.branch]),
            self.leases.hold_branch(branch.branch, attempt_id, beside, queue, catch_up) as lease,
        ):
            self._continue_epochs(branch, lease)
            if lease.was_taken_over:
                # The previous owner may have published until the fence was: read again.
                fence(branch, lease.epoch)
                beside()
            with self._noting_published(branch, lease):
                yield lease

    @contextmanager
    def own_again(
        self, branch: str, read_schema: Callable[[], AcceptedSchema]
    ) -> Iterator[OwnedAgain | None]:
        """Own a branch again whose lease this process has released last.

        Reads the initial state of a write concurrently. None if another process has taken the lease
        since. The caller has to check whether a graph-wide operation is running.
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

        Also checks that the manifest has the version that previous owners published.
        """
        branch.require_published(lease.published)
        if lease.is_new and lease.epoch <= branch.state.head.fence_epoch:
            lease.raise_epoch(branch.state.head.fence_epoch + 1)

    @contextmanager
    def _noting_published(self, branch: ManifestBranch, lease: Lease) -> Iterator[None]:
        """Record the manifest version of a branch in its lease, when that is released."""
        try:
            yield
        finally:
            if branch.published is not None:
                lease.note_published(branch.published)

    @contextmanager
    def own_graph(
        self, attempt_id: str, branches: Callable[[], Iterable[str]]
    ) -> Iterator[Mapping[str, Lease]]:
        """Lock out all writers, after waiting for running writes to some branches.

        ``branches`` returns these, and is called when no new write can start. A writer that does
        not end in time is fenced, so that it cannot report success on a deleted branch. Yields the
        leases by scope.
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
        """The forks of tables."""
        return Forks(self.lance, self.store)
