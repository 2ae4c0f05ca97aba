"""Operations that are on their way, or were interrupted."""

from __future__ import annotations

from pathlib import PurePosixPath

from omnigraph.commit.drift import RECOVER_ADVICE
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import RecoveryRequired, UnreadableSidecar
from omnigraph.model.upkeep import PendingOperation


def require_nothing_pending(kernel: Kernel, done: str) -> None:
    """Upkeep interprets nothing: what was interrupted has to be settled first.

    ``done`` says what is not done until then. Raises `RecoveryRequired`.
    """
    for sidecar in kernel.sidecars.pending():
        raise RecoveryRequired(
            sidecar.operation_id,
            f"operation {sidecar.operation_id} on {sidecar.branch} is unfinished, and nothing "
            f"is {done} before it is settled",
            RECOVER_ADVICE,
        )


def pending_operations(kernel: Kernel) -> list[PendingOperation]:
    """All of them, oldest first; also those whose records cannot be read."""
    found = []
    for name in kernel.sidecars.names():
        try:
            sidecar = kernel.sidecars.read(name)
        except UnreadableSidecar:
            found.append(PendingOperation(PurePosixPath(name).stem, None, None))
            continue
        if sidecar is not None:
            found.append(
                PendingOperation(sidecar.operation_id, sidecar.writer_kind, sidecar.branch)
            )
    return found
