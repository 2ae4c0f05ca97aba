"""The columns of an answer before anybody asked for a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Answer:
    """Arrow columns of one length, with their names.

    A small answer is often wanted as Python rows and nothing else. Arrow checks a table when it is
    made, and lets other threads run meanwhile: for one row that takes longer than the query.
    """

    names: Sequence[str]
    arrays: Sequence[pa.Array | pa.ChunkedArray]
    row_count: int

    @classmethod
    def of(cls, table: pa.Table | pa.RecordBatch) -> Answer:
        """The columns of a table."""
        return cls(table.schema.names, table.columns, table.num_rows)

    def table(self) -> pa.Table:
        """The columns as a table."""
        return pa.table(list(self.arrays), names=list(self.names))
