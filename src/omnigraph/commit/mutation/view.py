"""What a mutation reads of the committed graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from omnigraph.commit.change_set import GraphView


class MutationView(GraphView, Protocol):
    """A `GraphView` that can also stream a type, and give the blobs of a few entities.

    No other method of a view gives blobs: their columns are never asked for there.
    """

    def batches(self, table_key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows of a type, a bounded number at a time."""
        ...

    def blob_sizes(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """How many bytes each of the blobs would take in memory, known without reading them.

        One number for each of ``ids``, in their order; null for a null blob.
        """
        ...

    def blobs(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        """The blobs of the entities, of type `model.arrow.BLOB_STORAGE`, in the order of ``ids``.

        A value kept elsewhere is given as its URI, and stays a reference.
        """
        ...
