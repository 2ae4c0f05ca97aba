"""Leases of owners that ended without giving them back.

They keep nobody from writing: whoever comes next takes them over. Giving them back only spares
that writer the step, and everybody else the question who is writing.
"""

from __future__ import annotations

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, branch_scope
from omnigraph.errors import NotFound
from omnigraph.upkeep.pending import pending_operations


def release_abandoned(kernel: Kernel) -> None:
    """Give back what is known to be abandoned, unless an unsettled operation is about it."""
    pending = {operation.operation_id for operation in pending_operations(kernel)}
    for holder in kernel.leases.holders():
        if holder.is_alive is False and holder.operation_id not in pending:
            _release(kernel, holder.scope)


def _release(kernel: Kernel, scope: str) -> None:
    name = scope.removeprefix(branch_scope(""))
    gate = kernel.gates.whole_graph() if scope == GRAPH_SCOPE else kernel.gates.write([name])
    with gate:
        lease = kernel.leases.try_hold(scope, kernel.ids.operation_id())
        if lease is None:
            return
        try:
            if scope != GRAPH_SCOPE:
                # Its owner may be slow instead of dead. From here on it cannot publish.
                kernel.fence_if_taken_over(kernel.manifest.branch(name), lease)
        except NotFound:
            pass  # the branch is gone, and nothing can be published on it any more
        finally:
            lease.release()
