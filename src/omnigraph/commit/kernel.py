"""The parts of one open graph that every writer needs, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from omnigraph.commit.gates import Gates, gates_of
from omnigraph.commit.leases import Lease, Leases, LeaseSettings
from omnigraph.commit.schema_contract import accepted_tables, read_contract
from omnigraph.commit.sidecar import Sidecars
from omnigraph.effects.clock import SYSTEM_CLOCK, Clock
from omnigraph.effects.durability import configured_durability
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.ids import MINT, IdMint
from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.os_lock import OsLock, lock_path
from omnigraph.effects.uri import Root
from omnigraph.errors import ReadSetChanged
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.datasets import DatasetRef, Handle, LanceStore
from omnigraph.storage.layout import LEASES
from omnigraph.storage.legacy import AcceptedTables
from omnigraph.storage.manifest import Manifest, ManifestBranch
from omnigraph.storage.publisher import fence
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Capture:
    """The world as one attempt saw it, read once."""

    branch: ManifestBranch
    snapshot: Snapshot
    reader: SnapshotReader
    schema_hash: str


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

    @classmethod
    def of(
        cls, root: Root, settings: LeaseSettings | None = None, *, serve_older: bool = False
    ) -> Kernel:
        """The kernel of a root; opening asks nothing of the store.

        With ``serve_older``, a graph of an older internal schema is shown as it is; writing to it
        is for a kernel without, once it has been migrated.
        """
        store = open_store(root)

        def older() -> AcceptedTables:
            return accepted_tables(read_contract(store))

        durability = configured_durability()
        lance = LanceStore(root, durability)
        os_lock_for: Callable[[str], OsLock] | None = None
        if root.path is not None:
            directory = root.path / LEASES

            def os_lock_for(scope: str) -> OsLock:
                return OsLock(lock_path(directory, scope))

        return cls(
            root,
            store,
            lance,
            Manifest(lance, root.uri, older if serve_older else None),
            Sidecars(store),
            Leases(
                store, MINT.owner_id(), settings or LeaseSettings.from_environment(), os_lock_for
            ),
            gates_of(root.uri),
            SYSTEM_CLOCK,
            MINT,
        )

    def accepted_schema(self) -> AcceptedSchema:
        """The schema contract in force, read from the store."""
        return read_contract(self.store)

    def capture(self, branch: ManifestBranch, schema_hash: str) -> Capture:
        """The head of a branch as it was last read, with a reader of its tables."""
        snapshot = branch.state.head_snapshot()
        reader = SnapshotReader(self.lance, self.root.uri, snapshot)
        return Capture(branch, snapshot, reader, schema_hash)

    def table_uri(self, location: str) -> str:
        """The dataset at a location relative to the root."""
        return f"{self.root.uri}/{location}"

    def require_registered(self, branch: ManifestBranch) -> None:
        """The branch is still the one that was captured, not a namesake."""
        if branch.where.ref is None:
            return
        current = self.manifest.registration(branch.branch)
        if current.ref != branch.where.ref:
            raise ReadSetChanged("graph_branch", branch.where.ref, current.ref)

    def fence_if_taken_over(self, branch: ManifestBranch, lease: Lease) -> None:
        """Shut a dead owner out before anything of its is touched."""
        if lease.was_taken_over:
            fence(branch, lease.epoch)

    @contextmanager
    def own_branch(self, branch: ManifestBranch, operation_id: str) -> Iterator[Lease]:
        """Be the only writer of a branch, in this process and in all others."""
        with (
            self.gates.write([branch.branch]),
            self.leases.hold_branch(branch.branch, operation_id) as lease,
        ):
            self.fence_if_taken_over(branch, lease)
            yield lease

    def fork_table(self, where: DatasetRef, from_ref: str | None, version: int) -> Handle:
        """Create a branch's own ref of a table at the pin it inherited, and open it."""
        assert where.ref is not None
        hit(Failpoint.FORK_BEFORE_CLASSIFY)
        handle = self.lance.create_ref(where.on(from_ref), where.ref, version)
        hit(Failpoint.FORK_POST_CREATE_PRE_OPEN)
        return handle
