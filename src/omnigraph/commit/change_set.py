"""What a write changes, table by table, before anything is staged, and how much it may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

import pyarrow as pa

from omnigraph.errors import InputError, LimitExceeded
from omnigraph.storage.fragments import Positions
from omnigraph.storage.table_upkeep import UpkeepStep
from omnigraph.storage.written import Deletions


class GraphView(Protocol):
    """The committed rows a write is checked against: one snapshot, read by type key.

    A type whose table is to be replaced shows as empty.
    """

    def is_empty(self, table_key: str) -> bool:
        """Whether the type has no rows."""
        ...

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a type."""
        ...

    def rows_where_in(
        self, table_key: str, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """Rows whose ``column`` holds one of ``values``."""
        ...


ChangeKind: TypeAlias = Literal["append", "upsert", "delete", "replace", "exchange", "upkeep"]

UPKEEP_KINDS: frozenset[ChangeKind] = frozenset({"upkeep"})
"""Kinds that change how a table lies in storage, and nothing of its content."""

NO_ROWS = pa.table({"id": pa.array([], pa.string())})
"""What a change of such a kind carries."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows that lie in data files of their table's ref, which no version lists yet.

    Fragments are in the JSON form of Lance. An upsert also says what becomes of the fragments that
    held the former rows: ``updated`` lost some of their rows, ``removed`` all of them. For a table
    that its branch has yet to get a copy of, ``deleted`` says which rows these will be.
    """

    fragments: tuple[str, ...]
    updated: tuple[str, ...] = ()
    removed: tuple[int, ...] = ()
    deleted: Deletions = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Exchanged:
    """The committed rows that make room for those of an exchange."""

    positions: Positions
    """Where all of them lie in the version that was captured."""
    deleted: pa.Array
    """The ids among them that do not come back."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a write: exactly one Lance transaction, but for upkeep.

    ``append`` rows have new ids, ``upsert`` rows replace the entity of their id, ``replace`` rows
    become the whole table. Ids are unique within a change. ``delete`` carries ids that exist.
    ``exchange`` rows replace the entity of their id, while others are deleted.
    ``upkeep`` changes no content and has no rows: it takes ``steps`` that are one transaction each.
    """

    table_key: str
    kind: ChangeKind
    rows: pa.Table
    """Complete rows in the table's schema; for ``delete`` only the column `id`."""
    steps: tuple[UpkeepStep, ...] = ()
    written: WrittenRows | None = None
    """Rows that workers have written already, instead of ``rows``, which has none then."""
    exchanged: Exchanged | None = None
    """What an exchange takes out."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """The entities this change is about."""
        return self.rows["id"]


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All tables a write touches, by type key. Tables without work are not listed."""

    tables: dict[str, TableChange] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.tables


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


ROWS_MAX_VARIABLE = "OMNIGRAPH_WRITE_ROWS_MAX"
BYTES_MAX_VARIABLE = "OMNIGRAPH_WRITE_BYTES_MAX"


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """The most a write may stage for one table, inclusive."""

    rows_max: int = 1_000_000
    bytes_max: int = 512 * 1024 * 1024
    """Arrow memory."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WriteLimits:
        """The limits an operator has set, the defaults where nothing is set."""
        standard = cls()
        return cls(
            positive_setting(environment, ROWS_MAX_VARIABLE, standard.rows_max),
            positive_setting(environment, BYTES_MAX_VARIABLE, standard.bytes_max),
        )


DEFAULT_LIMITS = WriteLimits()


def positive_setting(environment: Mapping[str, str], name: str, standard: int) -> int:
    """What a variable is set to, ``standard`` if it is not set."""
    text = environment.get(name, "")
    if not text:
        return standard
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise InputError(f"{name} is '{text}', not a positive integer", hint=f"unset {name}")
    return int(text)


@dataclass(slots=True)
class Budget:
    """What one table of a write has used up so far."""

    limits: WriteLimits
    table_key: str
    rows: int = 0
    bytes: int = 0

    def charge(self, *, rows: int = 0, bytes: int = 0) -> None:
        """Take more, or raise `LimitExceeded` and have nothing written."""
        self.rows += rows
        self.bytes += bytes
        if self.rows > self.limits.rows_max:
            raise LimitExceeded(
                f"rows of {self.table_key}",
                self.limits.rows_max,
                self.rows,
                hint=f"split the write, load the rows instead, or raise {ROWS_MAX_VARIABLE}",
            )
        if self.bytes > self.limits.bytes_max:
            raise LimitExceeded(
                f"bytes of {self.table_key}",
                self.limits.bytes_max,
                self.bytes,
                hint=f"split the write, load the rows instead, or raise {BYTES_MAX_VARIABLE}",
            )
