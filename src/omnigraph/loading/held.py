"""Rows of a small input that stay in memory, where a larger one would be written aside."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence

import pyarrow as pa

HELD_BYTES_MAX = 256 << 20


class HeldRows:
    """Tables in memory, each with a text that stands for it as a description does for a fragment.

    Several threads put rows in. Once there is no more room, rows have to be written.
    """

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self._room = bytes_max
        self._tables: dict[str, pa.Table] = {}
        self._lock = threading.Lock()

    def has_room(self, rows: pa.RecordBatch) -> bool:
        """Whether these rows may stay; the room they need is theirs then."""
        with self._lock:
            if self._room < rows.nbytes:
                return False
            self._room -= rows.nbytes
            return True

    def keep(self, batches: Sequence[pa.RecordBatch]) -> str:
        """Keep rows, and say by which text they are found."""
        table = pa.Table.from_batches(batches)
        with self._lock:
            text = json.dumps({"held": len(self._tables), "physical_rows": table.num_rows})
            self._tables[text] = table
        return text

    def get(self, fragment: str) -> pa.Table | None:
        """The rows that a text stands for; None if it describes a fragment."""
        return self._tables.get(fragment)
