"""The parts of one open graph that every writer needs, in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from omnigraph.commit.forks import Forks
from omnigraph.commit.gates import Gates, gates_of
from omnigraph.commit.leases import NO_LINE, Lease, Leases, LeaseSettings, Line
from omnigraph.commit.schema_contract import accepted_tables, read_contract
from omnigraph.commit.sidecar import Sidecars
from omnigraph.effects.clock import SYSTEM_CLOCK, Clock
from omnigraph.effects.durability import configured_durability
from omnigraph.effects.ids import MINT, IdMint
from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.os_lock import OsLock, lock_path
from omnigraph.effects.side_by_side import SideBySide, side_by_side
from omnigraph.effects.uri import Root
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.layout import LEASES
from omnigraph.storage.legacy import AcceptedTables
from omnigraph.storage.manifest import Manifest, ManifestBranch
from omnigraph.storage.publisher import fence
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import ManifestState, Snapshot


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

    def accepted_schema(self, published: str | None = None) -> AcceptedSchema:
        """The schema contract in force, read from the store.

        ``published`` is the hash a branch's head names, for those who may meet a change of schema
        that is published and about to be completed.
        """
        return read_contract(self.store, published)

    def capture(
        self, branch: ManifestBranch, schema_hash: str, state: ManifestState | None = None
    ) -> Capture:
        """The head of a branch in ``state``, or as it was last read, and a reader of its tables."""
        snapshot = (state or branch.state).head_snapshot()
        reader = SnapshotReader(self.lance, self.root.uri, snapshot)
        return Capture(branch, snapshot, reader, schema_hash)

    def table_uri(self, location: str) -> str:
        """The dataset at a location relative to the root."""
        return f"{self.root.uri}/{location}"

    def fence_if_taken_over(self, branch: ManifestBranch, lease: Lease) -> None:
        """Shut a dead owner out before anything of its is touched."""
        if lease.was_taken_over:
            fence(branch, lease.epoch)

    @contextmanager
    def own_branch(
        self,
        branch: ManifestBranch,
        operation_id: str,
        beside: Callable[[], object] = lambda: None,
        line: Line = NO_LINE,
        catch_up: Callable[[], object] | None = None,
    ) -> Iterator[Lease]:
        """Be the only writer of a branch, in this process and in all others.

        ``beside`` reads what the owner wants to know of the branch, while ownership is confirmed;
        ``catch_up`` what others have written to it, while they still own it. ``line`` is the one
        that this writer has stood in.
        """
        with (
            self.gates.write([branch.branch]),
            self.leases.hold_branch(branch.branch, operation_id, beside, line, catch_up) as lease,
        ):
            if lease.was_taken_over:
                # Until the fence stood, the former owner may have acted on: look again.
                fence(branch, lease.epoch)
                beside()
            yield lease

    def at_once(self, work_max: int | None = None) -> AbstractContextManager[SideBySide]:
        """A block of requests to this root that do not depend on each other.

        Where they are work, ``work_max`` of them run at once, also on a local disk.
        """
        if work_max is not None:
            return side_by_side(threads=True, work_max=work_max)
        return side_by_side(threads=not self.root.is_local)

    @property
    def forks(self) -> Forks:
        """The tables that branches have of their own."""
        return Forks(self.lance, self.store)
