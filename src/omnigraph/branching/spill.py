"""Rows of a merge or a diff that may exceed memory.

Up to a budget they stay in memory. The rest is written to unnamed files, which vanish when the
process ends, and memory-mapped as Arrow tables, whose pages the system loads and evicts on demand.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Mapping
from typing import IO

import pyarrow as pa

from omnigraph.effects.environment import positive_number
from omnigraph.effects.failures import from_os_error
from omnigraph.errors import LimitExceeded
from omnigraph.model.records import dataclass

MEMORY_VARIABLE = "OMNIGRAPH_MERGE_MEMORY_BYTES"
SPILL_VARIABLE = "OMNIGRAPH_SPILL_BYTES_MAX"

PARTS = 4
"""Joins work on this fraction of the budget at once, because they need memory of their own."""


@dataclass(frozen=True, slots=True)
class SpillLimits:
    """The memory and disk budgets of a merge or diff, inclusive."""

    memory_bytes: int = 256 * 1024 * 1024
    """Bytes of Arrow memory; the rest goes to files."""
    spill_bytes_max: int = 64 * 1024 * 1024 * 1024
    """The total size of the files."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> SpillLimits:
        """The limits from environment variables, else the defaults."""
        standard = cls()
        return cls(
            positive_number(MEMORY_VARIABLE, standard.memory_bytes, environment, strict=True),
            positive_number(SPILL_VARIABLE, standard.spill_bytes_max, environment, strict=True),
        )


class Spill:
    """The budget of one merge or diff. Thread-safe."""

    def __init__(self, limits: SpillLimits | None = None) -> None:
        self._limits = limits or SpillLimits.from_environment(os.environ)
        self._lock = threading.Lock()
        self._memory_bytes = 0
        self.spilled_bytes = 0
        """Bytes written to files."""

    @property
    def part_bytes(self) -> int:
        """The number of bytes to work on at once."""
        return max(1, self._limits.memory_bytes // PARTS)

    def rows(self, schema: pa.Schema) -> CollectedRows:
        """A new, empty collection."""
        return CollectedRows(self, schema)

    def hold(self, size: int) -> bool:
        """Reserve memory; False if that would exceed the budget."""
        with self._lock:
            if self._memory_bytes + size > self._limits.memory_bytes:
                return False
            self._memory_bytes += size
            return True

    def release(self, size: int) -> None:
        """Free memory reserved by `hold`."""
        with self._lock:
            self._memory_bytes -= size

    def charge(self, size: int) -> None:
        """Count bytes written to a file; raises `LimitExceeded` beyond the budget."""
        with self._lock:
            self.spilled_bytes += size
            spilled, allowed = self.spilled_bytes, self._limits.spill_bytes_max
        if spilled > allowed:
            raise LimitExceeded(
                "size of the temporary files of this merge or diff",
                allowed,
                spilled,
                hint=f"merge in smaller steps, or raise {SPILL_VARIABLE} or {MEMORY_VARIABLE}",
            )


class CollectedRows:
    """Rows that are added in parts, and finally read as one table."""

    def __init__(self, spill: Spill, schema: pa.Schema) -> None:
        self._spill = spill
        self._schema = schema
        self._buffered: list[pa.Table] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self.num_rows = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows."""
        if not rows.num_rows:
            return
        self.num_rows += rows.num_rows
        if self._file is None and self._spill.hold(rows.nbytes):
            self._buffered.append(rows)
            return
        try:
            self._write(rows)
        except OSError as error:
            raise _failure(error) from error

    def table(self) -> pa.Table:
        """All rows in the order they were added; afterwards none can be added."""
        if self._file is None or self._writer is None:
            return pa.concat_tables([self._schema.empty_table(), *self._buffered])
        try:
            self._writer.close()
            self._file.flush()
            mapped = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
            # The mapping outlives the closed file, and ends with the last reference to its rows.
            self._file.close()
        except OSError as error:
            raise _failure(error) from error
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()

    def _write(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._file = tempfile.TemporaryFile(prefix="omnigraph-")  # noqa: SIM115
            # After a failure `table` is not called; the file is closed with this object.
            weakref.finalize(self, self._file.close)
            self._writer = pa.ipc.new_stream(self._file, self._schema)
            buffered, self._buffered = self._buffered, []
            for earlier in buffered:
                self._append(earlier)
            self._spill.release(sum(earlier.nbytes for earlier in buffered))
        self._append(rows)

    def _append(self, rows: pa.Table) -> None:
        assert self._writer is not None
        self._spill.charge(rows.nbytes)
        self._writer.write_table(rows)


def _failure(error: OSError) -> Exception:
    return from_os_error(error, "write", f"a temporary file in {tempfile.gettempdir()}")
