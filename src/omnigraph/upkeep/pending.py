"""Pending operations: running or interrupted."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePosixPath

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, branch_scope
from omnigraph.commit.recovery.examining import RECOVER_ADVICE
from omnigraph.errors import NotFound, RecoveryRequired, UnreadableSidecar
from omnigraph.model.upkeep import PendingOperation


def require_nothing_pending(kernel: Kernel, done: str) -> None:
    """Raise `RecoveryRequired` while an interrupted operation is pending.


    ``done`` names the refused work in the message.
    """
    for plan in kernel.sidecars.pending():
        raise RecoveryRequired(
            plan.attempt_id,
            f"operation {plan.attempt_id} on {plan.branch} is unfinished, and nothing "
            f"is {done} before it is settled",
            RECOVER_ADVICE,
        )


def pending_operations(kernel: Kernel) -> list[PendingOperation]:
    """All pending operations, oldest first, including those with unreadable records."""
    found = []
    for name in kernel.sidecars.names():
        try:
            plan = kernel.sidecars.read(name)
        except UnreadableSidecar:
            found.append(PendingOperation(PurePosixPath(name).stem, None, None))
            continue
        if plan is not None:
            found.append(PendingOperation(plan.attempt_id, plan.writer_kind, plan.branch))
    return found


def release_abandoned(kernel: Kernel) -> None:
    """Release abandoned leases, except those of unsettled operations."""
    pending = {operation.operation_id for operation in pending_operations(kernel)}
    for holder in kernel.leases.holders():
        if holder.is_alive is False and holder.operation_id not in pending:
            _release(kernel, holder.scope)


def _release(kernel: Kernel, scope: str) -> None:
    name = scope.removeprefix(branch_scope(""))
    gate = kernel.gates.whole_graph() if scope == GRAPH_SCOPE else kernel.gates.write([name])
    with gate:
        lease = kernel.leases.try_hold(scope, kernel.ids.ulid())
        if lease is None:
            return
        # Nothing can be published on a deleted branch.
        with lease, suppress(NotFound):
            if scope != GRAPH_SCOPE:
                # Its owner may be slow and not dead; after fencing it cannot publish.
                kernel.fence_if_taken_over(kernel.manifest.branch(name), lease)
