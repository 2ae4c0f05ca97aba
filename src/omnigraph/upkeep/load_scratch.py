"""What bulk loads left on their way that never ended: rows of a killed driver, read by nobody."""

from __future__ import annotations

from omnigraph.effects.ids import ulid_at
from omnigraph.effects.objects import ObjectStore
from omnigraph.model.ids import is_ulid
from omnigraph.storage.layout import LOAD_SCRATCH

ABANDONED_DAYS = 7
"""Nothing tells a load that is slow from one that was killed, but none takes a week."""


def abandoned_scratch(store: ObjectStore, now_us: int) -> tuple[str, ...]:
    """The folders of loads that began long ago. A name says when: it is the id of the operation."""
    names = store.list(LOAD_SCRATCH)
    operations = {name.split("/")[1] for name in names if name.count("/") > 1}
    first_kept = ulid_at(now_us // 1_000 - ABANDONED_DAYS * 86_400_000)
    return tuple(
        f"{LOAD_SCRATCH}/{operation}"
        for operation in sorted(operations)
        if is_ulid(operation.upper()) and operation.upper() < first_kept
    )
