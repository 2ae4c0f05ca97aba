"""What to say when a table's newest version is not the published one."""

from __future__ import annotations

from omnigraph.commit.audit import RecoveryAudit
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import OmnigraphError, UncoveredDrift
from omnigraph.storage.datasets import DatasetRef, transactions_since
from omnigraph.storage.snapshot import TableEntry

RECOVER_ADVICE = "reopen the graph read-write, or run `omnigraph recover`"
REPAIR_ADVICE = "run `omnigraph repair`"


def uncovered_drift(kernel: Kernel, branch: str, entry: TableEntry, head: int) -> UncoveredDrift:
    """The error for a table whose head ran ahead of its pin, with the advice that helps."""
    try:
        is_ours = _is_pending(kernel, branch, entry) or _is_retired(kernel, entry)
    except (OmnigraphError, OSError) as error:
        cause = error.message if isinstance(error, OmnigraphError) else str(error)
        advice = (
            f"the drift could not be classified ({cause}); first {RECOVER_ADVICE}; "
            f"if it stays, {REPAIR_ADVICE}"
        )
    else:
        advice = RECOVER_ADVICE if is_ours else REPAIR_ADVICE
    return UncoveredDrift(entry.table_key, branch, entry.version, head, advice)


def _is_pending(kernel: Kernel, branch: str, entry: TableEntry) -> bool:
    """Whether a sidecar of this very branch explains it; those of other branches do not."""
    return any(
        sidecar.branch == branch
        and any(table.identity == entry.identity for table in sidecar.tables)
        for sidecar in kernel.sidecars.pending()
    )


def _is_retired(kernel: Kernel, entry: TableEntry) -> bool:
    """Whether only commits of operations that were undone came too late."""
    where = DatasetRef(kernel.table_uri(entry.location), entry.ref)
    chain = transactions_since(kernel.lance.open(where), entry.version)
    rows = RecoveryAudit(kernel.lance, kernel.root.uri).rows()
    retired = {uuid for row in rows for uuid in row.retired_uuids}
    return bool(chain) and retired.issuperset(chain)
