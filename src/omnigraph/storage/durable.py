"""Putting a Lance commit on disk: Lance itself flushes nothing on a local file system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lance import LanceDataset, Transaction

from omnigraph.effects.durability import Durability, files_below, flush_new_files, flush_tree
from omnigraph.effects.uri import Root
from omnigraph.storage.damage import version_file


def flush_commit(
    root: Root, landed: LanceDataset, transaction: Transaction, durability: Durability
) -> None:
    """Flush every file a commit brought: its data, its transaction and its version file.

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
