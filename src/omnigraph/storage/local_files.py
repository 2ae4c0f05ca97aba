"""Lance files on local disk: flushing of commits, the newest version.

Object stores need none of this: they show no object before it is complete, an acknowledged write is
durable, and listing versions is one request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lance import LanceDataset, Transaction

from omnigraph.effects.local_disk import Durability, files_below, flush_new_files, flush_tree
from omnigraph.effects.uri import Root
from omnigraph.storage.damage import version_file

# --- flushing: Lance flushes nothing on a local file system ---------------------------------------


def flush_commit(
    root: Root, landed: LanceDataset, transaction: Transaction, durability: Durability
) -> None:
    """Flush every new file of a commit: its data, its transaction and its version file.

    On an object store an acknowledged write is durable already, and nothing happens.
    """
    if root.path is None or durability is Durability.PROCESS:
        return
    files = {version_file(landed.uri, landed.version), *_new_files(Path(landed.uri), transaction)}
    flush_tree(root.path, files, durability)


def flush_ref(root: Root, uri: str, ref: str, durability: Durability) -> None:
    """Flush the files of a new ref: the version it starts with, and its entry in the list."""
    if root.path is None or durability is Durability.PROCESS:
        return
    directory = Path(uri)
    files = {*files_below(directory / "tree" / ref), directory / "_refs/branches" / f"{ref}.json"}
    flush_tree(root.path, files, durability)


@contextmanager
def flushed_additions(root: Root, address: str, durability: Durability) -> Iterator[None]:
    """Flush every file that a block adds to a dataset, where Lance commits by itself."""
    if root.path is None or durability is Durability.PROCESS:
        yield
        return
    known = files_below(Path(address))
    yield
    flush_new_files(Path(address), known, durability)


def _new_files(directory: Path, transaction: Transaction) -> Iterator[Path]:
    yield directory / "_transactions" / f"{transaction.read_version}-{transaction.uuid}.txn"
    operation = transaction.operation
    rewritten = getattr(operation, "groups", None) or ()
    for fragment in (
        *(getattr(operation, "fragments", None) or ()),
        *(getattr(operation, "new_fragments", None) or ()),
        *(fragment for group in rewritten for fragment in group.new_fragments),
    ):
        for file in fragment.files:
            data = directory / "data" / file.path
            yield data
            # Blobs too large for the file lie in a directory of its name.
            yield from data.with_suffix("").glob("*.blob")
    for index in getattr(operation, "new_indices", None) or ():
        yield from (directory / "_indices" / index.uuid).iterdir()
    for fragment in getattr(operation, "updated_fragments", None) or ():
        if fragment.deletion_file is not None:
            deleted = directory / fragment.deletion_file.path(fragment.id)
            # A fragment may keep the deletion file it had, which lies where it was made.
            if deleted.exists():
                yield deleted


# --- the newest version ---------------------------------------------------------------------------
#
# Every query asks for it, and listing versions takes longer the more there are. While inode and
# mtime of the directory stay the same, no version was added since the last listing.

MTIME_RESOLUTION_NS = 50_000_000
"""File systems count time in steps of some milliseconds: a directory changed more recently than
this may change again without another mtime."""

_KNOWN_MAX = 4_096
_Fingerprint = tuple[int, int]
_known: dict[str, tuple[_Fingerprint, int]] = {}
"""By directory: its inode and mtime fingerprint, and its newest version then."""


def newest_version(address: str, probe: Callable[[], int]) -> int:
    """The newest version of the dataset or ref at a path; ``probe`` lists them."""
    directory = f"{address}/_versions"
    fingerprint = _fingerprint(directory)
    known = _known.get(directory)
    if fingerprint is not None and known is not None and known[0] == fingerprint:
        return known[1]
    version = probe()
    if fingerprint is not None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[directory] = (fingerprint, version)
    return version


def _fingerprint(directory: str) -> _Fingerprint | None:
    """Inode and mtime; None if the next change might not show in them."""
    try:
        found = os.stat(directory)  # noqa: PTH116 - every query waits for this
    except OSError:
        return None
    changed = found.st_mtime_ns
    is_coarse = changed % 1_000_000_000 == 0
    age = time.time_ns() - changed
    return None if is_coarse or age < MTIME_RESOLUTION_NS else (found.st_ino, changed)
