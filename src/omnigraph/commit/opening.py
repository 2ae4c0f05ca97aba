"""Opening a graph: checks, migrations and recovery, in this order.

For writing: verify the store, check the stamp, migrate, check the state, recover; each step assumes
the previous ones. For reading: check the stamp and the state, without any write.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import orjson

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, branch_scope
from omnigraph.commit.plan import FIRST_VERSION
from omnigraph.commit.schema.contract import (
    accepted_tables,
    list_contract,
    promoted_contract,
    staged_objects,
    write_contract,
)
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.requests import concurrently
from omnigraph.errors import (
    AlreadyInitialized,
    InitializationClaimed,
    InitializationCommitted,
    InitializationIndeterminate,
    NotFound,
    OmnigraphError,
    RecoveryRequired,
    SchemaContractError,
)
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.schema.contract import build_contract
from omnigraph.storage.datasets import Handle
from omnigraph.storage.digests import encode_digests
from omnigraph.storage.layout import (
    INIT_CLAIM,
    LEASES,
    MAIN,
    MANIFEST,
    SCHEMA_OBJECTS,
    SCHEMA_SOURCE,
)
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import SCHEMA as MANIFEST_SCHEMA
from omnigraph.storage.manifest_rows import (
    CommitRow,
    HeadRow,
    ManifestRow,
    RegistryRow,
    TableIdentity,
    TableRow,
    VersionRow,
    encode_rows,
    is_current,
    recorded_roots,
    require_unmoved,
)
from omnigraph.storage.transactions import CommitLost, DatasetRef

if TYPE_CHECKING:
    from omnigraph.schema.compile import CompiledSchema

PROMOTION_LOOKS = 20
PROMOTION_PAUSE_SECONDS = 0.02
"""The pause between checks for the completion of a published schema change: three renames."""

_ADVICE = "open the graph read-write, or run `omnigraph recover`"


def open_for_writing(kernel: Kernel, *, settle: bool = True) -> None:
    """Prepare a graph for writing: migrate it, and settle every interrupted operation.

    With ``settle`` False the caller settles them. Raises `NotFound` if there is no graph,
    `UnsupportedStorageVersion` for an unknown internal schema, and `RootMoved`.
    """
    handle = _manifest(kernel)
    kernel.store.probe_atomic_create()
    needs_migration = not is_current(handle)
    _require_source(kernel)
    if needs_migration:
        _migrate(kernel)
    state = kernel.manifest.main.refresh()
    require_unmoved(recorded_roots(state.branches.values()), kernel.root)
    if settle:
        from omnigraph.commit.recovery import Recoverer

        Recoverer(kernel).run("full")
        # After recovery, which completes a schema change interrupted between two objects.
        kernel.accepted_schema()


def open_for_reading(kernel: Kernel) -> None:
    """Check that a graph can be read; writes nothing.

    Ignores operations in flight, whose effects are not visible. Raises `RecoveryRequired` only if
    no schema matches the data.
    """
    is_current(_manifest(kernel))
    _require_source(kernel)
    state = kernel.manifest.main.refresh()
    require_unmoved(recorded_roots(state.branches.values()), kernel.root)
    _require_promoted(kernel, state)


def _manifest(kernel: Kernel) -> Handle:
    return kernel.lance.open(DatasetRef(kernel.table_uri(MANIFEST)))


def _require_source(kernel: Kernel) -> None:
    if not kernel.store.exists(SCHEMA_SOURCE):
        raise NotFound(
            f"the graph at {kernel.root} has lost its schema: {SCHEMA_SOURCE} is missing",
            hint=f"restore {SCHEMA_SOURCE} from a copy of this graph; the data is still there",
            details={"file": kernel.table_uri(SCHEMA_SOURCE)},
        )


def _migrate(kernel: Kernel) -> None:
    """Migrate an older graph, holding the leases of all its branches."""
    from omnigraph.storage.migrations import Migration

    migration = Migration(
        kernel.lance, kernel.store, accepted_tables(kernel.accepted_schema()), kernel.ids
    )
    migration.check()
    operation_id = kernel.ids.ulid()
    with ExitStack() as locks:
        locks.enter_context(kernel.gates.whole_graph())
        locks.enter_context(kernel.leases.hold(GRAPH_SCOPE, operation_id))
        for branch in migration.branches():
            locks.enter_context(kernel.leases.hold(branch_scope(branch), operation_id))
        migration.run()


def _require_promoted(kernel: Kernel, state: ManifestState) -> None:
    """Raise an error unless the accepted schema is that of the newest commit.

    Reads it several times, as another process may be completing a schema change.
    """
    looks = 0
    while (obstacle := _promotion_obstacle(kernel, state)) is not None:
        looks += 1
        if looks >= PROMOTION_LOOKS:
            raise obstacle
        time.sleep(PROMOTION_PAUSE_SECONDS)
        state = kernel.manifest.main.refresh()


def _promotion_obstacle(kernel: Kernel, state: ManifestState) -> OmnigraphError | None:
    staged = staged_objects(kernel.store)
    pending = kernel.sidecars.readable() if staged else ()
    applies = (plan.attempt_id for plan in pending if plan.writer_kind == "SchemaApply")
    operation_id = next(applies, None)
    if staged and operation_id is None:
        return RecoveryRequired(
            None, f"{', '.join(staged)} belongs to no schema change that is known", _ADVICE
        )
    try:
        accepted = promoted_contract(kernel.store)
    except SchemaContractError as broken:
        if operation_id is None:
            return broken
        return RecoveryRequired(
            operation_id, f"a schema change was interrupted: {broken.message}", _ADVICE
        )
    if state.head_snapshot().commit.schema_hash != accepted.schema_hash:
        return RecoveryRequired(
            operation_id, "a schema change was published but not completed", _ADVICE
        )
    return None


log = logging.getLogger(__name__)

TABLE_DIRECTORIES = ("nodes", "edges")


def initialize(
    kernel: Kernel, compiled: CompiledSchema, *, actor_id: str | None = None, force: bool = False
) -> CommitRow:
    """Create a graph at the kernel's root, and return its genesis commit.

    Raises `AlreadyInitialized` if a graph or schema objects exist (``force`` replaces schema
    objects that belong to no graph, never a graph), `InitializationClaimed` while another `init`
    runs, `InitializationIndeterminate` if it is unknown whether the graph was created, and
    `InitializationCommitted` if it was created but a later step failed. After any other error there
    is no graph, and its files have been removed.
    """
    contract = build_contract(compiled.source, compiled.ir)
    kernel.store.probe_atomic_create()
    with _claim(kernel):
        _require_vacant(kernel, force)
        for directory in (*TABLE_DIRECTORIES, f"{LEASES}/branch"):
            # Left by an `init` that died before it created the graph: empty tables, and leases
            # with published versions of no graph.
            kernel.store.delete_prefix(directory)
        try:
            write_contract(kernel.store, contract)
            hit(Failpoint.INIT_AFTER_SCHEMA_CONTRACT_WRITTEN)
            rows = _create_tables(kernel, compiled.catalog)
        except Exception:
            _undo(kernel, "schema objects", _remove_contract)
            raise
        genesis = CommitRow(
            commit_id=kernel.ids.ulid(),
            branch=None,
            manifest_version=FIRST_VERSION,
            commit_seq=0,
            parent_commit_id=None,
            merged_parent_commit_id=None,
            actor_id=actor_id,
            kind="genesis",
            schema_hash=compiled.catalog.schema_hash,
            created_at=kernel.clock.wall_us(),
        )
        rows += [genesis, HeadRow(MAIN, genesis.commit_id, 0, 0), RegistryRow(0)]
        _create_manifest(kernel, rows, genesis.commit_id)
        list_contract(kernel.store, contract, compiled.catalog.schema_hash)
        # The graph exists: from here on nothing is undone.
        try:
            hit(Failpoint.INIT_POST_MANIFEST_CREATE)
            kernel.store.delete(INIT_CLAIM)
        except (OmnigraphError, OSError) as error:
            raise InitializationCommitted(genesis.commit_id, _reason(error)) from error
    return genesis


@contextmanager
def _claim(kernel: Kernel) -> Iterator[None]:
    """Hold the root for one `init`.

    A running `init` holds the graph lease, so the holder of the lease may replace the claim of a
    dead `init`, and its schema objects.
    """
    operation_id = kernel.ids.ulid()
    lease = kernel.leases.hold_unless_alive(GRAPH_SCOPE, operation_id)
    if lease is None:
        raise InitializationClaimed(
            f"another `init` of {kernel.root} is running", hint="wait for it, then open the graph"
        )
    with lease:
        try:
            if kernel.store.exists(INIT_CLAIM) and not _has_graph(kernel):
                _remove_contract(kernel)
            kernel.store.write(INIT_CLAIM, orjson.dumps({"operation_id": operation_id}))
            yield
        except (InitializationIndeterminate, InitializationCommitted):
            raise
        except Exception:
            _undo(kernel, "claim", _remove_claim)
            raise


def _undo(kernel: Kernel, what: str, undo: Callable[[Kernel], None]) -> None:
    """Undo a step after a failure; an error of the undo does not replace that failure."""
    try:
        undo(kernel)
    except Exception:
        log.warning(
            "the %s of a failed init at %s is left behind", what, kernel.root, exc_info=True
        )


def _remove_claim(kernel: Kernel) -> None:
    """Remove the claim, and the leases, which are not needed without a graph."""
    kernel.store.delete(INIT_CLAIM)
    if not _has_graph(kernel):
        kernel.store.delete_prefix(LEASES)


def _require_vacant(kernel: Kernel, force: bool) -> None:
    if _has_graph(kernel):
        raise AlreadyInitialized(
            f"{kernel.root} already holds a graph",
            hint="open it as it is, or choose another path; "
            "`omnigraph schema apply` changes the schema of a graph that exists",
        )
    leftovers = [name for name in SCHEMA_OBJECTS if kernel.store.exists(name)]
    if leftovers and not force:
        raise AlreadyInitialized(
            f"{kernel.root} holds {', '.join(leftovers)} but no graph",
            hint="replace them with `--force` (force=True), or choose another root",
        )
    tables = [name for directory in TABLE_DIRECTORIES for name in kernel.store.list(directory)]
    if any("/data/" in name for name in tables):
        raise AlreadyInitialized(
            f"{kernel.root} holds tables with data but no graph",
            hint="restore the manifest they belong to, or choose another root",
        )


def _has_graph(kernel: Kernel) -> bool:
    return kernel.lance.exists(DatasetRef(kernel.table_uri(MANIFEST)))


def _create_tables(kernel: Kernel, catalog: Catalog) -> list[ManifestRow]:
    """Create the empty tables of all types concurrently, since each mostly waits for storage.

    A table is not part of a graph before the manifest names it. All calls have ended when this
    returns or raises, so that a failed `init` does not release its claim while tables are written.
    """
    rows: list[ManifestRow] = []
    creations = []
    created: list[tuple[TableIdentity, DatasetRef]] = []
    for entity_type in catalog.types:
        identity = TableIdentity(entity_type.type_id, entity_type.incarnation_id)
        location = entity_type.table_path
        where, schema = DatasetRef(kernel.table_uri(location)), table_schema(entity_type)
        creations.append(partial(kernel.lance.create, where, schema, None, kernel.ids.ulid()))
        rows.append(TableRow(identity, entity_type.table_key, location, 0))
        created.append((identity, where))
    concurrently(*creations, threads=True)
    for identity, where in created:
        found = kernel.lance.digests.between(where, 0, FIRST_VERSION)
        digests = encode_digests(found) if found else None
        rows.append(VersionRow(identity, FIRST_VERSION, None, 0, 0, digests))
    return rows


def _create_manifest(kernel: Kernel, rows: list[ManifestRow], commit_id: str) -> None:
    """Create the manifest: the commit point. After a failure, checks whether it was created."""
    where = DatasetRef(kernel.table_uri(MANIFEST))
    try:
        kernel.lance.create(where, MANIFEST_SCHEMA, encode_rows(rows), kernel.ids.ulid())
    except (OmnigraphError, OSError, ValueError) as error:
        try:
            head = kernel.manifest.main.refresh().head
        except NotFound:
            _undo(kernel, "schema objects", _remove_contract)
            raise error from None
        except OmnigraphError as unreadable:
            raise InitializationIndeterminate(commit_id, _reason(error)) from unreadable
        if head.commit_id != commit_id:
            raise AlreadyInitialized(f"{kernel.root} already holds a graph") from error
        if not isinstance(error, CommitLost):
            raise InitializationCommitted(commit_id, _reason(error)) from error


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, OmnigraphError) else str(error)


def _remove_contract(kernel: Kernel) -> None:
    for name in SCHEMA_OBJECTS:
        kernel.store.delete(name)
