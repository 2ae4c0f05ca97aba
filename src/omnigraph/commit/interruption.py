"""What to say of an operation that stopped between its first effect and its publish."""

from __future__ import annotations

from omnigraph.errors import OmnigraphError, RecoveryRequired


def interrupted(operation_id: str, what: str, error: Exception) -> RecoveryRequired:
    """The error for an operation that recovery has to settle, and what stopped it."""
    known = error if isinstance(error, OmnigraphError) else OmnigraphError(str(error))
    first = f"{known.hint}; " if known.hint else ""
    return RecoveryRequired(
        operation_id,
        f"the {what} was interrupted after its first effect: {known.message}",
        f"{first}the next write, or `omnigraph recover`, finishes or undoes it",
    )
