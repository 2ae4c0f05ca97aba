"""How large a table is, from metadata alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from lance import LanceDataset

from omnigraph.effects.objects import ObjectStore
from omnigraph.storage.compaction import TARGET_ROWS_PER_FRAGMENT
from omnigraph.storage.datasets import DatasetRef, lance_failure


@dataclass(frozen=True, slots=True)
class TableSize:
    """The size of one version."""

    fragments: int
    small_fragments: int
    """Those that compacting is for."""
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
        sum(fragment.num_rows < TARGET_ROWS_PER_FRAGMENT for fragment in fragments),
        sum(fragment.num_deletions for fragment in fragments),
        sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.files),
    )


_VERSION_MAX = 2**64 - 1
"""Lance names version files so that the newest sorts first; it used to name them by number."""


def version_numbers(store: ObjectStore, where: DatasetRef) -> list[int]:
    """The versions a dataset still has: one listing, and none of them is read."""
    folder = f"{where.address}/_versions".removeprefix(f"{store.root.uri}/")
    names = (PurePosixPath(name) for name in store.list(folder))
    numbers = [
        int(name.stem) for name in names if name.suffix == ".manifest" and name.stem.isdecimal()
    ]
    return sorted(_VERSION_MAX - each if each > _VERSION_MAX // 2 else each for each in numbers)


def version_count(store: ObjectStore, where: DatasetRef) -> int:
    """How many versions a dataset still has."""
    return len(version_numbers(store, where))
