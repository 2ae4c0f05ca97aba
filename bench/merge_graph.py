"""Graphs to be merged: items and links between them, and edits of either side that do not meet.

Rows go into the write path as Arrow tables, where a load puts them after reading its input. The
last tenth of the items has no links, so that items can be deleted one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from bench.bulk_write import write
from omnigraph.commit.plan import TableChange
from omnigraph.graph import Graph, init
from omnigraph.storage.layout import MAIN

SEED = 11
DIMENSIONS = 1_024
ITEM, LINK = "node:Item", "edge:Link"
ROWS_PER_WRITE = 100_000
"""Rows with vectors are made and written so many at a time."""


class MergeGraph:
    """A graph of items and links, as many of either."""

    def __init__(self, path: Path, rows: int, *, vectors: bool = False) -> None:
        self.rows = rows
        self.vectors = vectors
        self._path = path
        vector = f"  embedding: Vector({DIMENSIONS})" if vectors else ""
        self.graph: Graph = init(
            path,
            f"node Item {{ code: String @key  title: String  size: I32{vector} }}\n"
            "edge Link: Item -> Item { weight: I32 }",
        )
        # As a load or `optimize` leaves them: up to a million rows in one fragment.
        at_once = ROWS_PER_WRITE if vectors else rows
        for first in range(0, rows, at_once):
            count = min(at_once, rows - first)
            self.write(
                MAIN, TableChange(ITEM, "append", self.items(np.arange(first, first + count)))
            )
        self.write(MAIN, TableChange(LINK, "append", self.links(np.arange(rows))))

    def items(self, numbers: npt.NDArray[np.int64], size: int = 0) -> pa.Table:
        """Some items, by number; another ``size`` makes another version of them."""
        codes = [_code(number) for number in numbers.tolist()]
        columns: dict[str, Any] = {
            "id": codes,
            "code": codes,
            "title": [f"The item with the number {number}" for number in numbers.tolist()],
            "size": numbers.astype(np.int32) + np.int32(size),
        }
        if self.vectors:
            random = np.random.default_rng([SEED, int(numbers[0]), size])
            values = random.random((len(numbers), DIMENSIONS), np.float32)
            columns["embedding"] = pa.FixedSizeListArray.from_arrays(values.ravel(), DIMENSIONS)
        return pa.table(columns)

    def links(self, numbers: npt.NDArray[np.int64]) -> pa.Table:
        """Some links, by number, between items that are never deleted."""
        random = np.random.default_rng([SEED, len(numbers)])
        ends = random.integers(0, self.rows * 9 // 10, (2, len(numbers)))
        return pa.table(
            {
                "id": [f"L{number:025}" for number in numbers.tolist()],
                "src": [_code(number) for number in ends[0].tolist()],
                "dst": [_code(number) for number in ends[1].tolist()],
                "weight": ends[0].astype(np.int32),
            }
        )

    def edit(self, branch: str, turn: int) -> None:
        """Change 50 rows that no other turn changes: updates, inserts and deletes of both types."""
        new, lonely = self.rows + turn * 20, self.rows * 9 // 10 + turn * 5
        changed = self.items(self._spread(15, turn), size=turn + 1)
        self.write(
            branch,
            TableChange(ITEM, "upsert", changed),
            TableChange(LINK, "upsert", self.links(self._spread(10, turn))),
        )
        self.write(
            branch,
            TableChange(ITEM, "upsert", self.items(np.arange(new, new + 10))),
            TableChange(LINK, "delete", _ids(self.links(self._spread(5, turn, 1 / 3)))),
        )
        self.write(
            branch,
            TableChange(ITEM, "delete", _ids(self.items(np.arange(lonely, lonely + 5)))),
            TableChange(LINK, "upsert", self.links(np.arange(new, new + 5))),
        )

    def _spread(self, count: int, turn: int, beside: float = 0) -> npt.NDArray[np.int64]:
        """Numbers all over the table, others in each turn."""
        step = self.rows * 9 // 10 // count
        numbers: npt.NDArray[np.int64] = np.arange(count) * step + turn + int(step * beside)
        return numbers

    def write(self, branch: str, *changes: TableChange) -> None:
        """Publish changes of several tables as one commit, checked as every write is."""
        write(self._path, changes, branch)


def records(items: pa.Table) -> Iterator[bytes]:
    """Items as a load reads them."""
    for item in items.drop_columns(["id"]).to_pylist():
        yield orjson.dumps({"type": "Item", "data": item}) + b"\n"


def _ids(rows: pa.Table) -> pa.Table:
    return rows.select(["id"])


def _code(number: int) -> str:
    return f"I{number:09}"
