"""Opening a graph: what is checked, migrated and settled, in which order.

For writing: the store's promises, the stamp, the migrations, the state, then recovery; each rests
on the ones before it. For reading: the stamp and the state, and not one write.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, branch_scope
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema_contract import (
    accepted_tables,
    promoted_contract,
    staged_objects,
)
from omnigraph.errors import NotFound, OmnigraphError, RecoveryRequired, SchemaContractError
from omnigraph.storage.datasets import DatasetRef, Handle
from omnigraph.storage.layout import MANIFEST, SCHEMA_SOURCE
from omnigraph.storage.migrations import Migration
from omnigraph.storage.moved_root import recorded_roots, require_unmoved
from omnigraph.storage.snapshot import ManifestState
from omnigraph.storage.stamp import is_current

PROMOTION_LOOKS = 20
PROMOTION_PAUSE_SECONDS = 0.02
"""Completing a published change of schema takes three renames."""

_ADVICE = "open the graph read-write, or run `omnigraph recover`"


def open_for_writing(kernel: Kernel, *, settle: bool = True) -> None:
    """Make a graph fit for writing: migrated, and with every interrupted operation settled.

    ``settle`` False leaves the latter to the caller. Raises `NotFound` where there is no graph,
    `UnsupportedStorageVersion` for one this product does not know, and `RootMoved`.
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
        Recoverer(kernel).run("full")
        # Only now: a schema change that was interrupted between two objects is whole again.
        kernel.accepted_schema()


def open_for_reading(kernel: Kernel) -> None:
    """See that a graph can be read, and write nothing at all.

    Operations in flight are left alone: what they have not published is not there. Raises
    `RecoveryRequired` only where the schema that belongs to the data cannot be told.
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
        )


def _migrate(kernel: Kernel) -> None:
    """Bring an older graph up to date while nobody else writes to it."""
    migration = Migration(
        kernel.lance, kernel.store, accepted_tables(kernel.accepted_schema()), kernel.ids
    )
    migration.check()
    operation_id = kernel.ids.operation_id()
    with ExitStack() as held:
        held.enter_context(kernel.gates.whole_graph())
        held.enter_context(kernel.leases.hold(GRAPH_SCOPE, operation_id))
        for branch in migration.branches():
            held.enter_context(kernel.leases.hold(branch_scope(branch), operation_id))
        migration.run()


def _require_promoted(kernel: Kernel, state: ManifestState) -> None:
    """The accepted schema is the one the newest commit was made with.

    A change of schema may be about to be completed beside us: it is looked for more than once.
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
    operation_id = _pending_schema_apply(kernel) if staged else None
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


def _pending_schema_apply(kernel: Kernel) -> str | None:
    """The operation a staged schema belongs to."""
    applies = (one for one in kernel.sidecars.readable() if one.writer_kind == "SchemaApply")
    return next((apply.operation_id for apply in applies), None)
