"""The lock of a running schema apply: a hidden entry in the branch registry.

Leases exclude other writers already. The entry tells a waiting writer the reason, and remains after
a crash: until recovery has settled the apply, no operation may rely on the old schema.
"""

from __future__ import annotations

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, Lease, branch_scope
from omnigraph.errors import Conflict, UnreadableSidecar
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import BranchRow
from omnigraph.storage.publisher import register_branch, unregister_branch

SCHEMA_APPLY = "schema apply"


def take_lock(kernel: Kernel, lease: Lease, operation_id: str, actor_id: str | None) -> None:
    """Add the lock; the caller owns main."""
    row = BranchRow(
        name=SCHEMA_APPLY_LOCK,
        ref=operation_id,
        source_branch=MAIN,
        source_commit_id=kernel.manifest.main.state.head.commit_id,
        created_at=kernel.clock.wall_us(),
        actor_id=actor_id,
    )
    register_branch(kernel.manifest, row, lease.epoch)


def release_lock(kernel: Kernel, lease: Lease) -> None:
    """Remove the lock, if it exists; the caller owns main."""
    row = kernel.manifest.main.refresh().branches.get(SCHEMA_APPLY_LOCK)
    if row is not None:
        unregister_branch(kernel.manifest, row, lease.epoch)


def require_no_schema_apply(kernel: Kernel, operation: str) -> None:
    """Raise `Conflict` for ``operation`` if the cached state of main shows a running apply."""
    if SCHEMA_APPLY_LOCK not in kernel.manifest.main.state.branches:
        return
    if operation == SCHEMA_APPLY:
        message = "schema apply is already in progress"
    else:
        message = f"{operation} is unavailable while schema apply is in progress"
    raise Conflict(
        message, hint="try again when it is done; if its process has died, run `omnigraph recover`"
    )


def remove_abandoned_lock(kernel: Kernel) -> None:
    """Remove a lock of a dead owner, if no sidecar of a schema apply is pending."""
    if SCHEMA_APPLY_LOCK not in kernel.manifest.main.state.branches:
        return
    operation_id = kernel.ids.ulid()
    with kernel.gates.write([MAIN]):
        whole = kernel.leases.try_hold(GRAPH_SCOPE, operation_id)
        if whole is None:
            return
        try:
            lease = kernel.leases.try_hold(branch_scope(MAIN), operation_id)
            if lease is None:
                return
            try:
                kernel.fence_if_taken_over(kernel.manifest.main, lease)
                if not has_schema_apply(kernel):
                    release_lock(kernel, lease)
            finally:
                lease.release()
        finally:
            whole.release()


def has_schema_apply(kernel: Kernel) -> bool:
    """Whether a sidecar of a schema apply is pending; True also for an unreadable sidecar."""
    try:
        return any(found.writer_kind == "SchemaApply" for found in kernel.sidecars.pending())
    except UnreadableSidecar:
        return True
