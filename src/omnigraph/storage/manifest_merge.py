"""A transaction that brings rows into a manifest by their keys, wherever the old ones lie.

For what is rare: it reads the keys of the whole manifest. A publish knows where the one row lies
that it replaces (`head_swap`).
"""

from __future__ import annotations

from collections.abc import Iterable

from lance import LanceDataset, Transaction

from omnigraph.effects.io_counters import count
from omnigraph.storage.manifest_rows import ManifestRow, encode_rows

_KEY = "object_id"


def stage_merge(
    handle: LanceDataset,
    rows: Iterable[ManifestRow],
    *,
    replacing: bool = True,
    without: str | None = None,
) -> Transaction:
    """Insert rows, replace those that are there unless told not to, and remove one by its key."""
    count("lance", "stage", handle.uri)
    merge = handle.merge_insert(_KEY).when_not_matched_insert_all()
    if replacing:
        merge = merge.when_matched_update_all()
    if without is not None:
        key = without.replace("'", "''")
        merge = merge.when_not_matched_by_source_delete(f"{_KEY} = '{key}'")
    transaction, _ = merge.execute_uncommitted(encode_rows(rows))
    return transaction
