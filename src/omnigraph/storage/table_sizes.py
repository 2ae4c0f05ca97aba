"""How large a table is, from metadata alone."""

from __future__ import annotations

from dataclasses import dataclass

from lance import LanceDataset

from omnigraph.effects.objects import ObjectStore
from omnigraph.storage.datasets import DatasetRef, lance_failure


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of one version."""

    fragments: int
    deleted_rows: int
    bytes: int


def size_of(handle: LanceDataset) -> TableSize:
    """The size of the version a handle is at."""
    try:
        fragments = [fragment.metadata for fragment in handle.get_fragments()]
    except (OSError, ValueError) as error:
        raise lance_failure(handle, error) from error
    return TableSize(
        len(fragments),
        sum(fragment.num_deletions for fragment in fragments),
        sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.files),
    )


def version_count(store: ObjectStore, where: DatasetRef) -> int:
    """How many versions a dataset still has: one listing, and none of them is read."""
    folder = f"{where.address}/_versions".removeprefix(f"{store.root.uri}/")
    return sum(name.endswith(".manifest") for name in store.list(folder))
