"""What to say when a table's newest version is not the published one."""

from __future__ import annotations

from omnigraph.commit.sidecar import Sidecars
from omnigraph.errors import OmnigraphError, UncoveredDrift
from omnigraph.storage.snapshot import TableEntry

RECOVER_ADVICE = "reopen the graph read-write, or run `omnigraph recover`"
REPAIR_ADVICE = "run `omnigraph repair`"


def uncovered_drift(
    sidecars: Sidecars, branch: str, entry: TableEntry, head: int
) -> UncoveredDrift:
    """The error for a table whose head ran ahead of its pin, with the advice that helps.

    Only a pending sidecar of this very branch explains it; those of other branches do not.
    """
    try:
        pending = [sidecars.read(name) for name in sidecars.names()]
    except OmnigraphError as cause:
        advice = (
            f"the drift could not be classified ({cause.message}); first {RECOVER_ADVICE}; "
            f"if it stays, {REPAIR_ADVICE}"
        )
    else:
        is_covered = any(
            sidecar is not None
            and sidecar.branch == branch
            and any(table.identity == entry.identity for table in sidecar.tables)
            for sidecar in pending
        )
        advice = RECOVER_ADVICE if is_covered else REPAIR_ADVICE
    return UncoveredDrift(entry.table_key, branch, entry.version, head, advice)
